// Decoding of the K types: super-blocks of 256 values, with scales of 4 to 8 bits for sub-blocks of 16 or 32.
#include "base/float16.h"
#include "quant/block_decoders.h"

namespace doppler {
namespace {

void expand_q2_k(const BlockQ2_K& block, float* out) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (int j = 0; j < 16; ++j) {
    const float scale = d * static_cast<float>(block.scales[j] & 0xf);
    const float min = dmin * static_cast<float>(block.scales[j] >> 4);
    const std::uint8_t* qs = block.qs + j / 8 * 32 + j % 2 * 16;
    const int shift = j % 8 / 2 * 2;
    for (int l = 0; l < 16; ++l) *out++ = scale * static_cast<float>(qs[l] >> shift & 3) - min;
  }
}

void expand_q3_k(const BlockQ3_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < 16; ++j) {
    const auto stored = static_cast<int>(q3_k_scale(block.scales, static_cast<unsigned>(j)));
    const float scale = d * static_cast<float>(stored - 32);
    const std::uint8_t *qs = block.qs + j / 8 * 32 + j % 2 * 16, *hmask = block.hmask + j % 2 * 16;
    const int shift = j % 8 / 2 * 2;
    for (int l = 0; l < 16; ++l) {
      const int q = (qs[l] >> shift & 3) | (hmask[l] >> (j / 2) & 1) << 2;
      *out++ = scale * static_cast<float>(q - 4);
    }
  }
}

// Q4_K and Q5_K; `fifth(l, j)` is the fifth bit of value l of sub-block j.
template <typename Block, typename Fifth>
void expand_affine(const Block& block, float* out, Fifth fifth) {
  const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
  for (unsigned j = 0; j < 8; ++j) {
    const ScaleMin packed = q4_k_scale(block.scales, j);
    const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
    const std::uint8_t* qs = block.qs + j / 2 * 32;
    const unsigned shift = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] >> shift & 0xf) | fifth(l, j) << 4;
      *out++ = scale * static_cast<float>(q) - min;
    }
  }
}

void expand_q4_k(const BlockQ4_K& block, float* out) {
  expand_affine(block, out, [](int, unsigned) { return 0; });
}

void expand_q5_k(const BlockQ5_K& block, float* out) {
  expand_affine(block, out, [&](int l, unsigned j) { return block.qh[l] >> j & 1; });
}

void expand_q6_k(const BlockQ6_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int j = 0; j < 16; ++j) {
    const float scale = d * static_cast<float>(block.scales[j]);
    const int half = j / 8, quarter = j % 8 / 2, offset = j % 2 * 16;
    const std::uint8_t* ql = block.ql + half * 64 + quarter % 2 * 32 + offset;
    const std::uint8_t* qh = block.qh + half * 32 + offset;
    const int low_shift = quarter / 2 * 4, high_shift = quarter * 2;
    for (int l = 0; l < 16; ++l) {
      const int q = (ql[l] >> low_shift & 0xf) | (qh[l] >> high_shift & 3) << 4;
      *out++ = scale * static_cast<float>(q - 32);
    }
  }
}

}  // namespace

void decode_q2_k(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ2_K, 256, expand_q2_k>(data, begin, out);
}
void decode_q3_k(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ3_K, 256, expand_q3_k>(data, begin, out);
}
void decode_q4_k(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ4_K, 256, expand_q4_k>(data, begin, out);
}
void decode_q5_k(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ5_K, 256, expand_q5_k>(data, begin, out);
}
void decode_q6_k(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ6_K, 256, expand_q6_k>(data, begin, out);
}

}  // namespace doppler
