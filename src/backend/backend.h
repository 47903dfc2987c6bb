// Backend: executes a plan, step by step, with its own KV cache. There are three: reference (the oracle), cpu
// and gpu.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cache_access.h"
#include "backend/continuer.h"
#include "backend/device_view.h"
#include "backend/options.h"
#include "backend/step_input.h"
#include "backend/tap.h"
#include "base/result.h"
#include "model/spec.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler {

// Told how long each op of a step took, in the plan's order; the time of ops that run as one goes to the
// first of them.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_op(std::size_t index, double seconds) = 0;
};

enum class Rounding : std::uint8_t {
  kFloat,      // float32 throughout
  kHalfCache,  // keys and values in f16
  kHalf,       // weights and activations of a prompt's products in f16, as tensor cores take them
  kEightBits,  // activations, or keys and values, in blocks of 8-bit numbers
};

// How coarse a backend's arithmetic is on purpose; comparisons allow for it.
struct Precision {
  Rounding rounding = Rounding::kFloat;  // the coarsest of all
  // A prompt's products with floats are in f16, as tensor cores take them, whatever others are in; with a
  // cache in f16 so are those of its attention, queries and shares.
  bool half_products = false;
  bool half_parts = false;  // an attention's positions are dealt out in parts, whose results are f16
  // Steps of so many tokens or more round activations to 8 bits with one scale for 256 values where the
  // weights are K-quants, else with one for 32. 0: none do.
  std::uint32_t wide_blocks_from = 0;
  bool operator==(const Precision&) const = default;
};

// Which implementation computes a kind of op, and the reason for that choice.
struct VariantRow {
  std::string what;     // "decode: matmul q_proj+k_proj+v_proj"
  std::string variant;  // "gemv.wgsl R=8 ..."
  std::string why;
};

// A slower way that a backend takes because the faster one does not work here.
struct Fallback {
  std::string what;  // "Single tokens are computed as batches of one, which is slower."
  std::string why;   // a sentence with the reason
  bool operator==(const Fallback&) const = default;
};

// Bytes that a backend has allocated.
struct MemoryUse {
  std::uint64_t cache = 0;        // keys and values
  std::uint64_t activations = 0;  // values of a step, and the kernels' working memory
  std::uint64_t weights = 0;      // copies in a form of its own; files that are mapped do not count
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual const Plan& plan() const = 0;
  // As given, but with the kv_type, the max_step_tokens and the cache_positions that were chosen.
  virtual const BackendOptions& options() const = 0;
  virtual Precision precision() const { return {}; }
  Rounding rounding() const { return precision().rounding; }

  // Runs one step; the logits have one row of vocab_size per token that wants them, in order, and stay valid
  // until the next step. `tap` may be null. A step that check_step refuses changes nothing.
  virtual Result<std::span<const float>> step(const StepInput& input, Tap* tap) = 0;

  // Tokens of a sequence at most that a step of StepInput::guesses may have, all with their logits wanted,
  // for each to have the logits of a step of its own, bit for bit.
  virtual std::size_t rows_that_agree() const { return 1; }

  // Tokens in a slot's cache.
  virtual std::uint64_t length(std::uint32_t slot) const = 0;
  // Forgets a slot's sequence.
  virtual void clear(std::uint32_t slot) = 0;
  // Null for backends whose cache cannot be reached.
  virtual CacheAccess* cache() { return nullptr; }

  virtual MemoryUse memory() const = 0;
  // The implementation of each kind of op, in the plan's order. Empty where there is only one.
  virtual Result<std::vector<VariantRow>> describe() { return std::vector<VariantRow>(); }

  // Null for backends that only run steps; otherwise valid as long as the backend.
  virtual Continuer* continuer() { return nullptr; }
  // Null for backends that compute on the host.
  virtual DeviceView* device() { return nullptr; }
  const DeviceView* device() const { return const_cast<Backend*>(this)->device(); }
  // Whether sequences continue by themselves with these options.
  bool can_continue(const GenerateOptions& sampling) {
    return continuer() != nullptr && continuer()->can_continue(sampling);
  }

  // Has every later step timed, until it is given null. Backends that cannot time ops never call it.
  void observe(OpObserver* observer) { observer_ = observer; }

  // The fallbacks so far: most are known when the backend is made, some when a kernel or an option is first
  // needed. Only grows.
  const std::vector<Fallback>& fallbacks() const { return fallbacks_; }
  // Adds a fallback unless it is listed: for the backend, and for code that chose it in place of another.
  void note(Fallback fallback);

 protected:
  OpObserver* observer() const { return observer_; }

 private:
  OpObserver* observer_ = nullptr;
  std::vector<Fallback> fallbacks_;
};

// Checks everything that a backend relies on: equal lengths, 1..max_step_tokens tokens, ids inside the
// vocabulary, slots that exist, positions that continue each slot (`lengths`) and stay inside the context.
// Errors: kMismatch for ids outside the vocabulary, kLimit at the end of the context, else kUsage.
Status check_step(const StepInput& input, const Plan& plan, const BackendOptions& options,
                  std::span<const std::uint64_t> lengths);

// What a backend notes whose slots share fewer positions than they may use, since no more fit.
Fallback fewer_positions(const BackendOptions& options);

struct BackendInfo {
  std::string_view name;
  std::string_view what;
  // Plan and weights must outlive the backend's use of them: weights are read in place.
  Result<std::unique_ptr<Backend>> (*make)(const ModelSpec& spec, const Weights& weights,
                                           const BackendOptions& options);
};
std::span<const BackendInfo> all_backends();

// The error for the gpu backend in a program without it: kUnsupported.
Error no_gpu_support();

// "auto" is gpu where there is a real GPU that takes the model, else cpu; a software adapter only if
// GpuOptions::adapter names it. `choice` (may be null) is set to the chosen backend and the reason, in a line
// for people: "gpu: NVIDIA H200 (Vulkan, driver ...)", "cpu: there is no GPU"; it stays empty where nothing
// needs saying. A GPU that is there but cannot be used is also a fallback of the backend.
// Errors: kUsage for an unknown name, listing the known ones; kUnsupported for gpu in a program without it.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const ModelSpec& spec,
                                              const Weights& weights, const BackendOptions& options,
                                              std::string* choice = nullptr);

}  // namespace doppler
