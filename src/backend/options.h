// BackendOptions: how a backend is to run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_type.h"
#include "backend/shader_edit.h"
#include "base/result.h"
#include "doppler/options.h"
#include "model/spec.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler {

// How a GPU is opened and prepared; no user's choice, for those see doppler/options.h.
struct GpuSetup {
  bool software = true;       // may choose a software adapter if there is nothing else
  bool tune = true;           // measures kernels at the first load on an adapter, uses the fastest later
  bool self_check = true;     // kernels are compared with the CPU before their first use on an adapter
  bool no_subgroups = false;  // as if the adapter lacked them
  bool no_f16 = false;
  bool no_tiles = false;     // as if it had no tensor cores
  bool plain_tiles = false;  // as if it had some: loops stand for them, for tests
  // Of one buffer of weights, for tests: the adapter's own limit holds as well.
  std::uint64_t most_shard_bytes = UINT64_MAX;
  std::uint32_t most_workgroup_bytes = UINT32_MAX;  // the same of a workgroup's memory
  // A workgroup of a product may read so much of what attention's splits leave; at positions where it would
  // be more a kernel of its own puts them together. It costs 2 to 3 us, in which a workgroup reads 80 bytes a
  // nanosecond (H100). Tests take less.
  std::uint64_t most_split_bytes = 160 << 10;
  std::vector<ShaderEdit> shader_edits =
      {};  // of all kernels, only where faults are put in (diagnosis/faults/faults.h)
};

class Fault;          // backend/fault.h
class SharedWeights;  // backend/shared_weights.h

struct BackendOptions {
  std::size_t threads = 0;       // 0: as many as this process may run at once
  std::uint64_t context = 4096;  // positions per slot
  std::uint32_t slots = 1;
  // Positions of all slots together in layers that keep the whole context: the memory that sequences share,
  // a context at least. 0: as many as the slots may use, or, where these do not fit, as do; the backend's
  // options() tell the number.
  std::uint64_t cache_positions = 0;
  // Tokens in one step at most; longer prompts come in several. Nothing: the backend chooses, and its
  // options() tell the number.
  std::optional<std::uint32_t> max_step_tokens;
  // A slot's sequence can be cut back by so many tokens even where sliding windows keep rings, which are
  // longer for it; by a step's tokens in any case.
  std::uint32_t cut_tokens = 0;
  std::vector<std::string> disabled_passes;
  // How keys and values are stored; nothing: f32 if weights are floats or `exact` is set, else f16 (a cache
  // as fine as the products). The reference backend always takes f32.
  std::optional<KvType> kv_type;
  // Multiplies quantised weights with float activations instead of rounding those to 8 bits: slower.
  bool exact = false;
  // The cpu backend's kernels by name, for comparing instruction sets; empty: the best the machine has.
  std::string cpu_target;
  GpuOptions gpu;
  GpuSetup gpu_setup;
  // Weights that several backends of one model share in a process; null: none.
  std::shared_ptr<SharedWeights> shared;
  // Only where faults are put in on purpose (diagnosis/faults/faults.h): a function that rewrites the plan as
  // soon as it is built, and the fault while it runs, which outlives the backend.
  std::function<void(Plan&)> change_plan;
  Fault* fault = nullptr;
};

// Tokens of a step at most: what is asked for, else 256, the choice of the backends that run on the host.
inline std::uint32_t step_tokens(const BackendOptions& options) {
  return options.max_step_tokens.value_or(256);
}

// Tokens that the rings of windows have room for behind one that is still to attend: see kv_capacity().
inline std::uint32_t ring_reach(const BackendOptions& options) {
  return std::max(step_tokens(options), options.cut_tokens);
}

// The checks of every backend's options: a context of 1 to 2^31 - 1 positions (they are int32), at least one
// slot and one token in a step. Errors: kUsage.
Status check_backend_options(const BackendOptions& options);

// The unfused plan that a backend of these options runs. Errors: as build_plan.
Result<Plan> plan_for(const ModelSpec& spec, const Weights& weights, const BackendOptions& options);

// The type of the cpu backend's cache under these options.
KvType choose_kv_type(const BackendOptions& options, const Plan& plan, const Weights& weights);

}  // namespace doppler
