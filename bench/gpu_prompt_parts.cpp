#include "gpu_prompt_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "backend/backend.h"
#include "backend/gpu/batch_program.h"
#include "backend/gpu/embedded_shaders.h"
#include "backend/gpu/kernel_report.h"
#include "backend/gpu/timing.h"
#include "model/family.h"
#include "plan/fuse.h"
#include "shader_folder.h"

namespace doppler::gpu {
namespace {

using PromptClock = std::chrono::steady_clock;
double milliseconds_since(PromptClock::time_point begin) {
  return std::chrono::duration<double, std::milli>(PromptClock::now() - begin).count();
}
double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

constexpr double kWarmUpMilliseconds = 1500;  // an idle GPU runs at a fifth of its clock
constexpr double kSlow = 1000;                // a step that takes longer runs on a CPU: two rounds must do

StepInput prompt_of(std::uint32_t tokens, std::uint32_t vocab) {
  StepInput input;
  for (std::uint32_t i = 0; i < tokens; ++i)
    input.add(static_cast<TokenId>((i * 7919 + 13) % vocab), i, 0, i + 1 == tokens);
  return input;
}

// Whole steps, as the engine asks for them.
Result<double> time_prompts(const Model& model, const PromptOptions& options) {
  BackendOptions chosen{.context = options.tokens + 64};
  chosen.max_step_tokens = options.tokens;
  DOPPLER_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, chosen));
  const StepInput input = prompt_of(options.tokens, model.spec.vocab_size);
  DOPPLER_TRY(backend->step(input, nullptr));  // compiles
  std::vector<double> times;
  const auto begin = PromptClock::now();
  for (int round = 0; round < options.rounds;) {
    backend->clear(0);
    const auto start = PromptClock::now();
    DOPPLER_TRY(backend->step(input, nullptr));
    const double took = milliseconds_since(start);
    if (milliseconds_since(begin) < kWarmUpMilliseconds) continue;
    times.push_back(took);
    round += took > kSlow ? options.rounds / 2 + 1 : 1;
  }
  return middle_of(times);
}

// One step, taken apart.
class Parts {
 public:
  Parts(const PromptOptions& options, Context& context, BatchProgram& program)
      : options_(options),
        context_(context),
        program_(program),
        input_(prompt_of(options.tokens, context.plan.vocab_size)),
        shape_{options.tokens, 1, has_runs(input_)} {}

  Status print(double step_ms) {
    DOPPLER_TRY(warm_up());
    DOPPLER_TRY(time_host());
    DOPPLER_TRY(list_dispatches());
    DOPPLER_ASSIGN(const double together,
                   time_on_device(*context_.device, list_.size(), [&](Recorder& recorder) {
                     for (const FixedDispatch& dispatch : list_) recorder.dispatch(dispatch);
                   }));
    DOPPLER_ASSIGN(const std::vector<TimedPass> passes, time_passes());
    double sum = 0;
    for (const TimedPass& pass : passes) sum += pass.end - pass.begin;
    fmt::print("{:<44} {:>9.3f} ms {:>8.0f} tok/s\n", "a step, as the engine asks for it", step_ms,
               options_.tokens / step_ms * 1e3);
    fmt::print("{:<44} {:>9.3f} ms, {} dispatches\n", "the device, one pass after another", together * 1e3,
               list_.size());
    fmt::print("{:<44} {:>9.3f} ms, between them {:.3f}\n", "  the kernels in their places", sum * 1e3,
               together * 1e3 - sum * 1e3);
    fmt::print("{:<44} {:>9.3f} ms, {:.3f} in all\n", "the host, before the device begins: records",
               record_first_ms(), record_ms_);
    fmt::print("{:<44} {:>9.3f} ms\n", "  writes the step", write_ms_);
    fmt::print("{:<44} {:>9.3f} ms\n", "the host, behind it: reads the logits", read_ms_);
    fmt::print("{:<44} {:>9.3f} ms ({:.0f}% of the step)\n", "not explained", step_ms - explained(together),
               100 - explained(together) / step_ms * 100);
    return print_kinds(passes, sum);
  }

 private:
  struct Kind {
    std::vector<FixedDispatch> dispatches;
    double seconds = 0, products = 0;
  };

  double explained(double together) const {
    return together * 1e3 + record_first_ms() + write_ms_ + read_ms_;
  }
  // The rest is recorded while the device computes.
  double record_first_ms() const {
    const std::size_t first = options_.tokens < kTokensOfHeadStart ? list_.size() : kDispatchesOfHeadStart;
    return record_ms_ * static_cast<double>(std::min(first, list_.size())) /
           static_cast<double>(list_.size());
  }

  Status write_step() {
    std::vector<std::uint32_t> words(context_.layout.bytes() / 4, 0);
    words[StepLayout::kCount] = words[StepLayout::kLongest] = options_.tokens;
    words[StepLayout::kWantedCount] = 1;
    for (std::uint32_t i = 0; i < options_.tokens; ++i) words[context_.layout.positions() + i] = i;
    words[context_.layout.wanted()] = options_.tokens - 1;
    return context_.device->write(context_.step, 0, std::as_bytes(std::span(words)));
  }

  // As the backend does it, but for the few rows that move to the front of their values.
  Status record(Recorder& recorder) {
    for (std::size_t i = 0; i < context_.plan.ops.size(); ++i)
      DOPPLER_TRY(
          program_.record(context_, recorder, i, i + 1, shape_of(i), nullptr, context_.plan.ops.size()));
    return {};
  }
  StepShape shape_of(std::size_t op) const {
    StepShape shape = shape_;
    if (op >= program_.late().first && shape.tokens > 1) shape.of_tokens = std::exchange(shape.tokens, 1);
    return shape;
  }

  Status warm_up() {
    DOPPLER_TRY(write_step());
    const auto begin = PromptClock::now();
    do {
      Recorder recorder(*context_.device);
      DOPPLER_TRY(record(recorder));
      DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
      DOPPLER_TRY(context_.device->wait(submission));
    } while (milliseconds_since(begin) < kWarmUpMilliseconds);
    return {};
  }

  // What the host does while the device has nothing to do.
  Status time_host() {
    const std::uint64_t bytes = std::uint64_t{context_.plan.vocab_size} * 4;
    DOPPLER_ASSIGN(const Buffer back, context_.device->make_read_back("logits", bytes));
    std::vector<float> logits(context_.plan.vocab_size);
    std::vector<double> writes, records, reads;
    for (int round = 0; round < std::max(options_.rounds, 3); ++round) {
      auto start = PromptClock::now();
      DOPPLER_TRY(write_step());
      writes.push_back(milliseconds_since(start));
      start = PromptClock::now();
      Recorder recorder(*context_.device);
      DOPPLER_TRY(record(recorder));
      DOPPLER_TRY(recorder.finish());
      records.push_back(milliseconds_since(start));
      // An empty submission with the logits' copy.
      Recorder copying(*context_.device);
      copying.copy(program_.value(context_.plan.logits).buffer, 0, back, 0, bytes);
      start = PromptClock::now();
      DOPPLER_ASSIGN(const std::uint64_t submission, copying.submit());
      DOPPLER_TRY(context_.device->read(back, bytes, submission, [&](std::span<const std::byte> from) {
        std::memcpy(logits.data(), from.data(), from.size());
      }));
      reads.push_back(milliseconds_since(start));
    }
    write_ms_ = middle_of(writes), record_ms_ = middle_of(records), read_ms_ = middle_of(reads);
    return {};
  }

  Status list_dispatches() {
    for (std::size_t i = 0; i < context_.plan.ops.size(); ++i) {
      std::vector<FixedDispatch> list;
      Recorder recorder(*context_.device, list);
      DOPPLER_TRY(program_.record(context_, recorder, i, i + 1, shape_of(i), nullptr));
      for (FixedDispatch& dispatch : list) {
        titles_.push_back(op_title(context_.plan, context_.plan.ops[i]));
        list_.push_back(std::move(dispatch));
      }
    }
    return {};
  }

  // Of some runs the fastest, kernel by kernel.
  Result<std::vector<TimedPass>> time_passes() {
    std::vector<TimedPass> best;
    for (int round = 0; round < 5; ++round) {
      DOPPLER_ASSIGN(const std::vector<TimedPass> now, time_in_place(*context_.device, list_));
      if (best.empty()) best = now;
      for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i].end - now[i].begin < best[i].end - best[i].begin) best[i] = now[i];
      }
    }
    return best;
  }

  Status print_kinds(const std::vector<TimedPass>& passes, double sum) {
    std::map<std::string, Kind> kinds;
    std::vector<std::string> order;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const KernelLabel label(list_[i].kernel.kernel().label());
      std::string name = fmt::format("{:<34} {}", titles_[i], label.variant());
      if (!kinds.contains(name)) order.push_back(name);
      Kind& kind = kinds[name];
      kind.seconds += passes[i].end - passes[i].begin;
      if (label.file.starts_with("gemm") && label.has("UNITS_K"))
        kind.products += 128.0 * static_cast<double>(list_[i].groups.y * label.get("TM") * label.get("ROWS") *
                                                     label.get("UNITS_K"));
      kind.dispatches.push_back(list_[i]);
    }
    fmt::print("{:>5} {:>9} {:>9} {:>6} {:>9} {:>6}\n", "times", "us each", "alone", "share", "ms", "T/s");
    for (const std::string& name : order) {
      const Kind& kind = kinds[name];
      const auto times = static_cast<double>(kind.dispatches.size());
      DOPPLER_ASSIGN(const double alone, time_each(*context_.device, kind.dispatches));
      fmt::print("{:>5} {:>9.1f} {:>9.1f} {:>5.1f}% {:>9.3f} {:>6} {}\n", kind.dispatches.size(),
                 kind.seconds / times * 1e6, alone * 1e6, kind.seconds / sum * 100, kind.seconds * 1e3,
                 kind.products > 0 ? fmt::format("{:.1f}", kind.products / kind.seconds * 1e-12) : "", name);
    }
    return {};
  }

  const PromptOptions& options_;
  Context& context_;
  BatchProgram& program_;
  StepInput input_;
  StepShape shape_;
  std::vector<FixedDispatch> list_;
  std::vector<std::string> titles_;  // of each dispatch, its op's
  double write_ms_ = 0, record_ms_ = 0, read_ms_ = 0;
};

Status print_once(const Model& model, const PromptOptions& options) {
  DOPPLER_ASSIGN(const double step_ms, time_prompts(model, options));
  DOPPLER_ASSIGN(const auto device, Device::open({}));
  BackendOptions chosen{.context = options.tokens + 64};
  chosen.max_step_tokens = options.tokens;
  DOPPLER_ASSIGN(Plan plan, build_plan(model.spec, model.weights, chosen.context));
  DOPPLER_TRY(fuse_plan(plan, model.weights, kGpuPasses, {}));
  chosen.kv_type = choose_kv_type(chosen, plan, model.weights);
  Context context(device, std::move(plan), model.weights, chosen);
  DOPPLER_TRY(context.allocate());
  DOPPLER_ASSIGN(BatchProgram program, BatchProgram::create(context, 1));
  fmt::print("{} tokens on {} ({})\n", options.tokens, device->adapter().name, device->adapter().driver);
  return Parts(options, context, program).print(step_ms);
}

}  // namespace

Status print_prompt_parts(const PromptOptions& options) {
  DOPPLER_ASSIGN(const Model model, load_model(options.model));
  DOPPLER_TRY(print_once(model, options));
  for (const std::string& folder : options.shaders) {
    DOPPLER_ASSIGN(const auto before, replace_shaders(folder));
    fmt::print("\nwith the shaders of {}: ", folder);
    DOPPLER_TRY(print_once(model, options));
    for (const auto& [name, text] : before) replace_shader(name, text);
  }
  return {};
}

}  // namespace doppler::gpu
