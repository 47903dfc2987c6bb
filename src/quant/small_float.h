// Floats of at most 8 bits, described as data and decoded exactly into float32.
// Sources: OCP 8-bit Floating Point Specification (E4M3, E5M2); OCP Microscaling Formats specification (E8M0,
// E2M1, E2M3, E3M2); the FNUZ forms of AMD's and Graphcore's proposal: bias one higher, no -0, no Inf, 0x80
// is NaN.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace doppler {

struct SmallFloat {
  enum class Specials {
    kNone,    // every code is a number
    kIeee,    // the highest exponent is Inf and NaN
    kTopNaN,  // only all ones (without sign) is NaN
    kFnuz,    // only minus zero is NaN
  };
  unsigned exponent_bits, mantissa_bits;
  int bias;
  Specials specials;

  constexpr unsigned bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr float decode(unsigned code) const {
    const unsigned magnitude_mask = (1u << (exponent_bits + mantissa_bits)) - 1;
    const unsigned magnitude = code & magnitude_mask;
    const unsigned mantissa = magnitude & ((1u << mantissa_bits) - 1);
    const unsigned exponent = magnitude >> mantissa_bits;
    const bool negative = (code & ~magnitude_mask) != 0;
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    if (specials == Specials::kTopNaN && magnitude == magnitude_mask) return nan;
    if (specials == Specials::kFnuz && negative && magnitude == 0) return nan;
    if (specials == Specials::kIeee && exponent == (1u << exponent_bits) - 1) {
      if (mantissa != 0) return nan;
      return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    }
    // (1 + m/2^M) * 2^(e - bias), or m/2^M * 2^(1 - bias) for subnormals; every factor is a power of two, so
    // exact.
    const unsigned significand = exponent == 0 ? mantissa : mantissa + (1u << mantissa_bits);
    const int power =
        (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - static_cast<int>(mantissa_bits);
    const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
    return (negative ? -1.0f : 1.0f) * static_cast<float>(significand) * scale;
  }
  // The value of every code (codes beyond bits() repeat).
  constexpr std::array<float, 256> table() const {
    std::array<float, 256> values{};
    for (unsigned code = 0; code < 256; ++code) values[code] = decode(code & ((1u << bits()) - 1));
    return values;
  }
};

inline constexpr SmallFloat kE4M3{4, 3, 7, SmallFloat::Specials::kTopNaN};
inline constexpr SmallFloat kE5M2{5, 2, 15, SmallFloat::Specials::kIeee};
inline constexpr SmallFloat kE4M3Fnuz{4, 3, 8, SmallFloat::Specials::kFnuz};
inline constexpr SmallFloat kE5M2Fnuz{5, 2, 16, SmallFloat::Specials::kFnuz};
inline constexpr SmallFloat kE2M1{2, 1, 1, SmallFloat::Specials::kNone};

// E8M0, the scale of microscaling blocks: 2^(code - 127), no sign, 0xff is NaN.
constexpr float decode_e8m0(unsigned code) {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  // 2^-127 is a float32 subnormal: half of the smallest normal number.
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23);
}

}  // namespace doppler
