// The arithmetic of the encoders' searches: how far a run of 16 or 32 values lies from its codes under a
// given scale, and which scale (and offset) is best for given codes. All sums are weighted: `weights` says
// how much the square of each value's error counts.
//
// Written over vectors of 4 floats, which every 64-bit machine has without run-time dispatch; a search of 40
// candidates costs about 50 cycles a value.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "quant/blocks.h"

namespace doppler::fit {

using Vec4 = float __attribute__((vector_size(16)));

inline Vec4 load(const float* from) {
  Vec4 value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline Vec4 splat(float value) {
  return Vec4{value, value, value, value};
}
inline float sum(Vec4 v) {
  return (v[0] + v[1]) + (v[2] + v[3]);
}
inline Vec4 clamp(Vec4 v, float low, float high) {
  const Vec4 lows = splat(low), highs = splat(high);
  v = v > lows ? v : lows;  // NaN becomes `low`
  return v < highs ? v : highs;
}
// To the nearest integer, ties to even, for |v| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
inline Vec4 round(Vec4 v) {
  const Vec4 magic = splat(0x1.8p23f);
  return (v + magic) - magic;
}

// 1 / scale, or 0 where a scale is too small for its inverse to be a number.
inline float inverse(float scale) {
  return std::fabs(scale) < 0x1p-120f ? 0.0f : 1.0f / scale;
}

// How a type turns value / scale into a level. Each has levels(4 quotients) and code(one level).
struct UniformLevels {
  float low, high;  // the integers from low to high
  Vec4 levels(Vec4 quotients) const { return round(clamp(quotients, low, high)); }
  int code(float level) const { return static_cast<int>(level - low); }
};

// The levels of IQ4_NL. All midpoints between neighbours are multiples of one half, so the half-open interval
// of that width in which a quotient lies tells its nearest level.
inline constexpr std::array<std::uint8_t, 512> kNearestIQ4 = [] {
  std::array<std::uint8_t, 512> table{};
  for (int cell = 0; cell < 512; ++cell) {
    const int centre4 = 2 * cell + 1 - 512;  // four times the middle of [cell / 2 - 128, cell / 2 - 127.5)
    unsigned best = 0;
    for (unsigned i = 1; i < 16; ++i) {
      const int distance = centre4 - 4 * kIQ4Levels[i], least = centre4 - 4 * kIQ4Levels[best];
      if (distance * distance < least * least) best = i;
    }
    table[static_cast<std::size_t>(cell)] = static_cast<std::uint8_t>(best);
  }
  return table;
}();
struct IQ4Levels {
  static unsigned nearest(float quotient) {
    return kNearestIQ4[static_cast<std::size_t>(static_cast<int>(2 * quotient + 256))];
  }
  Vec4 levels(Vec4 quotients) const {
    const Vec4 inside = clamp(quotients, -127.0f, 127.0f);
    return Vec4{static_cast<float>(kIQ4Levels[nearest(inside[0])]),
                static_cast<float>(kIQ4Levels[nearest(inside[1])]),
                static_cast<float>(kIQ4Levels[nearest(inside[2])]),
                static_cast<float>(kIQ4Levels[nearest(inside[3])])};
  }
  int code(float level) const { return static_cast<int>(nearest(level)); }
};

// The doubled E2M1 levels 0, 1, 2, 3, 4, 6, 8, 12: integers below 4, then steps of 2, then of 4.
struct E2M1Levels {
  Vec4 levels(Vec4 quotients) const {
    const Vec4 inside = clamp(quotients, -12.0f, 12.0f);
    const Vec4 magnitude = inside < splat(0) ? -inside : inside;
    const Vec4 step =
        magnitude < splat(4.0f) ? splat(1.0f) : (magnitude < splat(8.0f) ? splat(2.0f) : splat(4.0f));
    return round(inside / step) * step;
  }
  int code(float level) const {
    const auto magnitude = static_cast<int>(std::fabs(level));
    const int index = magnitude < 5 ? magnitude : magnitude == 6 ? 5 : magnitude == 8 ? 6 : 7;
    return level < 0 ? index + 8 : index;
  }
};

// Sum of w (x - scale * level)^2 with the nearest levels.
template <int kSize, typename Levels>
float scaled_error(const Levels& type, const float* x, const float* weights, float scale) {
  const Vec4 inv = splat(inverse(scale)), s = splat(scale);
  Vec4 total{};
  for (int i = 0; i < kSize; i += 4) {
    const Vec4 value = load(x + i), error = value - s * type.levels(value * inv);
    total += load(weights + i) * error * error;
  }
  return sum(total);
}

// With levels q nearest to x / scale, and xq and qq the weighted sums of x * q and q * q: the best scale for
// these levels is xq / qq, and takes gain() off the error of all zeros.
struct Projection {
  float xq = 0, qq = 0;
  float scale() const { return qq > 0 ? xq / qq : 0; }
  float gain() const { return xq * scale(); }
};
template <int kSize, typename Levels>
Projection project(const Levels& type, const float* x, const float* weights, float inv) {
  const Vec4 inverses = splat(inv);
  Vec4 xq{}, qq{};
  for (int i = 0; i < kSize; i += 4) {
    const Vec4 value = load(x + i), level = type.levels(value * inverses), wl = load(weights + i) * level;
    xq += wl * value;
    qq += wl * level;
  }
  return {sum(xq), sum(qq)};
}

template <int kSize, typename Levels>
void scaled_codes(const Levels& type, const float* x, float scale, std::uint8_t* codes) {
  const Vec4 inv = splat(inverse(scale));
  for (int i = 0; i < kSize; i += 4) {
    const Vec4 level = type.levels(load(x + i) * inv);
    for (int k = 0; k < 4; ++k) codes[i + k] = static_cast<std::uint8_t>(type.code(level[k]));
  }
}

// Values scale * q + offset, q an integer from 0 to top.
struct Affine {
  float scale = 0, offset = 0;
};

template <int kSize>
float affine_error(const float* x, const float* weights, Affine to, float top) {
  const Vec4 inv = splat(inverse(to.scale)), s = splat(to.scale), offset = splat(to.offset);
  Vec4 total{};
  for (int i = 0; i < kSize; i += 4) {
    const Vec4 value = load(x + i) - offset;
    const Vec4 error = value - s * round(clamp(value * inv, 0.0f, top));
    total += load(weights + i) * error * error;
  }
  return sum(total);
}

// The weighted sums that the best scale and offset for given codes follow from: of 1 (w), x, x * x, q, ...
struct AffineSums {
  float w = 0, x = 0, xx = 0, q = 0, qq = 0, xq = 0;

  // The least error, and where it is. With an offset above zero where none may be (`offset_limit` 0), the
  // best scale without one.
  struct Best {
    Affine at;
    float error;
  };
  Best solve(float offset_limit) const {
    const float determinant = qq * w - q * q;
    Affine at;
    // All codes equal (up to rounding): the offset alone carries the values.
    if (determinant > 1e-6f * qq * w) {
      at.scale = (xq * w - x * q) / determinant;
      at.offset = (qq * x - q * xq) / determinant;
    } else if (w > 0) {
      at.offset = x / w;
    }
    if (at.offset > offset_limit) {
      at.offset = 0;
      at.scale = qq > 0 ? xq / qq : 0;
    }
    // Written so for any offset, since both branches above satisfy the equations that they could.
    return {at, xx - at.scale * xq - at.offset * x};
  }
};
template <int kSize>
AffineSums affine_sums(const float* x, const float* weights, float inv, float offset, float top) {
  const Vec4 inverses = splat(inv), offsets = splat(offset);
  Vec4 w{}, wx{}, wxx{}, wq{}, wqq{}, wxq{};
  for (int i = 0; i < kSize; i += 4) {
    const Vec4 value = load(x + i), weight = load(weights + i);
    const Vec4 q = round(clamp((value - offsets) * inverses, 0.0f, top));
    w += weight;
    wx += weight * value;
    wxx += weight * value * value;
    wq += weight * q;
    wqq += weight * q * q;
    wxq += weight * q * value;
  }
  return {sum(w), sum(wx), sum(wxx), sum(wq), sum(wqq), sum(wxq)};
}

template <int kSize>
void affine_codes(const float* x, Affine to, float top, std::uint8_t* codes) {
  const Vec4 inv = splat(inverse(to.scale)), offset = splat(to.offset);
  for (int i = 0; i < kSize; i += 4) {
    const Vec4 q = round(clamp((load(x + i) - offset) * inv, 0.0f, top));
    for (int k = 0; k < 4; ++k) codes[i + k] = static_cast<std::uint8_t>(q[k]);
  }
}

// A scale as files hold it. Scales beyond the halves become the largest half, never infinity.
struct Half {
  std::uint16_t bits = 0;
  float value = 0;
};
inline Half nearest_half(float value) {
  const std::uint16_t bits = f32_to_f16(std::clamp(value, -65504.0f, 65504.0f));
  const float rounded = f16_to_f32(bits);
  return rounded == 0 ? Half{} : Half{bits, rounded};  // no negative zeros
}
// As nearest_half, but what is not zero stays so: the smallest half may still be of use.
inline Half nonzero_half(float value) {
  const Half half = nearest_half(value);
  if (half.value != 0 || value == 0) return half;
  return value < 0 ? Half{0x8001, -0x1p-24f} : Half{0x0001, 0x1p-24f};
}

// How much the values of IQ4_NL and of the types with scales alone count: by x^2, as in ggml, but on a base
// of twice their mean square. Without the base, small values are sacrificed to large ones: the plain error of
// Q3_K and IQ4_XS lies 1..3% above ggml's. With it, plain and weighted error both lie below
// (bench/quant_error).
inline void square_weights(const float* x, int count, float* weights) {
  float squares = 0;
  for (int i = 0; i < count; ++i) squares += x[i] * x[i];
  const float base = 2 * squares / static_cast<float>(count);
  for (int i = 0; i < count; ++i) weights[i] = x[i] * x[i] + base;
}

inline float extreme_of(const float* x, int count) {
  float extreme = 0;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

// Which inverse scales to try: those that bring the value of largest magnitude to levels from `first` to
// `last` in `count` steps, of either sign.
struct Candidates {
  float first, last;
  int count;
};

// A scale of least error among the candidates and those that project() improves them to. 0 for zeros.
template <int kSize, typename Levels>
float best_scale(const Levels& type, const float* x, const float* weights, Candidates candidates) {
  const float extreme = extreme_of(x, kSize);
  const float unit = inverse(extreme);
  Projection best;
  const auto consider = [&](float inv) {
    const Projection found = project<kSize>(type, x, weights, inv);
    if (found.gain() <= best.gain()) return false;
    best = found;
    return true;
  };
  const float step = (candidates.last - candidates.first) / static_cast<float>(candidates.count - 1);
  for (int i = 0; i < candidates.count; ++i) {
    const float level = candidates.first + step * static_cast<float>(i);
    consider(level * unit);
    consider(-level * unit);
  }
  // Levels nearest under the improved scale may be better still; it rarely takes more than two rounds.
  for (int round = 0; round < 4 && consider(inverse(best.scale())); ++round) continue;
  return best.scale();
}

}  // namespace doppler::fit
