#include "backend/gpu/decode_grouping.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/timing.h"

namespace doppler::gpu {
namespace {

constexpr std::string_view kWhy =
    "op by op was measured to be faster on this GPU, whose subgroups have fewer than 8 threads";

// Names the plan's size, as GemvSite::key() does a product's.
std::string key_of(const DecodeProgram& program) {
  const std::string first = program.sites().empty() ? std::string() : program.sites()[0].key();
  return fmt::format("op by op instead of {} kernels, {}", program.body().size(), first);
}

// Seconds of a token at that position.
Result<double> time_token(Context& context, const DecodeProgram& program, std::uint64_t position) {
  return time_on_device(*context.device, program.dispatches(position),
                        [&](Recorder& recorder) { program.record_logits(recorder, position); });
}

}  // namespace

Result<DecodeProgram> ungrouped(Context& context) {
  context.one_by_one = kWhy;
  auto program = DecodeProgram::create(context);
  context.one_by_one.clear();
  return program;
}

Status choose_grouping(Context& context, DecodeProgram& program) {
  if (context.device->features().wide_subgroups()) return {};
  const std::string key = key_of(program);
  const auto known = context.tuned.find(key);
  if (known != context.tuned.end() && known->second.head_groups == 0) return {};
  auto alone = ungrouped(context);
  if (!alone && alone.error().code != ErrorCode::kUnsupported)
    return std::unexpected(std::move(alone).error());
  if (!alone) return {};
  if (known == context.tuned.end()) {
    // Where attention counts, but does not decide alone.
    const std::uint64_t position = std::min<std::uint64_t>(512, context.options.context - 1);
    std::vector<std::uint32_t> words = context.first_step();
    words[context.layout.positions()] = static_cast<std::uint32_t>(position);
    DOPPLER_TRY(context.device->write(context.step, 0, std::as_bytes(std::span(words))));
    DOPPLER_ASSIGN(const double together, time_token(context, program, position));
    DOPPLER_ASSIGN(const double apart, time_token(context, *alone, position));
    constexpr double kGain = 0.95;  // less is what two measurements of one program differ by
    const bool is_faster = apart < together * kGain;
    context.tuned[key] = {{.rows = 1, .lanes = 1, .units = 1, .at_once = 1}, is_faster ? 1u : 0u};
    if (!is_faster) return {};
  }
  context.one_by_one = kWhy;
  program = std::move(*alone);
  return {};
}

}  // namespace doppler::gpu
