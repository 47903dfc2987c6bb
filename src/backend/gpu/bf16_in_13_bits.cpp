#include "backend/gpu/bf16_in_13_bits.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace doppler::gpu {
namespace {

constexpr int kFraction = 7, kDropped = 3;  // bits of BF16's fraction, and those that a half has beyond it
constexpr int kMostExponent = 30;           // of a half that is a number
constexpr int kHalfBias = 15;
constexpr std::int16_t kMagnitude = 0x7fff, kNotFinite = 0x7f80;
constexpr std::uint16_t kSign = 0x8000;

// A half that has less than 2^-14: a fraction without the bit in front of it. Nearest, halves upwards.
std::uint16_t small_half(std::uint16_t value, int base) {
  const int exponent = (value & kMagnitude) >> kFraction;
  const int shift = base + 1 - exponent;
  if (exponent == 0 || shift > kFraction + 1) return value & kSign;  // floats so small are zero on a GPU
  const int fraction = (value & 0x7f) | 0x80;
  return static_cast<std::uint16_t>((value & kSign) | ((fraction + (1 << shift >> 1)) >> shift) << kDropped);
}

std::uint16_t as_half(std::uint16_t value, int base) {
  const int magnitude = value & kMagnitude;
  if (magnitude >= kNotFinite)
    return static_cast<std::uint16_t>((value & kSign) | 0x7c00 | (value & 0x7f) << kDropped);
  if (magnitude >> kFraction <= base) return small_half(value, base);
  return static_cast<std::uint16_t>((value & kSign) | (magnitude - (base << kFraction)) << kDropped);
}

}  // namespace

// Weights are packed while a user waits for a model: loops over so many values as a vector has, which
// compilers make one of.

int base_of_row(std::span<const std::uint16_t> row) {
  constexpr std::size_t kLanes = 16;
  std::int16_t most[kLanes] = {};
  for (std::size_t i = 0; i < row.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const auto magnitude = static_cast<std::int16_t>(row[i + j] & kMagnitude);
      const std::int16_t finite = magnitude < kNotFinite ? magnitude : std::int16_t{0};
      most[j] = std::max(most[j], finite);
    }
  }
  // At least one, so that the factor is a normal float.
  return std::max((std::ranges::max(most) >> kFraction) - kMostExponent, 1);
}

float factor_of_base(int base) {
  // Its exponent as a float has it: what was taken away, and what a half counts from.
  return std::bit_cast<float>(static_cast<std::uint32_t>(base + kHalfBias) << 23);
}

void pack_in_13_bits(std::span<const std::uint16_t, kBlockValues> values, int base,
                     std::span<std::uint32_t, kBlockPieceWords> pieces, std::uint32_t& behind) {
  const auto below = static_cast<std::int16_t>(base << kFraction);
  const auto least = static_cast<std::int16_t>((base + 1) << kFraction);
  std::uint16_t halves[kBlockValues];
  std::int16_t others = 0;  // not 0: some are small or not finite
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const auto magnitude = static_cast<std::int16_t>(values[i] & kMagnitude);
    const auto other = static_cast<std::int16_t>((magnitude < least) | (magnitude >= kNotFinite));
    others = static_cast<std::int16_t>(others | other);
    halves[i] = static_cast<std::uint16_t>((values[i] & kSign) | (magnitude - below) << kDropped);
  }
  if (others != 0)
    std::ranges::transform(values, halves, [&](std::uint16_t value) { return as_half(value, base); });
  // Of each half of a word bits 15 to 13, 12 to 10, 9 to 7 and 6 to 4, as upper halves of products.
  constexpr std::uint16_t kThrees[] = {1 << 3, 1 << 3, 1 << 6, 1 << 6, 1 << 9, 1 << 9, 1 << 12, 1 << 12};
  std::uint16_t last[] = {halves[30], halves[31]};
  for (std::size_t p = 0; p < 3; ++p) {
    const std::uint16_t* between = halves + 24 + 2 * p;
    const std::uint16_t pair[] = {between[0], between[1], between[0], between[1],
                                  between[0], between[1], between[0], between[1]};
    for (std::size_t i = 0; i < 8; ++i)
      halves[8 * p + i] |= static_cast<std::uint16_t>((std::uint32_t{pair[i]} * kThrees[i]) >> 16 & 7);
    for (std::size_t i = 0; i < 2; ++i)
      last[i] |= static_cast<std::uint16_t>((between[i] >> kDropped & 1) << p);
  }
  std::memcpy(pieces.data(), halves, pieces.size_bytes());
  std::memcpy(&behind, last, sizeof(behind));
}

}  // namespace doppler::gpu
