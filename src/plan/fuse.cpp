#include "plan/fuse.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "plan/groups.h"

namespace doppler {
namespace {

// Neighbouring matmuls of the same input become one op with several outputs: one pass over the activations,
// one parallel region. Nothing is swallowed. (q, k, v; gate and up where they are not fused further.)
void group_matmuls(Plan& plan) {
  std::vector<Op> ops;
  for (Op& op : plan.ops) {
    Op* last = ops.empty() ? nullptr : &ops.back();
    const bool product = op.kind == OpKind::kMatmul || op.kind == OpKind::kExpertMatmul;
    if (last == nullptr || !product || last->kind != op.kind || last->inputs != op.inputs) {
      ops.push_back(std::move(op));
      continue;
    }
    last->biases.resize(last->weights.size(), kNoWeight);
    op.biases.resize(op.weights.size(), kNoWeight);
    last->outputs.insert(last->outputs.end(), op.outputs.begin(), op.outputs.end());
    last->weights.insert(last->weights.end(), op.weights.begin(), op.weights.end());
    last->biases.insert(last->biases.end(), op.biases.begin(), op.biases.end());
  }
  plan.ops = std::move(ops);
}

// matmul gate, matmul up, gated -> one op that never writes gate and up to memory.
void fuse_gated_ffn(Plan& plan) {
  const Readers readers(plan);
  std::vector<Op> ops;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto is_part = [&](std::size_t at, ValueId out) {
      const Op& op = plan.ops[at];
      return op.kind == OpKind::kMatmul && op.outputs.size() == 1 && op.outputs[0] == out &&
             readers.of(out).size() == 1;
    };
    Op& op = plan.ops[i];
    const bool fits = op.kind == OpKind::kGated && std::get<GatedParams>(op.params).is_plain() &&
                      op.inputs.size() == 2 && i >= 2 && ops.size() >= 2 && is_part(i - 2, op.inputs[0]) &&
                      is_part(i - 1, op.inputs[1]) && plan.ops[i - 2].inputs == plan.ops[i - 1].inputs;
    if (!fits) {
      ops.push_back(op);
      continue;
    }
    const Op &gate = plan.ops[i - 2], &up = plan.ops[i - 1];
    Op fused = op;
    fused.kind = OpKind::kGatedMatmul;
    fused.inputs = gate.inputs;
    fused.weights = {gate.weights[0], up.weights[0]};
    if (!gate.biases.empty() || !up.biases.empty()) {
      fused.biases = {gate.biases.empty() ? kNoWeight : gate.biases[0],
                      up.biases.empty() ? kNoWeight : up.biases[0]};
    }
    fused.emits = {gate.outputs[0], up.outputs[0]};
    ops.resize(ops.size() - 2);
    ops.push_back(std::move(fused));
  }
  plan.ops = std::move(ops);
}

// Ops whose results nothing reads but a tap are left out, from the last to the first.
void keep_read_values(Plan& plan) {
  std::vector<bool> read(plan.values.size());
  read[plan.logits] = true;
  std::vector<Op> ops;
  for (auto op = plan.ops.rbegin(); op != plan.ops.rend(); ++op) {
    if (std::ranges::none_of(op->outputs, [&](ValueId id) { return read[id]; })) continue;
    for (const ValueId id : op->inputs) read[id] = true;
    ops.push_back(std::move(*op));
  }
  std::ranges::reverse(ops);
  plan.ops = std::move(ops);
}

constexpr auto kPasses = std::to_array<FusionPass>({
    // On the plan itself.
    {kPassReadValues, "values that only taps read are not computed", keep_read_values, nullptr},
    {kPassGatedFfn, "gate, up and activation in one op", fuse_gated_ffn, nullptr},
    {kPassGroupMatmuls, "matmuls of one input in one op", group_matmuls, nullptr},
    {kPassLateRows, "behind the last attention only rows whose logits are wanted", nullptr, nullptr},
    // A GPU's kernels for many tokens.
    {kPassBatchGemm, "products of many tokens in tiles", nullptr, nullptr},
    {kPassBatchHalves, "products of many tokens on tensor cores", nullptr, nullptr},
    {kPassBatchNorm, "sums, norms and 8-bit blocks in one kernel", nullptr, match_sum},
    {kPassBatchGated, "gate, up and 8-bit blocks in one kernel", nullptr, match_gated},
    {kPassBatchRope, "norms, turns and the cache's new rows in one kernel", nullptr, match_turns},
    {kPassBatchAttention, "attention of many tokens in tiles", nullptr, nullptr},
    // A GPU's kernels for one token.
    {kPassDecodeAttention, "norms, turns, append and attention in splits, put together by its product",
     nullptr, match_attention},
    {kPassDecodeHead, "sum, norm, logits and the likeliest token in one kernel", nullptr, match_head},
    {kPassDecodeProduct, "sum, norm, products and activation in one kernel", nullptr, match_product},
    {kPassDecodeRoute, "experts chosen and weighed in one kernel", nullptr, match_route},
    {kPassDecodeExperts, "experts' gates, ups and activations in one kernel, their downs and sum in another",
     nullptr, match_experts},
    {kPassDecodeDelta, "convolution, norms, steps and decays before a delta rule in one kernel", nullptr,
     match_delta},
    {kPassDecodeGatedNorm, "norms of heads, activation(gate) * norm and 8-bit blocks in one kernel", nullptr,
     match_gated_norm},
});

Result<const FusionPass*> find_pass(std::string_view name) {
  std::vector<std::string_view> known;
  for (const FusionPass& pass : kPasses) {
    if (pass.name == name) return &pass;
    known.push_back(pass.name);
  }
  return fail(ErrorCode::kUsage, "There is no fusion pass {}. Passes are {}.", printable(name),
              fmt::join(known, ", "));
}

}  // namespace

Readers::Readers(const Plan& plan) : readers_(plan.values.size()) {
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (const ValueId id : plan.ops[i].inputs) readers_[id].push_back(i);
  }
}

bool Readers::are_within(ValueId id, const OpGroup& group) const {
  return std::ranges::all_of(readers_[id], [&](std::size_t op) { return group.contains(op); });
}

std::span<const FusionPass> all_fusion_passes() {
  return kPasses;
}

Status fuse_plan(Plan& plan, const Weights& weights, std::span<const std::string_view> passes,
                 std::span<const std::string> disabled) {
  for (const std::string& name : disabled) DOPPLER_TRY(find_pass(name));
  for (const std::string_view name : passes) {
    DOPPLER_ASSIGN(const FusionPass* pass, find_pass(name));
    if (std::find(disabled.begin(), disabled.end(), name) != disabled.end()) continue;
    if (pass->rewrite != nullptr) pass->rewrite(plan);
    plan.passes.emplace_back(name);
  }
  return check_plan(plan, weights);
}

bool has_pass(const Plan& plan, std::string_view name) {
  return std::ranges::find(plan.passes, name) != plan.passes.end();
}

Result<std::vector<OpGroup>> group_ops(const Plan& plan, std::span<const std::string_view> passes,
                                       const TakesGroup& takes) {
  const Readers readers(plan);
  std::vector<const FusionPass*> matching;
  for (const std::string_view name : passes) {
    DOPPLER_ASSIGN(const FusionPass* pass, find_pass(name));
    if (pass->match != nullptr && has_pass(plan, name)) matching.push_back(pass);
  }
  std::vector<OpGroup> groups;
  for (std::size_t i = 0; i < plan.ops.size(); i += groups.back().count) {
    std::optional<OpGroup> taken;
    for (const FusionPass* pass : matching) {
      std::optional<OpGroup> group = pass->match(plan, readers, i);
      if (!group) continue;
      group->pass = pass->name;
      DOPPLER_ASSIGN(const bool takes_it, takes(*group));
      if (!takes_it) continue;
      taken = std::move(group);
      break;
    }
    if (!taken) {
      taken.emplace();
      taken->first = i;
      DOPPLER_TRY(takes(*taken));
    }
    groups.push_back(std::move(*taken));
  }
  return groups;
}

}  // namespace doppler
