#include "backend/backend.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/cpu/cpu_backend.h"
#if DOPPLER_GPU
#include "backend/gpu/gpu_backend.h"
#endif
#include "backend/reference/reference_backend.h"
#include "base/text.h"

namespace doppler {

void Backend::note(Fallback fallback) {
  if (std::ranges::find(fallbacks_, fallback) == fallbacks_.end()) fallbacks_.push_back(std::move(fallback));
}

Status check_step(const StepInput& input, const Plan& plan, const BackendOptions& options,
                  std::span<const std::uint64_t> lengths) {
  const std::size_t tokens = input.size();
  if (input.positions.size() != tokens || input.slots.size() != tokens ||
      input.wants_logits.size() != tokens) {
    return fail(ErrorCode::kUsage,
                "The step has {} ids, {} positions, {} slots and {} logit flags; they must be as many.",
                tokens, input.positions.size(), input.slots.size(), input.wants_logits.size());
  }
  if (tokens == 0 || tokens > step_tokens(options)) {
    return fail(ErrorCode::kUsage, "The step has {} tokens, but a step takes 1 to {}.", tokens,
                step_tokens(options));
  }
  std::vector<std::uint64_t> next(lengths.begin(), lengths.end());
  for (std::size_t t = 0; t < tokens; ++t) {
    if (input.ids[t] < 0 || static_cast<std::uint32_t>(input.ids[t]) >= plan.vocab_size) {
      return fail(ErrorCode::kMismatch,
                  "The token id {} at place {} is outside the vocabulary of {} tokens. Check that the ids "
                  "belong to this model.",
                  input.ids[t], t, plan.vocab_size);
    }
    if (input.slots[t] < 0 || static_cast<std::size_t>(input.slots[t]) >= next.size()) {
      return fail(ErrorCode::kUsage, "The slot {} does not exist; there are {}.", input.slots[t],
                  next.size());
    }
    std::uint64_t& expected = next[static_cast<std::size_t>(input.slots[t])];
    if (input.positions[t] < 0 || static_cast<std::uint64_t>(input.positions[t]) != expected) {
      return fail(ErrorCode::kUsage,
                  "The token at place {} has the position {}, but slot {} continues at {}.", t,
                  input.positions[t], input.slots[t], expected);
    }
    if (++expected > options.context) {
      return fail(
          ErrorCode::kLimit,
          "The sequence in slot {} exceeds the context of {} tokens. Raise the context or shorten it.",
          input.slots[t], options.context);
    }
  }
  return {};
}

Fallback fewer_positions(const BackendOptions& options) {
  return {fmt::format("All sequences together have room for {} positions.", options.cache_positions),
          fmt::format("{} times the context of {} does not fit into the memory that is left.", options.slots,
                      options.context)};
}

Result<Plan> plan_for(const ModelSpec& spec, const Weights& weights, const BackendOptions& options) {
  DOPPLER_ASSIGN(Plan plan, build_plan(spec, weights, options.context));
  if (options.change_plan) options.change_plan(plan);
  return plan;
}

KvType choose_kv_type(const BackendOptions& options, const Plan& plan, const Weights& weights) {
  if (options.kv_type) return *options.kv_type;
  if (options.exact) return KvType::kF32;
  for (const Op& op : plan.ops) {
    for (const WeightId id : op.weights) {
      if (is_quantised(weights[id].dtype)) return KvType::kF16;
    }
  }
  return KvType::kF32;
}

Status check_backend_options(const BackendOptions& options) {
  if (options.context == 0 || options.context > INT32_MAX) {
    return fail(ErrorCode::kUsage,
                "The context of {} positions is out of range; it must lie between 1 and {}.", options.context,
                INT32_MAX);
  }
  if (options.slots == 0) return fail(ErrorCode::kUsage, "The backend has 0 slots. Give it at least 1.");
  if (options.cache_positions != 0 && options.cache_positions < options.context) {
    return fail(ErrorCode::kUsage,
                "A cache of {} positions does not hold a sequence as long as the context of {}. Raise "
                "cache_positions, or lower the context.",
                options.cache_positions, options.context);
  }
  if (step_tokens(options) == 0) {
    return fail(ErrorCode::kUsage, "A step of at most 0 tokens computes nothing. Allow at least 1.");
  }
  return {};
}

std::string DeviceInfo::describe() const {
  return fmt::format("{} ({}, driver {})", printable(name), api,
                     driver.empty() ? "unknown" : printable(driver));
}

std::span<const BackendInfo> all_backends() {
  static constexpr std::array kBackends = std::to_array<BackendInfo>({
#if DOPPLER_GPU
      {"gpu", "any GPU, through WebGPU", make_gpu_backend},
#endif
      {"cpu", "SIMD and threads", make_cpu_backend},
      {"reference", "plain loops in double precision: slow, and the truth for the others",
       make_reference_backend},
  });
  return kBackends;
}

Error no_gpu_support() {
  return {
      ErrorCode::kUnsupported,
      "This doppler was built without GPU support. Build it with -DDOPPLER_GPU=ON, or use --backend cpu."};
}

namespace {

// Errors of the GPU, not of the model or the user: the cpu backend may do better.
[[maybe_unused]] bool concerns_the_gpu(ErrorCode code) {
  return code == ErrorCode::kNotFound || code == ErrorCode::kLimit || code == ErrorCode::kUnsupported ||
         code == ErrorCode::kIo;  // kIo: the device is lost
}

void tell(std::string* choice, std::string text) {
  if (choice != nullptr) *choice = std::move(text);
}

Result<std::unique_ptr<Backend>> make_auto_backend(const ModelSpec& spec, const Weights& weights,
                                                   const BackendOptions& options, std::string* choice) {
#if DOPPLER_GPU
  BackendOptions real = options;
  real.gpu_setup.software = false;
  auto backend = make_gpu_backend(spec, weights, real);
  if (backend) {
    tell(choice, fmt::format("gpu: {}", (*backend)->device()->info().describe()));
    return backend;
  }
  const Error& error = backend.error();
  if (!concerns_the_gpu(error.code)) return backend;
  const bool none = error.code == ErrorCode::kNotFound && options.gpu.adapter.empty();
  tell(choice,
       none ? "cpu: there is no GPU" : fmt::format("cpu: the GPU does not run this. {}", error.message));
  auto instead = make_cpu_backend(spec, weights, options);
  if (instead && !none) (*instead)->note({"The model runs on the cpu, not on the GPU.", error.message});
  return instead;
#else
  tell(choice, "cpu: this doppler was built without GPU support");
  return make_cpu_backend(spec, weights, options);
#endif
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const ModelSpec& spec,
                                              const Weights& weights, const BackendOptions& options,
                                              std::string* choice) {
  if (name == "auto") return make_auto_backend(spec, weights, options, choice);
#if !DOPPLER_GPU
  if (name == "gpu") return std::unexpected(no_gpu_support());
#endif
  std::vector<std::string> known = {"auto"};
  for (const BackendInfo& info : all_backends()) {
    if (info.name == name) {
      auto backend = info.make(spec, weights, options);
      if (!backend || (*backend)->device() == nullptr) return backend;
      const DeviceInfo device = (*backend)->device()->info();
      const std::string slower =
          device.software()
              ? fmt::format("{} is no GPU but software, slower than --backend cpu", device.describe())
              : std::string();
      tell(choice, fmt::format("gpu: {}", slower.empty() ? device.describe() : slower));
      if (!slower.empty()) (*backend)->note({"The gpu backend runs without a GPU.", slower});
      return backend;
    }
    known.emplace_back(info.name);
  }
  return fail(ErrorCode::kUsage, "There is no backend {}. Backends are {}.", printable(name),
              join(known, ", "));
}

}  // namespace doppler
