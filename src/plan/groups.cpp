#include "plan/groups.h"

namespace doppler {
namespace {

// A group that grows op by op.
class Match {
 public:
  Match(const Plan& plan, const Readers& readers, std::size_t first) : plan_(plan), readers_(readers) {
    group_.first = first;
    group_.count = 0;
  }

  // The op `ahead` places after the group, if it is of that kind.
  const Op* next(OpKind kind, std::size_t ahead = 0) const {
    const std::size_t at = end() + ahead;
    return at < plan_.ops.size() && plan_.ops[at].kind == kind ? &plan_.ops[at] : nullptr;
  }
  // The same for a norm as fused kernels compute it: by the root of the mean square, without a bias.
  const Op* next_plain_norm(std::size_t ahead = 0) const {
    const Op* norm = next(OpKind::kRmsNorm, ahead);
    if (norm == nullptr || !norm->biases.empty() || norm->weights.empty()) return nullptr;
    return std::get<NormParams>(norm->params).kind == NormKind::kRms ? norm : nullptr;
  }
  // Of whole rows, which are loaded four values at a time.
  const Op* next_row_norm(std::size_t ahead = 0) const {
    const Op* norm = next_plain_norm(ahead);
    if (norm == nullptr) return nullptr;
    const Value& v = info(norm->outputs[0]);
    return v.heads == 1 && v.width % 4 == 0 ? norm : nullptr;
  }
  // Of each head, with one weight for all.
  const Op* next_head_norm(std::size_t ahead = 0) const {
    const Op* norm = next_plain_norm(ahead);
    return norm != nullptr && std::get<NormParams>(norm->params).span == NormSpan::kHead ? norm : nullptr;
  }
  const Op* next_plain_sum(std::size_t ahead) const {
    const Op* sum = next(OpKind::kAdd, ahead);
    return sum != nullptr && std::get<AddParams>(sum->params).scale == 1 ? sum : nullptr;
  }
  // activation(gate) * up of two values alike, without anything else.
  const Op* next_plain_gated() const {
    const Op* gated = next(OpKind::kGated);
    const bool plain = gated != nullptr && gated->inputs.size() == 2 &&
                       std::get<GatedParams>(gated->params).is_plain() &&
                       info(gated->inputs[0]).width == info(gated->outputs[0]).width;
    return plain ? gated : nullptr;
  }
  void take(Part part) {
    group_.parts[static_cast<std::size_t>(part)] = end();
    ++group_.count;
  }

  const Value& info(ValueId id) const { return plan_.values[id]; }
  bool is_read_once(ValueId id) const { return readers_.of(id).size() == 1; }
  std::size_t end() const { return group_.first + group_.count; }
  std::size_t count() const { return group_.count; }
  bool has(Part part) const { return group_.has(part); }
  std::optional<OpGroup> done() const { return group_; }

 private:
  const Plan& plan_;
  const Readers& readers_;
  OpGroup group_;
};

bool have_one_epsilon(const Op& a, const Op& b) {
  return std::get<NormParams>(a.params).eps == std::get<NormParams>(b.params).eps;
}

// Takes what match_sum() describes. Of one token, the selection before the norm is nothing to do, and both
// norms are computed together. False where something does not fit.
bool take_sum(Match& m, bool one_token) {
  const Op* post = m.next_row_norm();
  const Op* add = m.next_plain_sum(post != nullptr ? 1 : 0);
  if (post != nullptr && add != nullptr && add->inputs[1] == post->outputs[0] &&
      add->inputs[0] != post->outputs[0] && m.is_read_once(post->outputs[0])) {
    m.take(Part::kPostNorm);
  } else if (post != nullptr) {
    add = nullptr;
  }
  if (add != nullptr && m.info(add->outputs[0]).width % 4 != 0) return false;
  if (add != nullptr) m.take(Part::kAdd);
  const Op* select = one_token ? m.next(OpKind::kSelect) : nullptr;
  if (select != nullptr && add != nullptr && select->inputs[0] != add->outputs[0]) select = nullptr;
  const Op* norm = m.next_row_norm(select != nullptr ? 1 : 0);
  const Op* summed = select != nullptr ? select : add;
  if (norm == nullptr || (summed != nullptr && norm->inputs[0] != summed->outputs[0])) return true;
  if (select != nullptr) m.take(Part::kSelect);
  m.take(Part::kNorm);
  return !one_token || !m.has(Part::kPostNorm) || have_one_epsilon(*post, *norm);
}

bool are_turned_alike(const Op& q, const Op& k) {
  const auto &a = std::get<RopeParams>(q.params), &b = std::get<RopeParams>(k.params);
  // The kernels turn the beginning of a head, and leave pairs where they are.
  return a.table == b.table && a.layout == b.layout && a.begin == 0 && b.begin == 0 &&
         a.layout != RopeLayout::kInterleavedToHalf;
}

// Takes [norms] [turns] of q and k if only the attention that follows reads them, with the same heads.
const Op* take_turns(Match& m) {
  const Op *q_norm = m.next_head_norm(), *k_norm = m.next_head_norm(1);
  const std::size_t norms = q_norm != nullptr && k_norm != nullptr ? 2 : 0;
  const Op *q_rope = m.next(OpKind::kRope, norms), *k_rope = m.next(OpKind::kRope, norms + 1);
  const std::size_t turns = q_rope != nullptr && k_rope != nullptr ? 2 : 0;
  const Op* attention = m.next(OpKind::kAttention, norms + turns);
  if (attention == nullptr || attention->inputs.size() != 3) return nullptr;
  const auto& a = std::get<AttentionParams>(attention->params);
  ValueId q = attention->inputs[0], k = attention->inputs[1];
  // Goes one op back on the way of q and of k.
  const auto leads = [&](const Op& q_op, const Op& k_op) {
    const bool fits = q_op.outputs[0] == q && k_op.outputs[0] == k && m.is_read_once(q) &&
                      m.is_read_once(k) && m.info(q).heads == a.heads && m.info(k).heads == a.kv_heads;
    q = q_op.inputs[0];
    k = k_op.inputs[0];
    return fits;
  };
  if (turns != 0 && (!leads(*q_rope, *k_rope) || !are_turned_alike(*q_rope, *k_rope))) return nullptr;
  if (norms != 0 && (!leads(*q_norm, *k_norm) || !have_one_epsilon(*q_norm, *k_norm))) return nullptr;
  if (norms != 0) {
    m.take(Part::kQNorm);
    m.take(Part::kKNorm);
  }
  if (turns != 0) {
    m.take(Part::kQRope);
    m.take(Part::kKRope);
  }
  return attention;
}

}  // namespace

std::optional<OpGroup> match_sum(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  if (!take_sum(m, false) || m.count() == 0) return std::nullopt;
  return m.done();
}

std::optional<OpGroup> match_gated(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  const Op* gated = m.next_plain_gated();
  if (gated == nullptr || m.info(gated->outputs[0]).width % 4 != 0) return std::nullopt;
  m.take(Part::kGated);
  return m.done();
}

std::optional<OpGroup> match_turns(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  if (take_turns(m) == nullptr || !m.has(Part::kQRope)) return std::nullopt;
  return m.done();
}

std::optional<OpGroup> match_attention(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  const Op* attention = take_turns(m);
  if (attention == nullptr) return std::nullopt;
  m.take(Part::kAttention);
  const Op* output = m.next(OpKind::kMatmul);
  if (output != nullptr && output->inputs[0] == attention->outputs[0]) m.take(Part::kOutput);
  return m.done();
}

std::optional<OpGroup> match_product(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  if (m.next(OpKind::kMatmul) == nullptr && (!take_sum(m, true) || !m.has(Part::kNorm))) return std::nullopt;
  const Op* product = m.next(OpKind::kMatmul);
  if (product == nullptr) return std::nullopt;
  if (m.has(Part::kNorm) && product->inputs[0] != plan.ops[m.end() - 1].outputs[0]) return std::nullopt;
  m.take(Part::kProduct);
  const Op* gated = m.next_plain_gated();
  if (gated != nullptr && gated->inputs == product->outputs) m.take(Part::kGated);
  if (!m.has(Part::kNorm) && !m.has(Part::kGated)) return std::nullopt;
  return m.done();
}

std::optional<OpGroup> match_head(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  if (!take_sum(m, true) || !m.has(Part::kNorm)) return std::nullopt;
  const Op* product = m.next(OpKind::kMatmul);
  if (product == nullptr || product->inputs[0] != plan.ops[m.end() - 1].outputs[0] ||
      product->outputs.size() != 1 || !product->biases.empty())
    return std::nullopt;
  m.take(Part::kProduct);
  const Op* softcap = m.next(OpKind::kSoftcap);
  if (softcap == nullptr || std::get<SoftcapParams>(softcap->params).scale != 1 ||
      std::get<SoftcapParams>(softcap->params).hard || softcap->inputs[0] != product->outputs[0] ||
      softcap->outputs[0] != plan.logits)
    return std::nullopt;
  m.take(Part::kSoftcap);
  if (m.end() != plan.ops.size()) return std::nullopt;
  return m.done();
}

std::optional<OpGroup> match_route(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  const Op *choose = m.next(OpKind::kChoose), *weigh = m.next(OpKind::kWeigh, 1);
  if (choose == nullptr || weigh == nullptr) return std::nullopt;
  if (weigh->inputs[0] != choose->inputs[0] || weigh->inputs[1] != choose->outputs[0]) return std::nullopt;
  m.take(Part::kChoose);
  m.take(Part::kWeigh);
  return m.done();
}

std::optional<OpGroup> match_experts(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  const Op *in = m.next(OpKind::kExpertMatmul), *gated = m.next(OpKind::kGated, 1),
           *out = m.next(OpKind::kExpertMatmul, 2), *sum = m.next(OpKind::kExpertSum, 3);
  if (in == nullptr || gated == nullptr || out == nullptr || sum == nullptr) return std::nullopt;
  const bool fits = in->outputs.size() == 2 && gated->inputs == in->outputs && out->outputs.size() == 1 &&
                    out->inputs[0] == gated->outputs[0] && out->inputs[1] == in->inputs[1] &&
                    sum->inputs[0] == out->outputs[0] && m.is_read_once(gated->outputs[0]) &&
                    m.is_read_once(out->outputs[0]);
  if (!fits) return std::nullopt;
  m.take(Part::kExpertsIn);
  m.take(Part::kGated);
  m.take(Part::kExpertsOut);
  m.take(Part::kExpertSum);
  return m.done();
}

std::optional<OpGroup> match_delta(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  const Op *beta = m.next(OpKind::kGated), *step = m.next(OpKind::kTimeStep, 1),
           *decay = m.next(OpKind::kDecay, 2), *convolution = m.next(OpKind::kConvolution, 3);
  const Op *q = m.next(OpKind::kColumns, 4), *k = m.next(OpKind::kColumns, 5),
           *v = m.next(OpKind::kColumns, 6);
  const Op *q_norm = m.next(OpKind::kRmsNorm, 7), *k_norm = m.next(OpKind::kRmsNorm, 8),
           *rule = m.next(OpKind::kDeltaRule, 9);
  for (const Op* op : {beta, step, decay, convolution, q, k, v, q_norm, k_norm, rule}) {
    if (op == nullptr) return std::nullopt;
  }
  for (const Op* op : {q, k, v}) {
    if (op->inputs[0] != convolution->outputs[0] || !std::get<ColumnsParams>(op->params).is_slice())
      return std::nullopt;
  }
  for (const Op* op : {q_norm, k_norm}) {
    const auto& p = std::get<NormParams>(op->params);
    if (p.kind != NormKind::kRms || p.span != NormSpan::kHead || !op->biases.empty() || !op->weights.empty())
      return std::nullopt;
  }
  const std::vector<ValueId> read = {q_norm->outputs[0], k_norm->outputs[0], v->outputs[0], beta->outputs[0],
                                     decay->outputs[0]};
  const bool connected = beta->inputs.size() == 1 && std::get<GatedParams>(beta->params).is_plain() &&
                         decay->inputs[0] == step->outputs[0] && q_norm->inputs[0] == q->outputs[0] &&
                         k_norm->inputs[0] == k->outputs[0] && rule->inputs == read &&
                         m.is_read_once(step->outputs[0]) && m.is_read_once(q->outputs[0]) &&
                         m.is_read_once(k->outputs[0]);
  if (!connected) return std::nullopt;
  for (const Part part : {Part::kActivation, Part::kTimeStep, Part::kDecay, Part::kConvolution,
                          Part::kQColumns, Part::kKColumns, Part::kVColumns, Part::kQNorm, Part::kKNorm})
    m.take(part);
  return m.done();
}

std::optional<OpGroup> match_gated_norm(const Plan& plan, const Readers& readers, std::size_t first) {
  Match m(plan, readers, first);
  const Op *norm = m.next_head_norm(), *gated = m.next(OpKind::kGated, 1);
  if (norm == nullptr || gated == nullptr || gated->inputs.size() != 2) return std::nullopt;
  const bool fits = gated->inputs[1] == norm->outputs[0] && m.is_read_once(norm->outputs[0]) &&
                    std::get<GatedParams>(gated->params).is_plain() &&
                    m.info(gated->inputs[0]).width == m.info(norm->outputs[0]).width;
  if (!fits) return std::nullopt;
  m.take(Part::kNorm);
  m.take(Part::kGated);
  return m.done();
}

}  // namespace doppler
