// Encoding of the types with blocks of 32 values. All but IQ4_NL count every value's error alike.
#include <cstring>

#include "quant/block_encoders.h"
#include "quant/fit.h"

namespace doppler {
namespace {

using namespace fit;

constexpr int kSize = 32;

constexpr std::array<float, kSize> kOnes = [] {
  std::array<float, kSize> ones{};
  ones.fill(1.0f);
  return ones;
}();

template <typename Block>
void store(const Block& block, std::byte* out) {
  std::memcpy(out, &block, sizeof(block));
}

void pack_nibbles(const std::uint8_t* codes, std::uint8_t (&qs)[16]) {
  for (int i = 0; i < 16; ++i)
    qs[i] = static_cast<std::uint8_t>((codes[i] & 0xf) | (codes[i + 16] & 0xf) << 4);
}
void pack_fifth_bits(const std::uint8_t* codes, std::uint8_t (&qh)[4]) {
  for (int i = 0; i < kSize; ++i)
    qh[i / 8] = static_cast<std::uint8_t>(qh[i / 8] | (codes[i] >> 4 & 1) << (i % 8));
}

// The half next to the best scale under which the error is least; with kNearest, the one that takes the
// extreme to `full`.
template <typename Levels>
Half choose_scale(const Levels& type, const float* x, const float* weights, float full, Candidates candidates,
                  EncodeSearch search) {
  const float simple = extreme_of(x, kSize) / full;
  if (search == EncodeSearch::kNearest) return nearest_half(simple);
  Half best = nearest_half(simple);
  float least = scaled_error<kSize>(type, x, weights, best.value);
  const auto consider = [&](Half half) {
    const float error = scaled_error<kSize>(type, x, weights, half.value);
    if (error >= least) return false;
    least = error;
    best = half;
    return true;
  };
  consider(nonzero_half(best_scale<kSize>(type, x, weights, candidates)));
  // Rounding the scale to a half moves values across the borders between levels.
  for (int round = 0; round < 4; ++round) {
    if (!consider(nonzero_half(project<kSize>(type, x, weights, inverse(best.value)).scale()))) break;
  }
  for (const int step : {-1, 1}) {
    const Half start = best;
    const auto bits = static_cast<std::uint16_t>(start.bits + step);
    if (start.value != 0 && std::isfinite(f16_to_f32(bits))) consider({bits, f16_to_f32(bits)});
  }
  return best;
}

struct AffineHalves {
  Half d, m;
  Affine affine() const { return {d.value, m.value}; }
};

// Scale and offset of Q4_1 and Q5_1, whose values are d * q + m.
AffineHalves choose_affine(const float* x, float top, EncodeSearch search) {
  const auto [low, high] = std::minmax_element(x, x + kSize);
  AffineHalves best{nearest_half((*high - *low) / top), nearest_half(*low)};
  if (search == EncodeSearch::kNearest) return best;
  float least = affine_error<kSize>(x, kOnes.data(), best.affine(), top);
  const auto consider = [&](Affine at) {
    const AffineHalves halves{nearest_half(at.scale), nearest_half(at.offset)};
    const float error = affine_error<kSize>(x, kOnes.data(), halves.affine(), top);
    if (error >= least) return false;
    least = error;
    best = halves;
    return true;
  };
  // The ends of the range move inwards by up to three steps each: outliers are cut where that helps the rest.
  const float step = (*high - *low) / top;
  for (float cut_low = -0.5f; cut_low <= 3.0f; cut_low += 0.5f) {
    for (float cut_high = -0.5f; cut_high <= 3.0f; cut_high += 0.5f) {
      const float offset = *low + cut_low * step, range = *high - cut_high * step - offset;
      const AffineSums sums = affine_sums<kSize>(x, kOnes.data(), inverse(range / top), offset, top);
      const AffineSums::Best found = sums.solve(HUGE_VALF);
      if (found.error < least * 1.05f) consider(found.at);
    }
  }
  for (int round = 0; round < 4; ++round) {
    const AffineSums sums = affine_sums<kSize>(x, kOnes.data(), inverse(best.d.value), best.m.value, top);
    if (!consider(sums.solve(HUGE_VALF).at)) break;
  }
  return best;
}

}  // namespace

void encode_q4_0(const float* x, std::byte* out, EncodeSearch search) {
  constexpr UniformLevels kLevels{-8, 7};
  const Half d = choose_scale(kLevels, x, kOnes.data(), -8.0f, {5.0f, 9.5f, 24}, search);
  std::uint8_t codes[kSize];
  scaled_codes<kSize>(kLevels, x, d.value, codes);
  BlockQ4_0 block{.d = d.bits, .qs = {}};
  pack_nibbles(codes, block.qs);
  store(block, out);
}

void encode_q5_0(const float* x, std::byte* out, EncodeSearch search) {
  constexpr UniformLevels kLevels{-16, 15};
  const Half d = choose_scale(kLevels, x, kOnes.data(), -16.0f, {12.0f, 17.5f, 32}, search);
  std::uint8_t codes[kSize];
  scaled_codes<kSize>(kLevels, x, d.value, codes);
  BlockQ5_0 block{.d = d.bits, .qh = {}, .qs = {}};
  pack_nibbles(codes, block.qs);
  pack_fifth_bits(codes, block.qh);
  store(block, out);
}

void encode_q8_0(const float* x, std::byte* out, EncodeSearch search) {
  // Never -128: kernels that multiply magnitudes could not hold it.
  constexpr UniformLevels kLevels{-127, 127};
  const Half d = choose_scale(kLevels, x, kOnes.data(), 127.0f, {117.0f, 130.0f, 66}, search);
  std::uint8_t codes[kSize];
  scaled_codes<kSize>(kLevels, x, d.value, codes);
  BlockQ8_0 block{.d = d.bits, .qs = {}};
  for (int i = 0; i < kSize; ++i) block.qs[i] = static_cast<std::int8_t>(codes[i] - 127);
  store(block, out);
}

void encode_iq4_nl(const float* x, std::byte* out, EncodeSearch search) {
  constexpr IQ4Levels kLevels;
  std::array<float, kSize> weights;
  square_weights(x, kSize, weights.data());
  const Half d = choose_scale(kLevels, x, weights.data(), -127.0f, {95.0f, 140.0f, 24}, search);
  BlockIQ4_NL block{.d = d.bits, .qs = {}};
  std::uint8_t codes[kSize];
  scaled_codes<kSize>(kLevels, x, d.value, codes);
  pack_nibbles(codes, block.qs);
  store(block, out);
}

void encode_mxfp4(const float* x, std::byte* out, EncodeSearch search) {
  constexpr E2M1Levels kLevels;
  const float extreme = std::fabs(extreme_of(x, kSize));
  BlockMXFP4 block{};
  if (extreme == 0) return store(block, out);
  // The rule of the OCP specification: the largest value's exponent becomes the largest of E2M1, which is 2.
  // The code is the exponent plus 127 less that; values below the smallest scale keep the smallest.
  const int simple = std::ilogb(extreme) - 2 + 127;
  float scaled[kSize];
  int best = std::clamp(simple, 0, 254);
  if (search == EncodeSearch::kBest) {
    float least = HUGE_VALF;
    // One higher keeps values between 6 and 8 whole, one lower cuts the largest to half.
    for (int e = std::max(simple - 1, 0); e <= std::min(simple + 1, 254); ++e) {
      const float unit = mxfp4_half_scale(static_cast<unsigned>(e));
      for (int i = 0; i < kSize; ++i) scaled[i] = x[i] / unit;
      const float error =
          std::ldexp(scaled_error<kSize>(kLevels, scaled, kOnes.data(), 1.0f), 2 * (e - simple));
      if (error < least) {
        least = error;
        best = e;
      }
    }
  }
  const float unit = mxfp4_half_scale(static_cast<unsigned>(best));
  for (int i = 0; i < kSize; ++i) scaled[i] = x[i] / unit;
  std::uint8_t codes[kSize];
  scaled_codes<kSize>(kLevels, scaled, 1.0f, codes);
  block.e = static_cast<std::uint8_t>(best);
  pack_nibbles(codes, block.qs);
  store(block, out);
}

void encode_q4_1(const float* x, std::byte* out, EncodeSearch search) {
  const AffineHalves to = choose_affine(x, 15.0f, search);
  std::uint8_t codes[kSize];
  affine_codes<kSize>(x, to.affine(), 15.0f, codes);
  BlockQ4_1 block{.d = to.d.bits, .m = to.m.bits, .qs = {}};
  pack_nibbles(codes, block.qs);
  store(block, out);
}

void encode_q5_1(const float* x, std::byte* out, EncodeSearch search) {
  const AffineHalves to = choose_affine(x, 31.0f, search);
  std::uint8_t codes[kSize];
  affine_codes<kSize>(x, to.affine(), 31.0f, codes);
  BlockQ5_1 block{.d = to.d.bits, .m = to.m.bits, .qh = {}, .qs = {}};
  pack_nibbles(codes, block.qs);
  pack_fifth_bits(codes, block.qh);
  store(block, out);
}

}  // namespace doppler
