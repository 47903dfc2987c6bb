#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace doppler {
namespace {

// What the formats' definitions say, in double arithmetic and without any bit tricks.
double half_by_definition(unsigned bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31u);
  const double mantissa = static_cast<double>(bits & 1023u) / 1024.0;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, -14) : sign * std::ldexp(1.0 + mantissa, exponent - 15);
}

bool is_nan16(std::uint16_t bits, unsigned exponent_mask, unsigned mantissa_mask) {
  return (bits & exponent_mask) == exponent_mask && (bits & mantissa_mask) != 0;
}

TEST(Float16, EveryHalfIsWhatItsDefinitionSays) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    const double wanted = half_by_definition(bits);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), wanted) << bits;
      EXPECT_EQ(std::signbit(value), std::signbit(wanted)) << bits;
    }
  }
}

TEST(Float16, EveryHalfSurvivesARoundTrip) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const std::uint16_t back = f32_to_f16(f16_to_f32(bits));
    if (is_nan16(bits, 0x7c00u, 0x3ffu)) {
      EXPECT_TRUE(is_nan16(back, 0x7c00u, 0x3ffu)) << i;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

TEST(Float16, EveryBfloatSurvivesARoundTrip) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const std::uint16_t back = f32_to_bf16(bf16_to_f32(bits));
    if (is_nan16(bits, 0x7f80u, 0x7fu)) {
      EXPECT_TRUE(is_nan16(back, 0x7f80u, 0x7fu)) << i;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

// The nearest representable value of |v|, ties to the even code: codes of one sign are in order of their
// values.
template <typename Decode>
unsigned nearest_code(double magnitude, unsigned infinity_code, double overflow_at, Decode decode) {
  if (magnitude >= overflow_at) return infinity_code;
  unsigned low = 0, high = infinity_code - 1;
  while (low < high) {  // the last code whose value is not above the magnitude
    const unsigned middle = (low + high + 1) / 2;
    if (decode(middle) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == infinity_code - 1) return low;
  const double below = magnitude - decode(low), above = decode(low + 1) - magnitude;
  return below < above || (below == above && low % 2 == 0) ? low : low + 1;
}

// Floats at, just below and just above every midpoint of neighbouring 16-bit values, and the values
// themselves.
template <typename Decode>
std::vector<float> hard_cases(unsigned infinity_code, Decode decode) {
  std::vector<float> cases = {65519.996f, 65520.0f, 3.4e38f, std::numeric_limits<float>::max(),
                              1e-45f,     1e-40f};
  for (unsigned code = 0; code + 1 < infinity_code; ++code) {
    const auto middle = static_cast<float>((decode(code) + decode(code + 1)) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e38f)})
      cases.push_back(value);
  }
  return cases;
}

TEST(Float16, HalvesRoundToNearestEven) {
  const auto decode = [](unsigned code) { return half_by_definition(code); };
  for (const float value : hard_cases(0x7c00, decode)) {
    const unsigned wanted = nearest_code(value, 0x7c00, 65520.0, decode);
    EXPECT_EQ(f32_to_f16(value), wanted) << value;
    EXPECT_EQ(f32_to_f16(-value), wanted | 0x8000u) << value;
  }
}

TEST(Float16, BfloatsRoundToNearestEven) {
  const auto decode = [](unsigned code) {
    return static_cast<double>(bf16_to_f32(static_cast<std::uint16_t>(code)));
  };
  const double top = decode(0x7f7f), overflow_at = top + (top - decode(0x7f7e)) / 2;
  for (const float value : hard_cases(0x7f80, decode)) {
    const unsigned wanted = nearest_code(value, 0x7f80, overflow_at, decode);
    EXPECT_EQ(f32_to_bf16(value), wanted) << value;
    EXPECT_EQ(f32_to_bf16(-value), wanted | 0x8000u) << value;
  }
}

TEST(Float16, NaNsStayNaNsAndNeverBecomeInfinity) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0xffffffffu, 0x7f801fffu}) {
    const auto value = std::bit_cast<float>(bits);
    EXPECT_TRUE(is_nan16(f32_to_f16(value), 0x7c00u, 0x3ffu)) << bits;
    EXPECT_TRUE(is_nan16(f32_to_bf16(value), 0x7f80u, 0x7fu)) << bits;
  }
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::infinity()), 0xff80);
}

}  // namespace
}  // namespace doppler
