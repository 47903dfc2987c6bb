#include "backend/gpu/split_attention.h"

#include <algorithm>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {

Result<ShaderValues> split_attention_shape(const Context& context, const AttentionParams& a) {
  const Features& features = context.device->features();
  const std::uint32_t subgroup = features.subgroup_size;
  const bool together = !features.wide_subgroups();
  const std::uint32_t team = together ? kTeamThreads : subgroup;
  const std::uint32_t vec = context.options.kv_type == KvType::kF16 ? 8 : 4;
  if (a.head_dim % vec != 0 || (a.heads * a.head_dim) % 4 != 0)
    return fail(ErrorCode::kUnsupported, "the head size {} is no multiple of {}", a.head_dim, vec);
  std::uint32_t lanes = 1;
  while (lanes < 16 && lanes * 2 <= subgroup && (a.head_dim / vec) % (lanes * 2) == 0) lanes *= 2;
  const std::uint32_t quads = a.head_dim / 4,
                      most = std::min(512u, context.device->limits().workgroup_invocations);
  for (const std::uint32_t groups : {8u, 16u, 4u, 32u, 2u, 1u}) {
    const std::uint32_t threads = quads * groups;
    const std::uint32_t shared = a.heads / a.kv_heads;
    if (threads % team != 0 || threads > most || threads < shared) continue;
    // Queries, scores and the sums of some heads must fit the workgroup's memory.
    const std::uint64_t base = std::uint64_t{shared} * (a.head_dim * 4 + kSplitPositions * 4 + 16) +
                               a.head_dim * 8 + (together ? threads * 4 : 0);
    const std::uint64_t limit = std::min<std::uint64_t>(context.device->limits().workgroup_bytes, 32768);
    if (base + threads * 16 > limit) continue;
    const std::uint64_t at_once = std::clamp<std::uint64_t>((limit - base) / (threads * 16), 1, shared);
    return ShaderValues{{"LP", lanes},
                        {"PG", groups},
                        {"CHUNK", kSplitPositions},
                        {"HEADS_AT_ONCE", static_cast<std::int64_t>(at_once)}};
  }
  return fail(ErrorCode::kUnsupported, "{} heads of {} fit no workgroup", a.heads, a.head_dim);
}

void add_splits(const Context& context, const Op& attention, ShaderValues& values) {
  const auto& a = std::get<AttentionParams>(attention.params);
  values["WIDTH"] = a.heads * a.head_dim;
  values["DIM"] = a.head_dim;
  values["KV_HALF"] = context.options.kv_type == KvType::kF16 ? 1 : 0;
  values["WINDOW"] = a.window;
  values["CHUNKED"] = a.chunked ? 1 : 0;
  values["SINKS"] = attention.weights.empty() ? 0 : 1;
  values["MOST_SPLITS"] = most_splits(a);
  values["POSITIONS"] = context.layout.positions();
}

std::uint32_t heads_each(const AttentionParams& a) {
  const std::uint32_t shared = a.heads / a.kv_heads;
  std::uint32_t each = shared;
  for (std::uint32_t fewer = shared; fewer >= 1; --fewer) {
    if (shared % fewer == 0 && a.heads / fewer * most_splits(a) <= kAttentionGroups) each = fewer;
  }
  return each;
}

std::array<ValueId, 3> heads_of(const Plan& plan, const OpGroup& group) {
  const Op& op = *group.op(plan, Part::kAttention);
  const auto first_of = [&](Part norm, Part rope, ValueId otherwise) {
    const Part first = group.has(norm) ? norm : rope;
    return group.has(first) ? group.op(plan, first)->inputs[0] : otherwise;
  };
  return {first_of(Part::kQNorm, Part::kQRope, op.inputs[0]),
          first_of(Part::kKNorm, Part::kKRope, op.inputs[1]), op.inputs[2]};
}

Status add_turns(Context& context, const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers) {
  const Plan& plan = context.plan;
  const Op *q_norm = group.op(plan, Part::kQNorm), *k_norm = group.op(plan, Part::kKNorm),
           *q_rope = group.op(plan, Part::kQRope);
  values["QK_NORM"] = q_norm != nullptr ? 1 : 0;
  if (q_norm != nullptr) {
    values["EPS_BITS"] = float_bits(std::get<NormParams>(q_norm->params).eps);
    DOPPLER_ASSIGN(const Buffer weights, context.norm_weights(*q_norm, k_norm));
    buffers.push_back({"qk_weights", weights});
  }
  if (q_rope != nullptr) {
    const auto& rope = std::get<RopeParams>(q_rope->params);
    add_rotation(context, rope, values);
    buffers.push_back({"angles", context.angles[rope.table]});
  } else {  // no pair turns, so whatever is bound as its angle is not used
    values["PAIRS"] = 0;
    values["HIGH_ROWS"] = 0;
    values["INTERLEAVED"] = 0;
    buffers.push_back({"angles", context.step});
  }
  return {};
}

}  // namespace doppler::gpu
