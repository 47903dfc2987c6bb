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
// processor of a large GPU a sequence alone fills it; a short window has too few positions for as many. Where
// few heads of keys and values make few workgroups, twice as many: H200, us of a whole token at 0, 512, 2,000
// and 32,000 with 32, then with 64, Gemma 3 1B (one such head) 737, 772, 783, 945 and 735, 771, 782, 870;
// Qwen 3.5 2B (two) 1,020, 1,041, 1,057, 1,276 and 1,036, 1,037, 1,051, 1,183; but Llama 3.2 1B (eight) 527,
// 564, 590, 964 and 529, 567, 614, 1,005.
constexpr std::uint32_t kMostSplits = 64, kFewKvHeads = 2;
inline std::uint32_t most_splits(const AttentionParams& a) {
  if (a.window != 0) return a.window <= 512 ? 16 : kMostSplits / 2;
  return a.kv_heads <= kFewKvHeads ? kMostSplits : kMostSplits / 2;
}

// Bytes of what a split of an attention leaves of all heads: means of cached values, as exact as these.
inline std::uint64_t split_bytes(const AttentionParams& a, KvType type) {
  return a.heads * std::uint64_t{kv_row_bytes(type, a.head_dim)};
}

// Threads of attention_combine.wgsl, of which each has so many splits of a vector under way (combined.wgsl):
// values are few, and each takes many loads.
constexpr std::uint32_t kCombineThreads = 128, kSplitsAtOnce = 8;

// Whether a step is one token of one sequence, or has several of these.
enum class Company : std::uint8_t { kAlone, kSeveral };

// LP, PG, ROUNDS, HEADS_EACH, AT_ONCE. Errors: kUnsupported, with the reason, where no workgroup holds the
// heads.
Result<ShaderValues> split_attention_shape(const Context& context, const AttentionParams& a, Company company);

// The values that combined.wgsl takes.
void add_splits(const Context& context, const Op& attention, ShaderValues& values);

// q, k and v as it reads them: before the norms and turns of the group.
std::array<ValueId, 3> heads_of(const Plan& plan, const OpGroup& group);

// What it takes for the norms and turns of the group's heads, if there are any.
Status add_turns(Context& context, const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers);

}  // namespace doppler::gpu
