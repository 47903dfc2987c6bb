// How the threads of attention_decode.wgsl, which takes an attention in splits of the sequence, share a head.
#pragma once

#include <array>

#include "backend/gpu/context.h"
#include "backend/gpu/kernel.h"
#include "plan/fuse.h"

namespace doppler::gpu {

// TEAM of team.wgsl where subgroups are not wide.
constexpr std::uint32_t kTeamThreads = 16;

// Positions that a workgroup takes at a time, of which splits.wgsl makes splits of a sequence.
constexpr std::uint32_t kSplitPositions = 32;

// Splits of a sequence at most, as splits.wgsl cuts it whatever else is in a step: with two for each
// processor of a large GPU a sequence alone fills it; a short window has too few positions for as many.
constexpr std::uint32_t kMostSplits = 32;
inline std::uint32_t most_splits(const AttentionParams& a) {
  return a.window != 0 && a.window <= 512 ? 16 : kMostSplits;
}

// Query heads that a workgroup takes of those that share a KV head, where a sequence is alone: as few of
// `most` as leave a workgroup for each processor of a large GPU (an H100 has 132), each of which prepares its
// heads and reads the keys and values for itself. Every head's sums are the same either way. H100, us of a
// layer at depth 512, with 4, 2 and 1 heads: Gemma 3 1B (one KV head) 6.3, 5.3, 4.9; Llama 3.2 1B (8 KV
// heads) 4.8, 4.8, 4.6, but at 2,000 10 % of a whole step slower with 1; Llama 3.1 8B 5.9, 6.7, 8.3.
constexpr std::uint32_t kAttentionGroups = 128;
std::uint32_t heads_each(const AttentionParams& a, std::uint32_t most);

// Bytes of what a split of an attention leaves of all heads: means of cached values, as exact as these.
inline std::uint64_t split_bytes(const AttentionParams& a, KvType type) {
  return a.heads * std::uint64_t{kv_row_bytes(type, a.head_dim)};
}

// Threads of attention_combine.wgsl, of which each has so many splits of a vector under way (combined.wgsl):
// values are few, and each takes many loads.
constexpr std::uint32_t kCombineThreads = 128, kSplitsAtOnce = 8;

// LP, PG, ROUNDS, HEADS_EACH (most heads that a workgroup can take of those that share a KV head) and
// AT_ONCE, before share_heads. Errors: kUnsupported, with the reason, where no workgroup holds the heads.
Result<ShaderValues> split_attention_shape(const Context& context, const AttentionParams& a);

// A workgroup takes so many of them.
void share_heads(ShaderValues& values, std::uint32_t heads);

// The values that combined.wgsl takes.
void add_splits(const Context& context, const Op& attention, ShaderValues& values);

// q, k and v as it reads them: before the norms and turns of the group.
std::array<ValueId, 3> heads_of(const Plan& plan, const OpGroup& group);

// What it takes for the norms and turns of the group's heads, if there are any.
Status add_turns(Context& context, const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers);

}  // namespace doppler::gpu
