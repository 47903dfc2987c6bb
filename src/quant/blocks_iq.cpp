// Decoding of the IQ types with grids, and of IQ4_XS.
#include <bit>

#include "base/float16.h"
#include "quant/block_decoders.h"
#include "quant/iq_grids.h"

namespace doppler {
namespace {

// The eighth sign makes the number of negative values even.
unsigned eight_signs(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7;
}

// Values scale * grid[i], negative where the sign bit is set.
template <std::size_t kCount>
void put_signed(const std::array<std::int8_t, kCount>& grid, unsigned signs, float scale, float* out) {
  for (std::size_t i = 0; i < kCount; ++i) {
    const float magnitude = static_cast<float>(grid[i]);
    out[i] = scale * ((signs >> i & 1u) != 0 ? -magnitude : magnitude);
  }
}

std::uint32_t word_at(const void* bytes) {
  std::uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

float quarter_scale(float d, unsigned scale) {
  return d * (static_cast<float>(scale) + 0.5f) * 0.25f;
}

void expand_iq2_xxs(const BlockIQ2_XXS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t indices = word_at(block.qs + 4 * j), rest = word_at(block.qs + 4 * j + 2);
    const float scale = quarter_scale(d, rest >> 28);
    for (unsigned g = 0; g < 4; ++g, out += 8)
      put_signed(kIQ2XXSGrid[indices >> (8 * g) & 0xffu], eight_signs(rest >> (7 * g) & 0x7fu), scale, out);
  }
}

void expand_iq2_xs(const BlockIQ2_XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (unsigned g = 0; g < 32; ++g, out += 8) {
    const float scale = quarter_scale(d, block.scales[g / 4] >> (g / 2 % 2 * 4) & 0xfu);
    put_signed(kIQ2XSGrid[block.qs[g] & 0x1ffu], eight_signs(block.qs[g] >> 9), scale, out);
  }
}

void expand_iq2_s(const BlockIQ2_S& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (unsigned g = 0; g < 32; ++g, out += 8) {
    const float scale = quarter_scale(d, block.scales[g / 4] >> (g / 2 % 2 * 4) & 0xfu);
    const unsigned high = block.qh[g / 4] >> (g % 4 * 2) & 3u;
    put_signed(kIQ2SGrid[block.qs[g] | high << 8], block.signs[g], scale, out);
  }
}

void expand_iq3_xxs(const BlockIQ3_XXS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t word = word_at(block.signs + 4 * j);
    const float scale = d * (static_cast<float>(word >> 28) + 0.5f) * 0.5f;
    for (unsigned g = 0; g < 4; ++g, out += 8) {
      const unsigned signs = eight_signs(word >> (7 * g) & 0x7fu);
      const std::uint8_t* indices = block.qs + 8 * j + 2 * g;
      put_signed(kIQ3XXSGrid[indices[0]], signs, scale, out);
      put_signed(kIQ3XXSGrid[indices[1]], signs >> 4, scale, out + 4);
    }
  }
}

void expand_iq3_s(const BlockIQ3_S& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (unsigned g = 0; g < 64; ++g, out += 4) {
    const unsigned scale = block.scales[g / 16] >> (g / 8 % 2 * 4) & 0xfu;
    const unsigned ninth = block.qh[g / 8] >> (g % 8) & 1u;
    put_signed(kIQ3SGrid[block.qs[g] | ninth << 8], block.signs[g / 2] >> (g % 2 * 4) & 0xfu,
               d * static_cast<float>(2 * scale + 1), out);
  }
}

// The ternary grids of the IQ1 types are shifted by an eighth, up or down.
void put_shifted(const std::array<std::int8_t, 8>& grid, bool down, float scale, float* out) {
  const float shift = down ? -0.125f : 0.125f;
  for (std::size_t i = 0; i < 8; ++i) out[i] = scale * (static_cast<float>(grid[i]) + shift);
}

void expand_iq1_s(const BlockIQ1_S& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (unsigned g = 0; g < 32; ++g, out += 8) {
    const unsigned qh = block.qh[g / 4];
    const unsigned index = block.qs[g] | (qh >> (g % 4 * 3) & 7u) << 8;
    put_shifted(kIQ1Grid[index], (qh & 0x8000u) != 0, d * static_cast<float>(2 * (qh >> 12 & 7u) + 1), out);
  }
}

void expand_iq1_m(const BlockIQ1_M& block, float* out) {
  std::uint16_t words[4];
  std::memcpy(words, block.scales, sizeof(words));
  unsigned half = 0;
  for (unsigned i = 0; i < 4; ++i) half |= static_cast<unsigned>(words[i] >> 12) << (4 * i);
  const float d = f16_to_f32(static_cast<std::uint16_t>(half));
  for (unsigned g = 0; g < 32; ++g, out += 8) {
    const unsigned scale = words[g / 8] >> (g / 2 % 4 * 3) & 7u;
    const unsigned high = block.qh[g / 2] >> (g % 2 * 4) & 0xfu;
    put_shifted(kIQ1Grid[block.qs[g] | (high & 7u) << 8], (high & 8u) != 0,
                d * static_cast<float>(2 * scale + 1), out);
  }
}

void expand_iq4_xs(const BlockIQ4_XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < 8; ++j, out += 32) {
    const int stored = (block.scales_l[j / 2] >> (j % 2 * 4) & 0xf) | (block.scales_h >> (2 * j) & 3) << 4;
    const float scale = d * static_cast<float>(stored - 32);
    for (int i = 0; i < 16; ++i) {
      const unsigned both = block.qs[16 * j + i];
      out[i] = scale * static_cast<float>(kIQ4Levels[both & 0xfu]);
      out[i + 16] = scale * static_cast<float>(kIQ4Levels[both >> 4]);
    }
  }
}

}  // namespace

void decode_iq1_s(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ1_S, 256, expand_iq1_s>(data, begin, out);
}
void decode_iq1_m(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ1_M, 256, expand_iq1_m>(data, begin, out);
}
void decode_iq2_xxs(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ2_XXS, 256, expand_iq2_xxs>(data, begin, out);
}
void decode_iq2_xs(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ2_XS, 256, expand_iq2_xs>(data, begin, out);
}
void decode_iq2_s(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ2_S, 256, expand_iq2_s>(data, begin, out);
}
void decode_iq3_xxs(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ3_XXS, 256, expand_iq3_xxs>(data, begin, out);
}
void decode_iq3_s(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ3_S, 256, expand_iq3_s>(data, begin, out);
}
void decode_iq4_xs(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ4_XS, 256, expand_iq4_xs>(data, begin, out);
}

}  // namespace doppler
