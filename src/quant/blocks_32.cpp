// Decoding of the types with blocks of 32 values.

#include "base/float16.h"
#include "quant/block_decoders.h"

namespace doppler {
namespace {

void expand_q4_0(const BlockQ4_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 0xf) - 8);
    out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

void expand_q4_1(const BlockQ4_1& block, float* out) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block.qs[i] & 0xf) + m;
    out[i + 16] = d * static_cast<float>(block.qs[i] >> 4) + m;
  }
}

struct FiveBits {
  int low, high;  // values i and i + 16
};
FiveBits five_bits(const std::uint8_t (&qh)[4], const std::uint8_t (&qs)[16], int i) {
  const int low_bit = qh[i / 8] >> (i % 8) & 1, high_bit = qh[2 + i / 8] >> (i % 8) & 1;
  return {(qs[i] & 0xf) | low_bit << 4, qs[i] >> 4 | high_bit << 4};
}

void expand_q5_0(const BlockQ5_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    const FiveBits q = five_bits(block.qh, block.qs, i);
    out[i] = d * static_cast<float>(q.low - 16);
    out[i + 16] = d * static_cast<float>(q.high - 16);
  }
}

void expand_q5_1(const BlockQ5_1& block, float* out) {
  const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
  for (int i = 0; i < 16; ++i) {
    const FiveBits q = five_bits(block.qh, block.qs, i);
    out[i] = d * static_cast<float>(q.low) + m;
    out[i + 16] = d * static_cast<float>(q.high) + m;
  }
}

void expand_q8_0(const BlockQ8_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

void expand_iq4_nl(const BlockIQ4_NL& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIQ4Levels[block.qs[i] & 0xf]);
    out[i + 16] = d * static_cast<float>(kIQ4Levels[block.qs[i] >> 4]);
  }
}

void expand_mxfp4(const BlockMXFP4& block, float* out) {
  const float d = mxfp4_half_scale(block.e);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kMXFP4Levels[block.qs[i] & 0xf]);
    out[i + 16] = d * static_cast<float>(kMXFP4Levels[block.qs[i] >> 4]);
  }
}

}  // namespace

void decode_q4_0(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ4_0, 32, expand_q4_0>(data, begin, out);
}
void decode_q4_1(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ4_1, 32, expand_q4_1>(data, begin, out);
}
void decode_q5_0(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ5_0, 32, expand_q5_0>(data, begin, out);
}
void decode_q5_1(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ5_1, 32, expand_q5_1>(data, begin, out);
}
void decode_q8_0(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockQ8_0, 32, expand_q8_0>(data, begin, out);
}
void decode_iq4_nl(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockIQ4_NL, 32, expand_iq4_nl>(data, begin, out);
}
void decode_mxfp4(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockMXFP4, 32, expand_mxfp4>(data, begin, out);
}

}  // namespace doppler
