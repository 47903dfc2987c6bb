#include "backend/gpu/batch_groups.h"

#include <algorithm>
#include <array>

namespace doppler::gpu {
namespace {

constexpr std::array<std::string_view, 3> kBatchPasses = {kPassBatchNorm, kPassBatchGated, kPassBatchRope};

// Bindings of rope_append.wgsl with everything emitted.
constexpr std::uint32_t kRopeBindings = 11;

void set_blocks(const Context& context, BatchGroup& group, ValueId id) {
  const ReadAs read = read_as(context, id);
  if (read.blocks) group.blocks = id;
  group.floats = read.floats || !read.blocks;
  if (!group.floats) group.swallowed.push_back(id);
}

BatchGroup annotated(const Context& context, const OpGroup& group) {
  BatchGroup made;
  static_cast<OpGroup&>(made) = group;
  const Plan& plan = context.plan;
  if (const Op* post = group.op(plan, Part::kPostNorm)) made.swallowed.push_back(post->outputs[0]);
  for (const Part part : {Part::kNorm, Part::kGated}) {
    if (const Op* op = group.op(plan, part)) set_blocks(context, made, op->outputs[0]);
  }
  // The rotated keys go to the cache.
  for (const Part part : {Part::kQNorm, Part::kKNorm, Part::kKRope}) {
    if (const Op* op = group.op(plan, part)) made.swallowed.push_back(op->outputs[0]);
  }
  return made;
}

// rope_append.wgsl reads q, k and v as parts of one row: the outputs of one product.
bool can_turn(const Context& context, const OpGroup& group) {
  const Plan& plan = context.plan;
  const Op& attention = plan.ops[group.first + group.count];
  const auto from = [&](Part norm, Part rope) {
    return group.op(plan, group.has(norm) ? norm : rope)->inputs[0];
  };
  const ValueId parts[] = {from(Part::kQNorm, Part::kQRope), from(Part::kKNorm, Part::kKRope),
                           attention.inputs[2]};
  const bool one_product = std::ranges::any_of(plan.ops, [&](const Op& op) {
    return std::ranges::all_of(parts, [&](ValueId id) { return std::ranges::count(op.outputs, id) == 1; });
  });
  return one_product && std::get<AttentionParams>(attention.params).head_dim % 2 == 0 &&
         context.device->limits().storage_buffers >= kRopeBindings;
}

// Whether a branch's norm and sum are in one kernel for single tokens, too, so that a token has the same bits
// alone and in company: with the norm that follows, before which rows may be selected.
bool is_one_for_single_tokens(const Plan& plan, const OpGroup& group) {
  const Op *post = group.op(plan, Part::kPostNorm), *norm = group.op(plan, Part::kNorm);
  if (post == nullptr) return true;
  const std::size_t next = group.first + group.count;
  if (norm == nullptr) return next < plan.ops.size() && plan.ops[next].kind == OpKind::kSelect;
  return std::get<NormParams>(post->params).eps == std::get<NormParams>(norm->params).eps;
}

bool pays(const Context& context, const OpGroup& group) {
  if (group.pass == kPassBatchRope) return can_turn(context, group);
  if (group.pass == kPassBatchNorm && !is_one_for_single_tokens(context.plan, group)) return false;
  // An op alone that leaves no blocks gains nothing.
  return group.count > 1 || annotated(context, group).blocks;
}

}  // namespace

std::vector<std::size_t> BatchGroups::times() const {
  std::vector<std::size_t> times;
  for (const std::size_t group : of_op) times.push_back(groups[group].first);
  return times;
}

Result<BatchGroups> make_batch_groups(const Context& context) {
  DOPPLER_ASSIGN(const std::vector<OpGroup> found,
                 group_ops(context.plan, kBatchPasses, [&](const OpGroup& group) -> Result<bool> {
                   return group.pass.empty() || pays(context, group);
                 }));
  BatchGroups made;
  for (const OpGroup& group : found) {
    made.of_op.insert(made.of_op.end(), group.count, made.groups.size());
    made.groups.push_back(annotated(context, group));
  }
  return made;
}

ReadAs read_as(const Context& context, ValueId id) {
  ReadAs read;
  for (const Op& op : context.plan.ops) {
    if (std::ranges::count(op.inputs, id) == 0) continue;
    if (op.kind != OpKind::kMatmul) {
      read.floats = true;
      continue;
    }
    for (const WeightId weight : op.weights) {
      const bool blocks = format_of(context.weights[weight].dtype).quantised() && !context.options.exact;
      (blocks ? read.blocks : read.floats) = true;
    }
  }
  return read;
}

}  // namespace doppler::gpu
