// Encoding of the super-blocks whose sub-blocks have a scale and a minimum: Q2_K, Q4_K, Q5_K. A value's error
// counts by its magnitude (Q2_K), or by that plus the root mean square of its sub-block (the others), as in
// ggml.
#include <cstring>

#include "quant/block_encoders.h"
#include "quant/fit.h"

namespace doppler {
namespace {

using namespace fit;

constexpr int kValues = 256;

template <int kSubValues>
struct AffineType {
  static constexpr int kSize = kSubValues, kSubs = kValues / kSubValues;
  float top;                      // the highest code
  int scale_top;                  // the highest integer scale and minimum
  bool add_rms;                   // to the weights
  float first_range, last_range;  // codes that the range of a sub-block spans, in the search
  int ranges;
};

struct Packed {
  int scale = 0, min = 0;
};

template <typename Type>
struct AffineFit {
  Half d, dmin;
  std::array<Packed, Type::kSubs> subs{};
  float error = HUGE_VALF;

  // Offsets are stored negated.
  Affine affine(Packed packed) const {
    return {d.value * static_cast<float>(packed.scale), -(dmin.value * static_cast<float>(packed.min))};
  }
};

template <typename Type>
using Ideals = std::array<Affine, Type::kSubs>;

template <typename Type>
void fill_weights(const Type& type, const float* x, float* weights) {
  for (int j = 0; j < Type::kSubs; ++j, x += Type::kSize, weights += Type::kSize) {
    float squares = 0;
    for (int i = 0; i < Type::kSize; ++i) squares += x[i] * x[i];
    const float rms = type.add_rms ? std::sqrt(squares / static_cast<float>(Type::kSize)) : 0;
    for (int i = 0; i < Type::kSize; ++i) weights[i] = rms + std::fabs(x[i]);
  }
}

// Scale and offset (at most zero) of a sub-block, free of the grid they will be rounded to.
template <typename Type>
Affine ideal_affine(const Type& type, const float* x, const float* weights, EncodeSearch search) {
  const auto [least, most] = std::minmax_element(x, x + Type::kSize);
  const float low = std::min(*least, 0.0f), high = std::max(*most, low);
  Affine best{(high - low) / type.top, low};
  if (search == EncodeSearch::kNearest || high == low) return best;
  float error = HUGE_VALF;
  const auto consider = [&](float inv, float offset) {
    const AffineSums sums = affine_sums<Type::kSize>(x, weights, inv, offset, type.top);
    const AffineSums::Best found = sums.solve(0);
    if (!(found.error < error)) return false;
    error = found.error;
    best = found.at;
    return true;
  };
  const float step = (type.last_range - type.first_range) / static_cast<float>(type.ranges - 1);
  for (int i = 0; i < type.ranges; ++i) {
    const float inv = (type.first_range + step * static_cast<float>(i)) * inverse(high - low);
    const float unit = inverse(inv);
    // The range may begin at the lowest value, or beyond it on either side, which clamps or frees the others.
    for (const float shift : {-0.35f, 0.0f, 0.35f, 0.7f}) consider(inv, std::min(low + shift * unit, 0.0f));
  }
  for (int round = 0; round < 4 && consider(inverse(best.scale), best.offset); ++round) continue;
  return best;
}

// The integer scales and minima that suit d and dmin. With kBest, a walk over neighbouring pairs from the
// nearest to the ideal, downhill.
template <typename Type>
AffineFit<Type> fit_subs(const Type& type, const float* x, const float* weights, Half d, Half dmin,
                         const Ideals<Type>& ideals, EncodeSearch search) {
  AffineFit<Type> fit{.d = d, .dmin = dmin, .error = 0};
  const auto integer = [&](float ratio) {
    return static_cast<int>(std::lround(std::clamp(ratio, 0.0f, static_cast<float>(type.scale_top))));
  };
  const float inv_d = inverse(d.value), inv_dmin = inverse(dmin.value);
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    Packed& packed = fit.subs[j];
    packed = {integer(ideals[j].scale * inv_d), integer(-ideals[j].offset * inv_dmin)};
    if (search == EncodeSearch::kNearest) continue;
    const float *sub = x + j * Type::kSize, *sub_weights = weights + j * Type::kSize;
    float least = affine_error<Type::kSize>(sub, sub_weights, fit.affine(packed), type.top);
    for (int round = 0; round < 3; ++round) {
      const Packed centre = packed;
      for (int scale = std::max(centre.scale - 1, 0); scale <= std::min(centre.scale + 1, type.scale_top);
           ++scale) {
        for (int min = std::max(centre.min - 1, 0); min <= std::min(centre.min + 1, type.scale_top); ++min) {
          if (scale == centre.scale && min == centre.min) continue;
          const float error = affine_error<Type::kSize>(sub, sub_weights, fit.affine({scale, min}), type.top);
          if (error < least) {
            least = error;
            packed = {scale, min};
          }
        }
      }
      if (packed.scale == centre.scale && packed.min == centre.min) break;
    }
    fit.error += least;
  }
  return fit;
}

// The best d and dmin for the integers and codes that a fit has (x = d * a - dmin * b with a = scale * q,
// b = min), and the ideals of the sub-blocks under their codes.
template <typename Type>
Affine improve(const Type& type, const float* x, const float* weights, const AffineFit<Type>& fit,
               Ideals<Type>& ideals) {
  float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const Affine at = fit.affine(fit.subs[j]);
    const AffineSums sums = affine_sums<Type::kSize>(x + j * Type::kSize, weights + j * Type::kSize,
                                                     inverse(at.scale), at.offset, type.top);
    const auto scale = static_cast<float>(fit.subs[j].scale), min = static_cast<float>(fit.subs[j].min);
    aa += scale * scale * sums.qq;
    ab -= scale * min * sums.q;
    bb += min * min * sums.w;
    xa += scale * sums.xq;
    xb -= min * sums.x;
    if (fit.subs[j].scale != 0) ideals[j] = sums.solve(0).at;
  }
  const float determinant = aa * bb - ab * ab;
  if (determinant > 1e-6f * aa * bb)
    return {(xa * bb - xb * ab) / determinant, (xb * aa - xa * ab) / determinant};
  return {aa > 0 ? xa / aa : 0, fit.dmin.value};
}

template <typename Type>
AffineFit<Type> fit_block(const Type& type, const float* x, EncodeSearch search) {
  std::array<float, kValues> weights;
  fill_weights(type, x, weights.data());
  Ideals<Type> ideals;
  float scale = 0, min = 0;
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const std::size_t at = j * Type::kSize;
    ideals[j] = ideal_affine(type, x + at, weights.data() + at, search);
    scale = std::max(scale, ideals[j].scale);
    min = std::max(min, -ideals[j].offset);
  }
  const auto top = static_cast<float>(type.scale_top);
  if (search == EncodeSearch::kNearest)
    return fit_subs(type, x, weights.data(), nearest_half(scale / top), nearest_half(min / top), ideals,
                    search);
  AffineFit<Type> best;
  const auto consider = [&](Affine halves) {
    const auto found = fit_subs(type, x, weights.data(), nonzero_half(std::max(halves.scale, 0.0f)),
                                nonzero_half(std::max(halves.offset, 0.0f)), ideals, search);
    if (found.error >= best.error) return false;
    best = found;
    return true;
  };
  consider({scale / top, min / top});
  for (int round = 0; round < 4; ++round) {
    if (!consider(improve(type, x, weights.data(), best, ideals))) break;
  }
  return best;
}

template <typename Type>
void block_codes(const Type& type, const float* x, const AffineFit<Type>& fit, std::uint8_t* codes) {
  for (std::size_t j = 0; j < Type::kSubs; ++j) {
    const std::size_t at = j * Type::kSize;
    affine_codes<Type::kSize>(x + at, fit.affine(fit.subs[j]), type.top, codes + at);
  }
}

constexpr AffineType<16> kQ2{3, 15, false, 2.2f, 3.8f, 14};
constexpr AffineType<32> kQ4{15, 63, true, 13.0f, 16.0f, 14};
constexpr AffineType<32> kQ5{31, 63, true, 29.0f, 32.0f, 14};

// Writes the fields that Q4_K and Q5_K blocks have in common.
template <typename Block, typename Type>
void put_halves(const AffineFit<Type>& fit, Block& block) {
  block.d = fit.d.bits;
  block.dmin = fit.dmin.bits;
  for (unsigned j = 0; j < 8; ++j) {
    set_q4_k_scale(block.scales, j,
                   {static_cast<unsigned>(fit.subs[j].scale), static_cast<unsigned>(fit.subs[j].min)});
  }
}
void put_nibbles(const std::uint8_t* codes, std::uint8_t (&qs)[128]) {
  for (int i = 0; i < 128; ++i) {
    const int low = i / 32 * 64 + i % 32;
    qs[i] = static_cast<std::uint8_t>((codes[low] & 0xf) | (codes[low + 32] & 0xf) << 4);
  }
}

}  // namespace

void encode_q2_k(const float* x, std::byte* out, EncodeSearch search) {
  const auto fit = fit_block(kQ2, x, search);
  std::uint8_t codes[kValues];
  block_codes(kQ2, x, fit, codes);
  BlockQ2_K block{};
  block.d = fit.d.bits;
  block.dmin = fit.dmin.bits;
  for (std::size_t j = 0; j < 16; ++j)
    block.scales[j] = static_cast<std::uint8_t>(fit.subs[j].scale | fit.subs[j].min << 4);
  for (int i = 0; i < kValues; ++i) {
    std::uint8_t& byte = block.qs[i / 128 * 32 + i % 32];
    byte = static_cast<std::uint8_t>(byte | codes[i] << (i % 128 / 32 * 2));
  }
  std::memcpy(out, &block, sizeof(block));
}

void encode_q4_k(const float* x, std::byte* out, EncodeSearch search) {
  const auto fit = fit_block(kQ4, x, search);
  std::uint8_t codes[kValues];
  block_codes(kQ4, x, fit, codes);
  BlockQ4_K block{};
  put_halves(fit, block);
  put_nibbles(codes, block.qs);
  std::memcpy(out, &block, sizeof(block));
}

void encode_q5_k(const float* x, std::byte* out, EncodeSearch search) {
  const auto fit = fit_block(kQ5, x, search);
  std::uint8_t codes[kValues];
  block_codes(kQ5, x, fit, codes);
  BlockQ5_K block{};
  put_halves(fit, block);
  put_nibbles(codes, block.qs);
  for (int i = 0; i < kValues; ++i)
    block.qh[i % 32] = static_cast<std::uint8_t>(block.qh[i % 32] | codes[i] >> 4 << (i / 32));
  std::memcpy(out, &block, sizeof(block));
}

}  // namespace doppler
