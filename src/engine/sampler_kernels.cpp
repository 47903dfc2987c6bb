#include "engine/sampler_kernels.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace doppler {

// The widest vector code that the machine supports is chosen at run time; other machines than x86 have one
// width. The results are the same: vector lanes add, multiply, divide and compare as scalars do, and no sum
// here depends on the number of lanes.
#if defined(__x86_64__) && defined(__GNUC__)
#define DOPPLER_WIDE_(call_wide, call)                          \
  static const bool wide = __builtin_cpu_supports("avx2") != 0; \
  if (wide) return call_wide;                                   \
  return call
#define DOPPLER_AVX2_ __attribute__((target("avx2")))
#define DOPPLER_INLINE_ __attribute__((always_inline)) inline
#else
#define DOPPLER_WIDE_(call_wide, call) return call
#define DOPPLER_AVX2_ [[maybe_unused]]
#define DOPPLER_INLINE_ inline
#endif

// Halves are folded onto each other: these loops have no dependence, so compilers vectorise them, unlike a
// running maximum, whose treatment of NaN they must keep.
template <std::size_t kSize, std::size_t kTo>
static void fold(const float* values, float* maxima) {
  if constexpr (kSize == 2 * kTo) {
    for (std::size_t i = 0; i < kTo; ++i)
      maxima[i] = values[i] > values[i + kTo] ? values[i] : values[i + kTo];
  } else {
    float larger[kSize / 2];
    fold<kSize, kSize / 2>(values, larger);
    fold<kSize / 2, kTo>(larger, maxima);
  }
}

float block_maximum(const float* block, bool& bad) {
  std::uint32_t wrong = 0;
  for (std::size_t i = 0; i < kSamplerBlock; ++i)  // NaN is not below anything
    wrong |= block[i] < std::numeric_limits<float>::infinity() ? 0u : 1u;
  bad |= wrong != 0;
  float maximum;
  fold<kSamplerBlock, 1>(block, &maximum);
  return maximum;
}

void group_maxima(const float* block, float* maxima) {
  fold<kSamplerBlock, kSamplerGroups>(block, maxima);
}

void take_out(float* block, const std::uint32_t* marks, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    block[i] = marks[i] != 0 ? -std::numeric_limits<float>::infinity() : block[i];
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, and exp(r) = 1 + r + r^2 q(r). The coefficients
// of q interpolate it at ten Chebyshev points, which leaves an error of 0.15 units in the last place.
static DOPPLER_INLINE_ double weight(double x) {
  constexpr double kPerLn2 = 0x1.71547652b82fep+0;
  // ln 2 in two parts, the first short enough that its product with n is exact.
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  // 1.5 * 2^52: adding it leaves the nearest integer in the low bits of the sum.
  constexpr double kRound = 0x1.8p52;
  const double shifted = x * kPerLn2 + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double q = 0x1.af38a9b0ec855p-26;
  q = q * r + 0x1.289185613a3d6p-22;
  q = q * r + 0x1.71de0dae63bb3p-19;
  q = q * r + 0x1.a019b90d2ae7ap-16;
  q = q * r + 0x1.a01a01a7c41d5p-13;
  q = q * r + 0x1.6c16c1788bd90p-10;
  q = q * r + 0x1.11111111109b3p-7;
  q = q * r + 0x1.5555555553d63p-5;
  q = q * r + 0x1.5555555555556p-3;
  q = q * r + 0x1.0000000000001p-1;
  const double mantissa = 1 + (r + r * r * q);
  // Times 2^n, by adding n to the exponent, which x >= -64 keeps far from under- and overflow.
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(mantissa) +
                               (std::bit_cast<std::uint64_t>(shifted) << 52));
}

double weight_of(double x) {
  return weight(x);
}

std::int32_t bucket_of(double x, const Weighing& w) {
  constexpr double kLast = kSamplerBuckets - 1;
  if (!(x >= w.lowest)) return kSamplerBuckets;
  const double place = x * -w.scale;
  return static_cast<std::int32_t>(place < kLast ? place : kLast);
}

// exp of it, or 0 where it is negligible. Both sides are computed and one is chosen, as vector code does.
static DOPPLER_INLINE_ double bounded_weight(double x) {
  const double weighed = weight(x > kNegligible ? x : kNegligible);
  return x >= kNegligible ? weighed : 0.0;
}

static DOPPLER_INLINE_ void weigh(const float* block, const Weighing& weighing, double* weights,
                                  std::int32_t* buckets) {
  constexpr double kLast = kSamplerBuckets - 1;
  const Weighing w = weighing;  // a copy, which the stores below cannot alias
  double places[kSamplerBlock];
  for (std::size_t i = 0; i < kSamplerBlock; ++i) {
    const double x = (block[i] - w.largest) / w.temperature;
    weights[i] = bounded_weight(x);
    const double place = x * -w.scale;
    places[i] = x >= w.lowest ? (place < kLast ? place : kLast) : kSamplerBuckets;
  }
  // In a loop of its own, because compilers do not vectorise a loop that also converts to numbers of another
  // size.
  for (std::size_t i = 0; i < kSamplerBlock; ++i) buckets[i] = static_cast<std::int32_t>(places[i]);
}

DOPPLER_AVX2_ static void weigh_wide(const float* block, const Weighing& weighing, double* weights,
                                     std::int32_t* buckets) {
  weigh(block, weighing, weights, buckets);
}

void weigh_block(const float* block, const Weighing& weighing, double* weights, std::int32_t* buckets) {
  DOPPLER_WIDE_(weigh_wide(block, weighing, weights, buckets), weigh(block, weighing, weights, buckets));
}

static DOPPLER_INLINE_ double sum_weights(const float* block, const Weighing& weighing) {
  constexpr std::size_t kLanes = 8;
  const Weighing w = weighing;
  double weights[kSamplerBlock];
  for (std::size_t i = 0; i < kSamplerBlock; ++i)
    weights[i] = bounded_weight((block[i] - w.largest) / w.temperature);
  double sums[kLanes] = {};
  for (std::size_t i = 0; i < kSamplerBlock; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

DOPPLER_AVX2_ static double sum_weights_wide(const float* block, const Weighing& weighing) {
  return sum_weights(block, weighing);
}

double block_weight(const float* block, const Weighing& weighing) {
  DOPPLER_WIDE_(sum_weights_wide(block, weighing), sum_weights(block, weighing));
}

bool block_holds(const std::uint16_t* buckets, std::uint16_t bucket) {
  std::uint16_t found = 0;
  for (std::size_t i = 0; i < kSamplerBlock; ++i) found |= static_cast<std::uint16_t>(buckets[i] == bucket);
  return found != 0;
}

}  // namespace doppler
