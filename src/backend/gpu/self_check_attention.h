// What the self-checks of attention share: what the kernels' includes compute, in plain double arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/gpu/self_check_inputs.h"
#include "plan/plan.h"

namespace doppler::gpu {

// Bytes of cache of a check.
inline constexpr std::uint64_t kMostCacheBytes = 4 << 20;

// What becomes of a product of a query and a key that is scaled already: attention_seen.wgsl.
double score_of(const Values& v, double score, std::size_t head, std::size_t key, std::size_t position);
// Which positions a token sees: WINDOW, CHUNKED.
AttentionParams seen_by(const Values& v);
// Positions of a split of so many: splits.wgsl.
std::size_t split_positions(const Values& v, std::size_t length);
// An input as a cache of this type holds it, in f16 with KV_HALF; the numbers become what these hold.
void add_cached(const Values& v, const char* name, std::vector<float>& numbers, Case& c);
// Values weighed by the softmax of their scores, before the division by `total`, whose shares are relative to
// the largest score.
struct Weighed {
  double top = 0, total = 0;
  std::vector<double> sums;
};
Weighed weigh(std::span<const double> scores, std::size_t dim,
              const std::function<const float*(std::size_t)>& value_of);
// `parts` and `marks` of so many tokens: combined.wgsl.
void add_part_outputs(const Values& v, std::size_t tokens, Case& c);

}  // namespace doppler::gpu
