#include "backend/gpu/decode_ops.h"

namespace doppler::gpu {
namespace {

// Reads the ops one after the other.
class Cursor {
 public:
  explicit Cursor(const Plan& plan) : plan_(plan) {}
  bool at(OpKind kind) const { return next_ < plan_.ops.size() && plan_.ops[next_].kind == kind; }
  bool take(OpKind kind, const Op*& op) {
    if (!at(kind)) return false;
    op = &plan_.ops[next_++];
    return true;
  }
  bool take_if(OpKind kind, const Op*& op) {
    if (at(kind)) op = &plan_.ops[next_++];
    return true;
  }

 private:
  const Plan& plan_;
  std::size_t next_ = 0;
};

bool read_layer(Cursor& cursor, LayerOps& l) {
  const Op* add = nullptr;
  bool ok = cursor.take(OpKind::kRmsNorm, l.attn_norm) && cursor.take(OpKind::kMatmul, l.qkv);
  if (ok && cursor.at(OpKind::kRmsNorm))
    ok = cursor.take(OpKind::kRmsNorm, l.q_norm) && cursor.take(OpKind::kRmsNorm, l.k_norm);
  ok = ok && cursor.take(OpKind::kRope, l.q_rope) && cursor.take(OpKind::kRope, l.k_rope) &&
       cursor.take(OpKind::kAttention, l.attention) && cursor.take(OpKind::kMatmul, l.o) &&
       cursor.take_if(OpKind::kRmsNorm, l.post_attn) && cursor.take(OpKind::kAdd, add) &&
       cursor.take(OpKind::kRmsNorm, l.ffn_norm) && cursor.take(OpKind::kMatmul, l.gate_up) &&
       cursor.take(OpKind::kGated, l.gated) && cursor.take(OpKind::kMatmul, l.down) &&
       cursor.take_if(OpKind::kRmsNorm, l.post_ffn) && cursor.take(OpKind::kAdd, add);
  return ok && l.qkv->outputs.size() == 3 && l.gate_up->outputs.size() == 2;
}

// The kernels take one rotation for queries and keys, and one epsilon for two norms that they compute
// together.
bool are_alike(const LayerOps& l, const Op* next_norm) {
  const auto eps = [](const Op* norm) { return std::get<NormParams>(norm->params).eps; };
  const auto &q = std::get<RopeParams>(l.q_rope->params), &k = std::get<RopeParams>(l.k_rope->params);
  return q.table == k.table && q.layout == k.layout &&
         (l.q_norm == nullptr || eps(l.q_norm) == eps(l.k_norm)) &&
         (l.post_attn == nullptr || eps(l.post_attn) == eps(l.ffn_norm)) &&
         (l.post_ffn == nullptr || eps(l.post_ffn) == eps(next_norm));
}

}  // namespace

Result<DecoderOps> read_plan(const Plan& plan) {
  DecoderOps ops;
  Cursor cursor(plan);
  const Op* select = nullptr;
  bool ok = cursor.take(OpKind::kEmbed, ops.embed);
  while (ok && !cursor.at(OpKind::kSelect)) {
    LayerOps layer = {};
    ok = read_layer(cursor, layer);
    ops.layers.push_back(layer);
  }
  ok = ok && cursor.take(OpKind::kSelect, select) && cursor.take(OpKind::kRmsNorm, ops.final_norm) &&
       cursor.take(OpKind::kMatmul, ops.head) && cursor.take(OpKind::kSoftcap, ops.softcap);
  if (!ok) return fail(ErrorCode::kUnsupported, "the plan has another order of ops");
  for (std::size_t i = 0; i < ops.layers.size(); ++i) {
    const bool last = i + 1 == ops.layers.size();
    if (!are_alike(ops.layers[i], last ? ops.final_norm : ops.layers[i + 1].attn_norm))
      return fail(ErrorCode::kUnsupported,
                  "norms or rotations of the layer {} differ where one kernel computes both", i);
  }
  return ops;
}

}  // namespace doppler::gpu
