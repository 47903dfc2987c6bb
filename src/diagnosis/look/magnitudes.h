// Statistics as text, and ranks and entropy of a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/statistics.h"

namespace doppler::diagnosis {

// "maxAbs=12.3 at (4,17) min=-3.1 max=12.3 mean=0.01 rms=0.9", and NaN, Inf and zeros where there are any;
// places are (token, dim), the first row being `first_token`.
std::string describe_statistics(const Statistics& s, std::size_t width, std::int64_t first_token);

// One token among all: its logit, probability, and how many are likelier (rank 1 is the likeliest).
struct Rank {
  std::int32_t id = -1;
  float logit = 0;
  double probability = 0;
  std::size_t rank = 0;
};
Rank rank_of(std::span<const float> logits, std::int32_t id);

// The entropy of the softmax, in nats: log(size) for equal logits.
double entropy(std::span<const float> logits);

}  // namespace doppler::diagnosis
