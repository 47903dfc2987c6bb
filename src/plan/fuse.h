// Fusion: which ops of a plan a backend runs as one. Every pass is a row of one table. Some rewrite the
// plan's ops into ops that do more; stages that such an op swallows stay readable through its emitting
// variant (Op::emits). Others find groups of neighbouring ops for which a program has kernels of its own,
// while the plan stays as it is. BackendOptions::disabled_passes names rows of this table, whatever the
// backend.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

// The part that an op plays in a group.
enum class Part : std::uint8_t {
  kPostNorm,  // norm of a branch, before
  kAdd,       // the sum of the residual stream and the branch
  kSelect,    // the rows whose logits are wanted
  kNorm,      // norm of the sum
  kProduct,
  kGated,  // activation of the product
  kSoftcap,
  kQNorm,
  kKNorm,
  kQRope,
  kKRope,
  kAttention,
  kOutput,  // product of the attention's result
  kChoose,
  kWeigh,
  kExpertsIn,   // gates and ups of experts
  kExpertsOut,  // and their downs
  kExpertSum,
  kActivation,  // of a value by itself
  kTimeStep,
  kDecay,
  kConvolution,
  kQColumns,
  kKColumns,
  kVColumns,
  kCount,
};

// Neighbouring ops [first, first + count) that run as one.
struct OpGroup {
  std::string_view pass;  // that found them; empty: an op by itself
  std::size_t first = 0, count = 1;

  bool has(Part part) const { return index(part) != kNone; }
  // The op in the plan; nothing where the group has no such part.
  std::size_t index(Part part) const { return parts[static_cast<std::size_t>(part)]; }
  const Op* op(const Plan& plan, Part part) const { return has(part) ? &plan.ops[index(part)] : nullptr; }
  bool contains(std::size_t op) const { return op >= first && op < first + count; }

  static constexpr std::size_t kNone = SIZE_MAX;
  std::array<std::size_t, static_cast<std::size_t>(Part::kCount)> parts = filled();

 private:
  static constexpr std::array<std::size_t, static_cast<std::size_t>(Part::kCount)> filled() {
    std::array<std::size_t, static_cast<std::size_t>(Part::kCount)> none = {};
    none.fill(kNone);
    return none;
  }
};

// The ops that read each value, by index; an op that reads a value twice is there twice.
class Readers {
 public:
  explicit Readers(const Plan& plan);
  std::span<const std::size_t> of(ValueId id) const { return readers_[id]; }
  bool are_within(ValueId id, const OpGroup& group) const;

 private:
  std::vector<std::vector<std::size_t>> readers_;
};

// A pass with neither function only chooses kernels for single ops.
struct FusionPass {
  std::string_view name;
  std::string_view does;
  void (*rewrite)(Plan& plan) = nullptr;
  // The longest group that begins with the op `first`.
  std::optional<OpGroup> (*match)(const Plan& plan, const Readers& readers, std::size_t first) = nullptr;
};

inline constexpr std::string_view kPassReadValues = "read_values", kPassGatedFfn = "gated_ffn",
                                  kPassGroupMatmuls = "group_matmuls", kPassLateRows = "late_rows",
                                  kPassBatchGemm = "batch_gemm", kPassBatchHalves = "batch_halves",
                                  kPassBatchNorm = "batch_norm", kPassBatchGated = "batch_gated",
                                  kPassBatchRope = "batch_rope", kPassBatchAttention = "batch_attention",
                                  kPassDecodeAttention = "decode_attention", kPassDecodeHead = "decode_head",
                                  kPassDecodeProduct = "decode_product", kPassDecodeRoute = "decode_route",
                                  kPassDecodeExperts = "decode_experts", kPassDecodeDelta = "decode_delta",
                                  kPassDecodeGatedNorm = "decode_gated_norm";

std::span<const FusionPass> all_fusion_passes();

// Switches on the named passes but for those in `disabled`: applies the rewrites in order, notes all in
// Plan::passes, and checks the result. Errors: kUsage for a name that is no pass, listing them.
Status fuse_plan(Plan& plan, const Weights& weights, std::span<const std::string_view> passes,
                 std::span<const std::string> disabled);

bool has_pass(const Plan& plan, std::string_view name);

// Cuts the plan into groups of the named passes, as far as they are on. At each op, `takes` is asked for each
// pass that matches, in their order, until it takes the group; then for the op by itself, which it takes in
// any case. It is called in the order of the plan, so that it may build what it takes.
using TakesGroup = std::function<Result<bool>(const OpGroup& group)>;
Result<std::vector<OpGroup>> group_ops(const Plan& plan, std::span<const std::string_view> passes,
                                       const TakesGroup& takes);

}  // namespace doppler
