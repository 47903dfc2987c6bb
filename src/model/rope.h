// The angles of rotary position embedding, with every published way to stretch them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace doppler {

// The values that a backend needs to rotate: the angle of pair i at position p is p * inverse_frequency[i];
// cos and sin are then multiplied by `magnitude`.
struct RopeTable {
  std::vector<double> inverse_frequency;  // rotary_dim / 2 values
  double magnitude = 1;

  struct Turn {
    double cos, sin;
  };
  // The rotation of a pair at a position. In double: position times frequency loses too much in float.
  Turn turn(std::int64_t position, std::size_t pair) const {
    const double angle = static_cast<double>(position) * inverse_frequency[pair];
    return {std::cos(angle) * magnitude, std::sin(angle) * magnitude};
  }
};

// `context` is the longest sequence that will be run; longrope uses its long factors only beyond the original
// context. Sources: RoFormer (Su et al. 2021); YaRN (Peng et al. 2023); LongRoPE (Ding et al. 2024); the
// llama3 rule as published with Llama 3.1. All agree with transformers' modeling_rope_utils.
RopeTable make_rope_table(const RopeSpec& spec, std::uint64_t context);

// Whether two tables turn pairs alike within `rounding`, relative, up to that context. A pair that stands
// still may be stored as one that turns too little to matter anywhere.
bool turn_alike(const RopeTable& a, const RopeTable& b, std::uint64_t context, double rounding);

// The rope that a file's tables of factors or divisors are of: that of the first layer that has any, else of
// the first that turns, else of the first.
const RopeSpec& rope_with_factors(const ModelSpec& spec);

// What the query at a position is multiplied by.
inline double position_factor(const PositionScale& scale, std::int64_t position) {
  const std::int64_t steps = (position + scale.offset) / scale.every;
  return 1 + scale.beta * std::log1p(static_cast<double>(steps));
}

}  // namespace doppler
