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

// The largest divisor of `all` that is at most so many; 1 at least.
std::uint32_t part_of(std::uint32_t all, std::uint64_t most) {
  auto part = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most, 1, all));
  while (all % part != 0) --part;
  return part;
}

// Query heads that a workgroup takes of those that share a KV head, where a sequence is alone: as few of
// `most` as leave a workgroup for each processor of a large GPU (an H100 has 132), each of which prepares its
// heads and reads the keys and values for itself. Every head's sums are the same either way. H100, us of a
// layer at depth 512, with 4, 2 and 1 heads: Gemma 3 1B (one KV head) 6.3, 5.3, 4.9; Llama 3.2 1B (8 KV
// heads) 4.8, 4.8, 4.6, but at 2,000 10 % of a whole step slower with 1; Llama 3.1 8B 5.9, 6.7, 8.3.
constexpr std::uint32_t kWorkgroupsAlone = 128;
std::uint32_t heads_each(const AttentionParams& a, std::uint32_t most) {
  std::uint32_t each = most;
  for (std::uint32_t fewer = most; fewer >= 1; --fewer) {
    if (most % fewer == 0 && a.heads / fewer * most_splits(a) <= kWorkgroupsAlone) each = fewer;
  }
  return each;
}

}  // namespace

Result<ShaderValues> split_attention_shape(const Context& context, const AttentionParams& a,
                                           Company company) {
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
  // How a row's positions are dealt out must not depend on company, and so counts with the most heads.
  const std::uint32_t most = part_of(a.heads / a.kv_heads, kMostSums * lanes / a.head_dim);
  const std::uint32_t heads = company == Company::kAlone ? heads_each(a, most) : most;
  // Measured on an H100: 16 rows of 8 threads (heads of 64), 8 of 16 (128), 8 of 32 (256).
  const std::uint32_t best = lanes <= 8 ? 16 : 8;
  for (const std::uint32_t rows : {best, 16u, 8u, 32u, 4u, 64u, 2u, 1u}) {
    const std::uint32_t threads = lanes * rows;
    if (threads % team != 0 || threads > limits.workgroup_invocations) continue;
    // Queries, the new key and value, and what threads leave for each other; then the rows' sums of a head.
    const std::uint64_t base = std::uint64_t{most} * a.head_dim * 4 + a.head_dim * 8 +
                               (together ? threads * 4 + std::uint64_t{kRounds} * most * threads * 4 : 0);
    const std::uint64_t each = std::uint64_t{rows} * (a.head_dim * 4 + 8);
    if (base + each > limits.workgroup_bytes) continue;
    return ShaderValues{
        {"LP", lanes},
        {"PG", rows},
        {"ROUNDS", kRounds},
        {"HEADS_EACH", heads},
        {"AT_ONCE", part_of(heads, std::min(limits.workgroup_bytes - base, kRowBytes) / each)}};
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
