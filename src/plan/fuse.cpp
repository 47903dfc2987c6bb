#include "plan/fuse.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace doppler {
namespace {

// Neighbouring matmuls of the same input become one op with several outputs: one pass over the activations,
// one parallel region. Nothing is swallowed. (q, k, v; gate and up where they are not fused further.)
void group_matmuls(Plan& plan) {
  std::vector<Op> ops;
  for (Op& op : plan.ops) {
    Op* last = ops.empty() ? nullptr : &ops.back();
    if (last == nullptr || op.kind != OpKind::kMatmul || last->kind != OpKind::kMatmul ||
        last->inputs != op.inputs) {
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

std::size_t count_readers(const Plan& plan, ValueId id) {
  std::size_t readers = 0;
  for (const Op& op : plan.ops)
    readers += static_cast<std::size_t>(std::count(op.inputs.begin(), op.inputs.end(), id));
  return readers;
}

// matmul gate, matmul up, gated -> one op that never writes gate and up to memory.
void fuse_gated_ffn(Plan& plan) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto is_part = [&](std::size_t at, ValueId out) {
      const Op& op = plan.ops[at];
      return op.kind == OpKind::kMatmul && op.outputs.size() == 1 && op.outputs[0] == out;
    };
    Op& op = plan.ops[i];
    const bool fits = op.kind == OpKind::kGated && i >= 2 && ops.size() >= 2 &&
                      is_part(i - 2, op.inputs[0]) && is_part(i - 1, op.inputs[1]) &&
                      plan.ops[i - 2].inputs == plan.ops[i - 1].inputs &&
                      count_readers(plan, op.inputs[0]) == 1 && count_readers(plan, op.inputs[1]) == 1;
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

constexpr std::array<FusionPass, 2> kPasses = {{
    {"gated_ffn", "gate, up and activation in one op", fuse_gated_ffn},
    {"group_matmuls", "matmuls of one input in one op", group_matmuls},
}};

}  // namespace

std::span<const FusionPass> all_fusion_passes() {
  return kPasses;
}

namespace {

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

Status fuse_plan(Plan& plan, const Weights& weights, std::span<const std::string_view> passes,
                 std::span<const std::string> disabled) {
  for (const std::string& name : disabled) DOPPLER_TRY(find_pass(name));
  for (const std::string_view name : passes) {
    DOPPLER_ASSIGN(const FusionPass* pass, find_pass(name));
    if (std::find(disabled.begin(), disabled.end(), name) != disabled.end()) continue;
    pass->apply(plan);
    plan.passes.emplace_back(name);
  }
  return check_plan(plan, weights);
}

}  // namespace doppler
