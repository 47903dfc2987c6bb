// Backend: executes a plan, step by step, with its own KV cache. Three exist or will: reference (the oracle),
// cpu, gpu.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cache_access.h"
#include "backend/kv_type.h"
#include "backend/shader_edit.h"
#include "backend/tap.h"
#include "base/result.h"
#include "doppler/types.h"
#include "model/spec.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler {

// Some tokens of one or several sequences. The vectors are parallel, one entry per token. A slot is a place
// for a sequence in the KV cache; the tokens of a slot come in order and continue where its cache ends.
struct StepInput {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> slots;
  std::vector<std::uint8_t> wants_logits;
  std::size_t size() const { return ids.size(); }
  void add(std::int32_t id, std::uint64_t position, std::uint32_t slot, bool logits) {
    ids.push_back(id);
    positions.push_back(static_cast<std::int32_t>(position));
    slots.push_back(static_cast<std::int32_t>(slot));
    wants_logits.push_back(logits ? 1 : 0);
  }
};

// What only the gpu backend looks at.
struct GpuOptions {
  std::string adapter;              // part of its name, or its number; empty: the best real GPU
  std::uint32_t submit_tokens = 8;  // tokens generated in one submission
  bool software = true;             // may run on a software adapter where there is no real one
  bool checked = false;             // kernels check every access against their buffers
  bool tune = true;           // measures kernels at the first load on an adapter, uses the fastest later
  bool poison = false;        // buffers begin as NaN
  bool no_subgroups = false;  // as if the adapter lacked them
  bool self_check = true;     // kernels are compared with the CPU before their first use on an adapter
  std::uint64_t most_shard_bytes =
      UINT64_MAX;                        // of one buffer of weights, for tests: the adapter's limit is kept
  std::vector<ShaderEdit> shader_edits;  // only where faults are put in (diagnosis/faults/faults.h)
};

class Fault;          // backend/fault.h
class SharedWeights;  // backend/shared_weights.h

struct BackendOptions {
  std::size_t threads = 0;       // 0: one per core
  std::uint64_t context = 4096;  // positions per slot
  std::uint32_t slots = 1;
  std::uint32_t max_step_tokens = 256;  // tokens in one step; longer prompts come in several
  std::vector<std::string> disabled_passes;
  // How keys and values are stored; nothing: f32 if weights are floats or `exact` is set, else f16 (a cache
  // as fine as the products). The reference backend always takes f32.
  std::optional<KvType> kv_type;
  // Multiplies quantised weights with float activations instead of rounding those to 8 bits: slower.
  bool exact = false;
  // The cpu backend's kernels by name, for comparing instruction sets; empty: the best the machine has.
  std::string cpu_target;
  GpuOptions gpu;
  // What several backends of one model share in a process; null: nothing.
  std::shared_ptr<SharedWeights> shared;
  // Only where faults are put in on purpose (diagnosis/faults/faults.h). What rewrites the plan as soon as it
  // is built, and what goes wrong while it runs; the latter outlives the backend.
  std::function<void(Plan&)> change_plan;
  Fault* fault = nullptr;
};

// The unfused plan that a backend of these options runs. Errors: as build_plan.
Result<Plan> plan_for(const ModelSpec& spec, const Weights& weights, const BackendOptions& options);

// Told how long each op of a step took, in the plan's order; ops that a backend runs as one come as the first
// of them.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_op(std::size_t index, double seconds) = 0;
};

// The type of the cpu backend's cache under these options.
KvType choose_kv_type(const BackendOptions& options, const Plan& plan, const Weights& weights);

// How coarse a backend's arithmetic is on purpose; whoever compares it allows for that.
enum class Rounding : std::uint8_t {
  kFloat,      // float32 throughout
  kHalfCache,  // keys and values in f16
  kEightBits,  // activations, or keys and values, in blocks of 8-bit numbers
};

// A sequence that a backend continues by itself: it chooses each token where the logits are and feeds it to
// the next step, so that nothing waits for the host between tokens.
struct Continuation {
  std::uint32_t slot = 0;
  TokenId id = 0;                             // the newest token, which the cache does not hold yet
  std::uint64_t most = 0;                     // tokens to generate at most; the context bounds them too
  const GenerateOptions* sampling = nullptr;  // outlives the continuation
  std::span<const TokenId> history;           // the whole sequence, with `id`; read at the beginning only
  std::uint64_t draw = 0;                     // the number of the first draw, as Sampler::sample counts them
  TokenId pad_id = -1;                        // a token that never wins; -1: there is none
  Tap* tap = nullptr;  // called from next_tokens(), for each token it gives in order; tokens are the same
                       // with and without
};

// The processor that a backend computes on, where it is not the host's own.
struct DeviceInfo {
  std::string name;    // "NVIDIA H200"
  std::string kind;    // "discrete", "integrated", "software", "unknown"
  std::string api;     // "Vulkan"
  std::string driver;  // "NVIDIA 580.159.04"
  bool software() const { return kind == "software"; }
  std::string describe() const;  // "NVIDIA H200 (Vulkan, driver NVIDIA 580.159.04)"
};

// What a backend has asked of its device so far, exactly.
struct DeviceCounters {
  std::uint64_t submits = 0, dispatches = 0;
  std::uint64_t read_backs = 0, read_back_bytes = 0;  // that the host has waited for
  std::uint64_t written_bytes = 0;
};

// Which implementation computes a kind of op, and why that one.
struct VariantRow {
  std::string what;     // "decode: matmul q_proj+k_proj+v_proj"
  std::string variant;  // "gemv.wgsl R=8 ..."
  std::string why;
};

// One kernel of a step of one token: all its calls together.
struct KernelTime {
  std::string what;    // the op that it computes, as VariantRow names it
  std::string kernel;  // "gemv.wgsl"
  std::uint64_t calls = 0;
  double seconds = 0;  // of all calls
  std::uint64_t bytes =
      0;  // weights and cache that all calls read, as they lie on the device; 0: activations
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual const Plan& plan() const = 0;
  // As given, but with the kv_type that was chosen.
  virtual const BackendOptions& options() const = 0;

  virtual Rounding rounding() const { return Rounding::kFloat; }

  // Runs one step; the logits have one row of vocab_size per wanting token, in order, and stay valid until
  // the next step. `tap` may be null. A step that check_step refuses changes nothing.
  virtual Result<std::span<const float>> step(const StepInput& input, Tap* tap) = 0;

  // True where continue_sequence() works with these options, token for token as step() with a Sampler would.
  virtual bool can_continue(const GenerateOptions& /*sampling*/) const { return false; }
  // Begins to continue a slot's sequence; next_tokens() then gives the tokens as they come, some at a time,
  // and nothing at the end (Continuation::most, or the context is full). While one continues, no other step
  // may run.
  virtual Status continue_sequence(const Continuation& continuation);
  virtual Result<std::span<const TokenId>> next_tokens();
  // Ends it. The slot's cache then holds `length` tokens: those before, the continuation's `id`, and of those
  // that next_tokens() gave all but the last or fewer, as the caller stopped.
  virtual Status stop_sequence(std::uint64_t length);

  // Nothing for backends that compute on the host.
  virtual std::optional<DeviceInfo> device() const { return std::nullopt; }
  virtual std::optional<DeviceCounters> counters() const { return std::nullopt; }
  // How fast the device reads its own memory: bytes per second, measured now over `bytes` or, where it has
  // less to give, over fewer; the first call takes the memory. Nothing without a device.
  virtual Result<std::optional<double>> measure_read_bandwidth(std::uint64_t /*bytes*/) {
    return std::optional<double>();
  }
  // What runs for each kind of op, in the plan's order. Empty where there is no choice to tell of.
  virtual Result<std::vector<VariantRow>> describe() { return std::vector<VariantRow>(); }
  // Measures the kernels of a step of one token at the end of slot 0's sequence, and forgets the sequence.
  // Empty for backends that cannot tell.
  virtual Result<std::vector<KernelTime>> time_kernels() { return std::vector<KernelTime>(); }

  // Has every later step timed, until it is given null. Backends that cannot tell never call it.
  virtual void observe(OpObserver* /*observer*/) {}

  // Tokens in a slot's cache.
  virtual std::uint64_t length(std::uint32_t slot) const = 0;
  // Forgets a slot's sequence.
  virtual void clear(std::uint32_t slot) = 0;
  // Null for backends whose cache cannot be reached.
  virtual CacheAccess* cache() { return nullptr; }
  // Bytes of KV cache and activations that are allocated.
  virtual std::uint64_t memory_bytes() const = 0;
};

// Everything a backend relies on: equal lengths, 1..max_step_tokens tokens, ids inside the vocabulary, slots
// that exist, positions that continue each slot (`lengths`) and stay inside the context. Errors: kMismatch
// for ids outside the vocabulary, kLimit at the end of the context, else kUsage.
Status check_step(const StepInput& input, const Plan& plan, const BackendOptions& options,
                  std::span<const std::uint64_t> lengths);

// What every backend asks of its options: a context of 1 to 2^31 - 1 positions (they are int32), at least one
// slot and one token in a step. Errors: kUsage.
Status check_backend_options(const BackendOptions& options);

struct BackendInfo {
  std::string_view name;
  std::string_view what;
  // Plan and weights must outlive the backend's use of them: weights are read in place.
  Result<std::unique_ptr<Backend>> (*make)(const ModelSpec& spec, const Weights& weights,
                                           const BackendOptions& options);
};
std::span<const BackendInfo> all_backends();

// What stands for the gpu backend in a program without it: kUnsupported.
Error no_gpu_support();

// "auto" is gpu where there is a real GPU that takes the model, else cpu; a software adapter only if
// GpuOptions::adapter names it. `choice` (may be null) becomes what was chosen and why, in a line for people:
// "gpu: NVIDIA H200 (Vulkan, driver ...)", "cpu: there is no GPU"; it stays empty where nothing needs saying.
// Errors: kUsage for an unknown name, listing the known ones; kUnsupported for gpu in a program without it.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const ModelSpec& spec,
                                              const Weights& weights, const BackendOptions& options,
                                              std::string* choice = nullptr);

}  // namespace doppler
