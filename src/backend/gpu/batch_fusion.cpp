#include "backend/gpu/batch_fusion.h"

#include <algorithm>
#include <array>

namespace doppler::gpu {
namespace {

constexpr std::array<BatchPass, 5> kPasses = {{
    {kPassGemm, "products of many tokens in tiles"},
    {kPassNorm, "sums, norms and 8-bit blocks in one kernel"},
    {kPassGated, "gate, up and 8-bit blocks in one kernel"},
    {kPassRope, "norms, turns and the cache's new rows in one kernel"},
    {kPassAttention, "attention of many tokens in tiles"},
}};

// Bindings of rope_append.wgsl with everything emitted.
constexpr std::uint32_t kRopeBindings = 11;

class Grouper {
 public:
  explicit Grouper(const Context& context) : context_(context), plan_(context.plan) {}

  BatchGroups run() {
    BatchGroups made;
    made.of_op.resize(plan_.ops.size());
    for (std::size_t i = 0; i < plan_.ops.size();) {
      BatchGroup group;
      if (has_pass(context_.options, kPassNorm)) group = norm(i);
      if (group.kind == BatchGroup::Kind::kSingle && has_pass(context_.options, kPassGated)) group = gated(i);
      if (group.kind == BatchGroup::Kind::kSingle && has_pass(context_.options, kPassRope)) group = rope(i);
      group.first = i;
      for (std::size_t k = 0; k < group.count; ++k) made.of_op[i + k] = made.groups.size();
      i += group.count;
      made.groups.push_back(std::move(group));
    }
    return made;
  }

 private:
  const Op* op(std::size_t i, OpKind kind) const {
    return i < plan_.ops.size() && plan_.ops[i].kind == kind ? &plan_.ops[i] : nullptr;
  }
  std::size_t count_readers(ValueId id) const {
    std::size_t readers = 0;
    for (const Op& o : plan_.ops) readers += static_cast<std::size_t>(std::ranges::count(o.inputs, id));
    return readers;
  }
  // A norm of whole rows, which the kernel reads four values at a time.
  const Op* row_norm(std::size_t i) const {
    const Op* norm = op(i, OpKind::kRmsNorm);
    if (norm == nullptr) return nullptr;
    const Value& v = plan_.values[norm->outputs[0]];
    return v.heads == 1 && v.width % 4 == 0 ? norm : nullptr;
  }
  void set_blocks(BatchGroup& group, ValueId id) const {
    const Readers readers = readers_of(context_, id);
    if (readers.blocks) group.blocks = id;
    group.floats = readers.floats || !readers.blocks;
    if (!group.floats) group.swallowed.push_back(id);
  }

  BatchGroup norm(std::size_t i) const {
    BatchGroup group;
    std::size_t next = i;
    const Op* post = row_norm(next);
    const Op* add = op(post != nullptr ? next + 1 : next, OpKind::kAdd);
    if (post != nullptr && add != nullptr && add->inputs[1] == post->outputs[0] &&
        add->inputs[0] != post->outputs[0] && count_readers(post->outputs[0]) == 1) {
      group.post = next++;
      group.swallowed.push_back(post->outputs[0]);
    } else if (post != nullptr) {
      add = nullptr;
    }
    if (add != nullptr && plan_.values[add->outputs[0]].width % 4 == 0) {
      group.add = next++;
    } else if (add != nullptr) {
      return {};
    }
    const Op* own = row_norm(next);
    if (own != nullptr && (add == nullptr || own->inputs[0] == add->outputs[0])) {
      group.norm = next++;
      set_blocks(group, own->outputs[0]);
    }
    group.count = next - i;
    // An op alone that leaves no blocks gains nothing.
    if (group.count < 2 && !group.blocks) return {};
    group.kind = BatchGroup::Kind::kNorm;
    return group;
  }

  BatchGroup gated(std::size_t i) const {
    BatchGroup group;
    const Op* own = op(i, OpKind::kGated);
    if (own == nullptr || plan_.values[own->outputs[0]].width % 4 != 0) return group;
    set_blocks(group, own->outputs[0]);
    if (group.blocks) group.kind = BatchGroup::Kind::kGated;
    return group;
  }

  BatchGroup rope(std::size_t i) const {
    BatchGroup group;
    std::size_t next = i;
    const Op *q_norm = op(next, OpKind::kRmsNorm), *k_norm = op(next + 1, OpKind::kRmsNorm);
    if (q_norm != nullptr && k_norm != nullptr) next += 2;
    const Op *q = op(next, OpKind::kRope), *k = op(next + 1, OpKind::kRope);
    const Op* attention = op(next + 2, OpKind::kAttention);
    if (q == nullptr || k == nullptr || attention == nullptr || attention->inputs[0] != q->outputs[0] ||
        attention->inputs[1] != k->outputs[0])
      return {};
    const auto &qp = std::get<RopeParams>(q->params), &kp = std::get<RopeParams>(k->params);
    const auto& a = std::get<AttentionParams>(attention->params);
    if (qp.table != kp.table || qp.layout != kp.layout || a.head_dim % 2 != 0 ||
        context_.device->limits().storage_buffers < kRopeBindings)
      return {};
    if (next != i) {
      const auto &qn = std::get<NormParams>(q_norm->params), &kn = std::get<NormParams>(k_norm->params);
      if (q->inputs[0] != q_norm->outputs[0] || k->inputs[0] != k_norm->outputs[0] || qn.eps != kn.eps)
        return {};
      group.q_norm = i;
      group.k_norm = i + 1;
      group.swallowed = {q_norm->outputs[0], k_norm->outputs[0]};
    }
    // The kernel reads q, k and v as parts of one row: the outputs of one product.
    const ValueId q_from = group.q_norm ? q_norm->inputs[0] : q->inputs[0];
    const ValueId k_from = group.k_norm ? k_norm->inputs[0] : k->inputs[0];
    const bool one_product = std::ranges::any_of(plan_.ops, [&](const Op& o) {
      const auto makes = [&](ValueId id) { return std::ranges::count(o.outputs, id) == 1; };
      return makes(q_from) && makes(k_from) && makes(attention->inputs[2]);
    });
    if (!one_product) return {};
    group.swallowed.push_back(k->outputs[0]);
    for (const ValueId id : group.swallowed) {
      if (count_readers(id) != 1) return {};
    }
    group.kind = BatchGroup::Kind::kRope;
    group.count = next + 2 - i;
    group.q_rope = next;
    group.k_rope = next + 1;
    group.attention = next + 2;
    return group;
  }

  const Context& context_;
  const Plan& plan_;
};

}  // namespace

std::span<const BatchPass> all_batch_passes() {
  return kPasses;
}

bool is_batch_pass(std::string_view name) {
  return std::ranges::any_of(kPasses, [&](const BatchPass& pass) { return pass.name == name; });
}

bool has_pass(const BackendOptions& options, std::string_view name) {
  return std::ranges::find(options.disabled_passes, name) == options.disabled_passes.end();
}

std::vector<std::size_t> BatchGroups::times() const {
  std::vector<std::size_t> times;
  for (const std::size_t group : of_op) times.push_back(groups[group].first);
  return times;
}

BatchGroups group_ops(const Context& context) {
  return Grouper(context).run();
}

Readers readers_of(const Context& context, ValueId id) {
  Readers readers;
  for (const Op& op : context.plan.ops) {
    if (std::ranges::count(op.inputs, id) == 0) continue;
    if (op.kind != OpKind::kMatmul) {
      readers.floats = true;
      continue;
    }
    for (const WeightId weight : op.weights) {
      const bool blocks = format_of(context.weights[weight].dtype).quantised() && !context.options.exact;
      (blocks ? readers.blocks : readers.floats) = true;
    }
  }
  return readers;
}

}  // namespace doppler::gpu
