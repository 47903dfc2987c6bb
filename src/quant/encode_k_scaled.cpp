// Encoding of the super-blocks whose sub-blocks have a scale alone: Q3_K, Q6_K, IQ4_XS. A value's error
// counts by the value's square, as in ggml: what large weights contribute to a product matters most.
#include <cstring>

#include "quant/block_encoders.h"
#include "quant/fit.h"

namespace doppler {
namespace {

using namespace fit;

constexpr int kValues = 256;

// A type's sub-blocks: their levels, the integers that their scales may be, where to look for scales.
template <typename LevelsType, int kSubValues>
struct ScaledType {
  using Levels = LevelsType;
  static constexpr int kSize = kSubValues, kSubs = kValues / kSubValues;
  Levels levels;
  float full;                 // the level that the extreme of a sub-block gets with kNearest
  int scale_low, scale_high;  // of the integer scales
  Candidates candidates;
};

template <typename Type>
struct ScaledFit {
  Half d;
  std::array<int, Type::kSubs> scales{};
  float error = HUGE_VALF;
};

// The integer scales that suit `d`: with kBest the one of least error among the neighbours of the ideal.
template <typename Type>
ScaledFit<Type> fit_scales(const Type& type, const float* x, const float* weights, Half d,
                           const std::array<float, Type::kSubs>& ideal, EncodeSearch search) {
  ScaledFit<Type> fit{.d = d, .error = 0};
  const float inv = inverse(d.value);
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const float *sub = x + j * Type::kSize, *sub_weights = weights + j * Type::kSize;
    const float wanted =
        std::clamp(ideal[j] * inv, static_cast<float>(type.scale_low), static_cast<float>(type.scale_high));
    const int nearest = static_cast<int>(std::lround(wanted));
    fit.scales[j] = nearest;
    if (search == EncodeSearch::kNearest) continue;
    float least = HUGE_VALF;
    for (int scale = std::max(nearest - 1, type.scale_low); scale <= std::min(nearest + 1, type.scale_high);
         ++scale) {
      const float error =
          scaled_error<Type::kSize>(type.levels, sub, sub_weights, d.value * static_cast<float>(scale));
      if (error < least) {
        least = error;
        fit.scales[j] = scale;
      }
    }
    fit.error += least;
  }
  return fit;
}

// The best d for the scales and levels that a fit has, and the ideal scale of each sub-block under them.
template <typename Type>
float improve(const Type& type, const float* x, const float* weights, const ScaledFit<Type>& fit,
              std::array<float, Type::kSubs>& ideal) {
  float xq = 0, qq = 0;
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const auto scale = static_cast<float>(fit.scales[j]);
    const Projection sub = project<Type::kSize>(type.levels, x + j * Type::kSize, weights + j * Type::kSize,
                                                inverse(fit.d.value * scale));
    xq += scale * sub.xq;
    qq += scale * scale * sub.qq;
    if (sub.qq > 0) ideal[j] = sub.scale();
  }
  return qq > 0 ? xq / qq : 0;
}

template <typename Type>
ScaledFit<Type> fit_block(const Type& type, const float* x, EncodeSearch search) {
  std::array<float, kValues> weights;
  square_weights(x, kValues, weights.data());
  std::array<float, Type::kSubs> ideal;
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const float* sub = x + j * Type::kSize;
    ideal[j] =
        search == EncodeSearch::kNearest
            ? extreme_of(sub, Type::kSize) / type.full
            : best_scale<Type::kSize>(type.levels, sub, weights.data() + j * Type::kSize, type.candidates);
  }
  const float extreme = extreme_of(ideal.data(), Type::kSubs);
  const auto low = static_cast<float>(type.scale_low), high = static_cast<float>(type.scale_high);
  if (search == EncodeSearch::kNearest)
    return fit_scales(type, x, weights.data(), nearest_half(extreme / low), ideal, search);
  ScaledFit<Type> best;
  // The largest scale becomes an integer at the end of its range, or one near it.
  for (const float full : {low, low + 1, high, high - 1}) {
    const auto found = fit_scales(type, x, weights.data(), nonzero_half(extreme / full), ideal, search);
    if (found.error < best.error) best = found;
  }
  for (int round = 0; round < 4; ++round) {
    const float d = improve(type, x, weights.data(), best, ideal);
    const auto found = fit_scales(type, x, weights.data(), nonzero_half(d), ideal, search);
    if (found.error >= best.error) break;
    best = found;
  }
  return best;
}

template <typename Type>
void block_codes(const Type& type, const float* x, const ScaledFit<Type>& fit, std::uint8_t* codes) {
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const std::size_t at = j * Type::kSize;
    scaled_codes<Type::kSize>(type.levels, x + at, fit.d.value * static_cast<float>(fit.scales[j]),
                              codes + at);
  }
}

constexpr ScaledType<UniformLevels, 16> kQ3{{-4, 3}, -4.0f, -32, 31, {2.2f, 5.0f, 22}};
constexpr ScaledType<UniformLevels, 16> kQ6{{-32, 31}, -32.0f, -128, 127, {28.0f, 33.5f, 28}};
constexpr ScaledType<IQ4Levels, 32> kIQ4{{}, -127.0f, -32, 31, {95.0f, 140.0f, 20}};

}  // namespace

void encode_q3_k(const float* x, std::byte* out, EncodeSearch search) {
  const auto fit = fit_block(kQ3, x, search);
  std::uint8_t codes[kValues];
  block_codes(kQ3, x, fit, codes);
  BlockQ3_K block{};
  block.d = fit.d.bits;
  for (unsigned j = 0; j < 16; ++j)
    set_q3_k_scale(block.scales, j, static_cast<unsigned>(fit.scales[j] + 32));
  for (int i = 0; i < kValues; ++i) {
    std::uint8_t &low = block.qs[i / 128 * 32 + i % 32], &high = block.hmask[i % 32];
    low = static_cast<std::uint8_t>(low | (codes[i] & 3) << (i % 128 / 32 * 2));
    high = static_cast<std::uint8_t>(high | codes[i] >> 2 << (i / 32));
  }
  std::memcpy(out, &block, sizeof(block));
}

void encode_q6_k(const float* x, std::byte* out, EncodeSearch search) {
  const auto fit = fit_block(kQ6, x, search);
  std::uint8_t codes[kValues];
  block_codes(kQ6, x, fit, codes);
  BlockQ6_K block{};
  block.d = fit.d.bits;
  for (std::size_t j = 0; j < 16; ++j) block.scales[j] = static_cast<std::int8_t>(fit.scales[j]);
  for (int i = 0; i < kValues; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    std::uint8_t &low = block.ql[half * 64 + quarter % 2 * 32 + l], &high = block.qh[half * 32 + l];
    low = static_cast<std::uint8_t>(low | (codes[i] & 0xf) << (quarter / 2 * 4));
    high = static_cast<std::uint8_t>(high | codes[i] >> 4 << (quarter * 2));
  }
  std::memcpy(out, &block, sizeof(block));
}

void encode_iq4_xs(const float* x, std::byte* out, EncodeSearch search) {
  const auto fit = fit_block(kIQ4, x, search);
  std::uint8_t codes[kValues];
  block_codes(kIQ4, x, fit, codes);
  BlockIQ4_XS block{};
  block.d = fit.d.bits;
  for (std::size_t j = 0; j < 8; ++j) {
    const int stored = fit.scales[j] + 32;
    block.scales_l[j / 2] = static_cast<std::uint8_t>(block.scales_l[j / 2] | (stored & 0xf) << (j % 2 * 4));
    block.scales_h = static_cast<std::uint16_t>(block.scales_h | stored >> 4 << (2 * j));
    for (std::size_t i = 0; i < 16; ++i)
      block.qs[16 * j + i] = static_cast<std::uint8_t>(codes[32 * j + i] | codes[32 * j + 16 + i] << 4);
  }
  std::memcpy(out, &block, sizeof(block));
}

}  // namespace doppler
