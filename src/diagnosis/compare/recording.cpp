#include "diagnosis/compare/recording.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/recording_writer.h"
#include "formats/safetensors.h"
#include "model/fingerprint.h"

namespace doppler::diagnosis {
std::map<std::string, std::string> model_metadata(const std::filesystem::path& model,
                                                  const Weights& weights) {
  std::filesystem::path name = model.lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return {{"model", name.filename().string()},
          {"weights", describe_weights(weights)},
          {"fingerprint", fmt::format("{:016x}", fingerprint_of(weights).value())},
          {"version", "0.1.0"}};
}

Arithmetic arithmetic_of(const Backend& backend) {
  const Precision precision = backend.precision();
  Arithmetic arithmetic{.half_products = precision.half_products, .half_parts = precision.half_parts};
  arithmetic.eight_bit_products = precision.rounding == Rounding::kEightBits && !backend.options().exact;
  arithmetic.wide_blocks_from = arithmetic.eight_bit_products ? precision.wide_blocks_from : 0;
  // The reference backend keeps floats whatever it is asked for, and says so.
  arithmetic.kv = backend.options().kv_type.value_or(KvType::kF32);
  return arithmetic;
}

std::map<std::string, std::string> run_metadata(const Backend& backend) {
  std::map<std::string, std::string> metadata = arithmetic_metadata(arithmetic_of(backend));
  metadata["producer"] = fmt::format("doppler {}", backend.name());
  metadata["dtype"] = "float32";
  if (const DeviceView* device = backend.device()) metadata["device"] = device->info().describe();
  return metadata;
}

Result<std::span<const float>> feed(Backend& backend, std::uint32_t slot, std::span<const std::int32_t> ids,
                                    std::uint32_t piece, bool all_logits, Tap* tap, std::int64_t trace_step) {
  const std::uint32_t fits = step_tokens(backend.options());
  const std::size_t most = piece == 0 ? fits : std::min(piece, fits);
  std::span<const float> logits;
  for (std::size_t begin = 0; begin < ids.size(); begin += most) {
    const std::size_t count = std::min(most, ids.size() - begin);
    StepInput input;
    input.trace_step = trace_step;
    for (std::size_t i = 0; i < count; ++i) {
      input.add(ids[begin + i], backend.length(slot) + i, slot, all_logits || begin + i + 1 == ids.size());
    }
    DOPPLER_ASSIGN(logits, backend.step(input, tap));
  }
  return logits;
}

Status record_run(Backend& backend, const RecordOptions& options, const std::filesystem::path& file) {
  const std::uint64_t length = options.prompt_ids.size() + std::uint64_t{options.decode_steps};
  if (options.prompt_ids.empty()) {
    return fail(ErrorCode::kUsage, "The prompt to record has no tokens. Give at least one.");
  }
  if (length > backend.options().context) {
    return fail(
        ErrorCode::kLimit,
        "The prompt of {} tokens and {} decode steps exceed the context of {}. Raise the context or shorten "
        "the recording.",
        options.prompt_ids.size(), options.decode_steps, backend.options().context);
  }
  const std::size_t vocab = backend.plan().vocab_size;
  std::vector<SafetensorsWriter::Entry> after;
  if (options.decode_steps > 0) {
    after = {{"decode_logits", DType::kF32, {options.decode_steps, vocab}},
             {"greedy_ids", DType::kI32, {options.decode_steps + std::uint64_t{1}}}};
  }
  std::map<std::string, std::string> metadata = options.metadata;
  metadata.merge(run_metadata(backend));
  // Made before the work, so that a place that cannot be written costs no run.
  DOPPLER_ASSIGN(const auto writer, RecordingWriter::create(file, backend.plan(), options.prompt_ids,
                                                            options.attention_scores, after, metadata));
  backend.clear(0);
  DOPPLER_ASSIGN(std::span<const float> logits, feed(backend, 0, options.prompt_ids, 0, true, writer.get()));
  DOPPLER_TRY(writer->end_stages());
  std::vector<std::int32_t> greedy;
  const auto choose = [&]() -> Status {
    greedy.push_back(argmax(logits.last(vocab)));
    if (greedy.back() >= 0) return {};
    return fail(ErrorCode::kMismatch, "The logits of decode step {} are all NaN. Check the weights.",
                greedy.size() - 1);
  };
  if (options.decode_steps > 0) DOPPLER_TRY(choose());
  for (std::uint32_t step = 0; step < options.decode_steps; ++step) {
    DOPPLER_ASSIGN(logits, feed(backend, 0, std::span(&greedy.back(), 1), 0, true, nullptr, step + 1));
    DOPPLER_TRY(writer->write(std::as_bytes(logits)));
    DOPPLER_TRY(choose());
  }
  DOPPLER_TRY(writer->write(std::as_bytes(std::span(greedy))));
  return writer->finish();
}

}  // namespace doppler::diagnosis
