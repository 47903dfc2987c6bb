#include "backend/gpu/split_attention.h"

#include <algorithm>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Positions that a row has under way: with the next ones loading meanwhile, what registers allow.
constexpr std::uint32_t kRounds = 2;

// Bytes that the rows' sums may take, where more heads could be put together at once: a processor of 100 KiB
// then holds four workgroups.
constexpr std::uint64_t kRowBytes = 20480;

// Sums that a thread keeps, as many as values of queries: with what it has under way these must leave a
// processor room for several workgroups. gpt-oss (8 heads of 64 share a KV head) on an H100: 1,618 tok/s with
// 4 heads in a workgroup, 1,553 with 8.
constexpr std::uint32_t kMostSums = 32;

// The largest part of the query heads that share a KV head of at most so many; 1 at least.
std::uint32_t heads_at_most(const AttentionParams& a, std::uint32_t most) {
  const std::uint32_t shared = a.heads / a.kv_heads;
  std::uint32_t each = std::clamp(most, 1u, shared);
  while (shared % each != 0) --each;
  return each;
}

}  // namespace

Result<ShaderValues> split_attention_shape(const Context& context, const AttentionParams& a) {
  const Features& features = context.device->features();
  const std::uint32_t subgroup = features.subgroup_size;
  const bool together = !features.wide_subgroups();
  const std::uint32_t team = together ? kTeamThreads : subgroup;
  const std::uint32_t vec = context.options.kv_type == KvType::kF16 ? 8 : 4;
  if (a.head_dim % vec != 0 || (a.heads * a.head_dim) % 4 != 0)
    return fail(ErrorCode::kUnsupported, "the head size {} is no multiple of {}", a.head_dim, vec);
  const std::uint32_t widest = together ? kTeamThreads : std::min(32u, subgroup);
  std::uint32_t lanes = 1;
  while (lanes * 2 <= widest && (a.head_dim / vec) % (lanes * 2) == 0) lanes *= 2;
  const Limits& limits = context.device->limits();
  const std::uint32_t heads = heads_at_most(a, kMostSums * lanes / a.head_dim);
  // Measured on an H100: 16 rows of 8 threads (heads of 64), 8 of 16 (128), 8 of 32 (256).
  const std::uint32_t best = lanes <= 8 ? 16 : 8;
  for (const std::uint32_t rows : {best, 16u, 8u, 32u, 4u, 64u, 2u, 1u}) {
    const std::uint32_t threads = lanes * rows;
    if (threads % team != 0 || threads > limits.workgroup_invocations) continue;
    // Queries, the new key and value, and what threads leave for each other; then the rows' sums of a head.
    const std::uint64_t base = std::uint64_t{heads} * a.head_dim * 4 + a.head_dim * 8 +
                               (together ? threads * 4 + std::uint64_t{kRounds} * heads * threads * 4 : 0);
    const std::uint64_t each = std::uint64_t{rows} * (a.head_dim * 4 + 8);
    if (base + each > limits.workgroup_bytes) continue;
    const std::uint64_t at_once = std::min(limits.workgroup_bytes - base, kRowBytes) / each;
    return ShaderValues{{"LP", lanes},
                        {"PG", rows},
                        {"ROUNDS", kRounds},
                        {"HEADS_EACH", heads},
                        {"AT_ONCE", static_cast<std::int64_t>(std::max<std::uint64_t>(at_once, 1))}};
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

std::uint32_t heads_each(const AttentionParams& a, std::uint32_t most) {
  std::uint32_t each = most;
  for (std::uint32_t fewer = most; fewer >= 1; --fewer) {
    if (most % fewer == 0 && a.heads / fewer * most_splits(a) <= kAttentionGroups) each = fewer;
  }
  return each;
}

void share_heads(ShaderValues& values, std::uint32_t heads) {
  std::int64_t at_once = std::min<std::int64_t>(values["AT_ONCE"], heads);
  while (heads % at_once != 0) --at_once;
  values["HEADS_EACH"] = heads;
  values["AT_ONCE"] = at_once;
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
