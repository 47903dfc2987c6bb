// The block layouts of GGUF's quantised types, byte for byte as files hold them (little-endian, no padding).
// Source: the struct definitions and dequantisers of ggml, which is the specification of these types.
//
// Common to all: `d` is an IEEE half, the scale of the whole block. Blocks of 32 values hold one scale (and
// maybe a minimum `m`); super-blocks of 256 values hold small integer scales for sub-blocks of 16 or 32 and
// a half that scales those (`dmin` for minima). A file may place blocks at any address: copy one out with
// memcpy before use.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace doppler {

// Value i < 16 lies in the low half of qs[i], value i + 16 in the high half: so in every 4-bit type of 32.
struct BlockQ4_0 {  // d * (q - 8)
  std::uint16_t d;
  std::uint8_t qs[16];
};
struct BlockQ4_1 {  // d * q + m
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
struct BlockQ5_0 {  // d * (q - 16)
  std::uint16_t d;
  std::uint8_t qh[4];  // bit i of the little-endian word is the fifth bit of value i
  std::uint8_t qs[16];
};
struct BlockQ5_1 {  // d * q + m
  std::uint16_t d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct BlockQ8_0 {  // d * q
  std::uint16_t d;
  std::int8_t qs[32];
};
struct BlockIQ4_NL {  // d * kIQ4Levels[q]
  std::uint16_t d;
  std::uint8_t qs[16];
};
// The scale's code 255 has no meaning of its own in ggml; in the OCP specification it is NaN.
struct BlockMXFP4 {  // 2^(e - 128) * kMXFP4Levels[q]
  std::uint8_t e;
  std::uint8_t qs[16];
};

// Sixteen sub-blocks of 16. In the 2-bit types, value 128h + 32k + l has its bits at 2k of qs[32h + l], and
// belongs to the sub-block 8h + 2k + l / 16.
struct BlockQ2_K {  // d * (scales & 15) * q - dmin * (scales >> 4)
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  std::uint16_t d, dmin;
};
struct BlockQ3_K {         // d * (scale - 32) * (q - 4), q = 2 low bits + 4 * high bit
  std::uint8_t hmask[32];  // bit 4h + k of hmask[l] is the high bit
  std::uint8_t qs[64];
  std::uint8_t scales[12];  // 6 bits each, see q3_k_scale()
  std::uint16_t d;
};
// Eight sub-blocks of 32. Sub-blocks 2p and 2p + 1 are the low and high halves of qs[32p .. 32p + 31].
struct BlockQ4_K {  // d * scale * q - dmin * min
  std::uint16_t d, dmin;
  std::uint8_t scales[12];  // scales and minima of 6 bits each, see q4_k_scale()
  std::uint8_t qs[128];
};
struct BlockQ5_K {  // d * scale * q - dmin * min
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];  // bit j of qh[l] is the fifth bit of value l of sub-block j
  std::uint8_t qs[128];
};
struct BlockQ6_K {       // d * scales[j] * (q - 32), sixteen sub-blocks of 16
  std::uint8_t ql[128];  // value 128h + 32k + l: half k / 2 of ql[64h + 32(k % 2) + l]
  std::uint8_t qh[64];   // bits 2k of qh[32h + l]
  std::int8_t scales[16];
  std::uint16_t d;
};

// The IQ types store groups of 8 or 4 values as an index into a grid of allowed magnitudes (iq_grids.h), and
// their signs apart. "Seven signs" are an index of 7 bits, the eighth sign makes their number even.
struct BlockIQ2_XXS {  // d * (scale + 1/2) / 4 * grid
  std::uint16_t d;
  std::uint16_t qs[32];  // per 32 values a 64-bit word: 4 indices of 8 bits, 4 x seven signs, scale of 4
};
struct BlockIQ2_XS {  // d * (scale + 1/2) / 4 * grid
  std::uint16_t d;
  std::uint16_t qs[32];    // per 8 values: index of 9 bits, seven signs
  std::uint8_t scales[8];  // 4 bits per 16 values, low half first
};
struct BlockIQ2_S {  // d * (scale + 1/2) / 4 * grid
  std::uint16_t d;
  std::uint8_t qs[32];     // per 8 values: the low 8 bits of the index
  std::uint8_t signs[32];  // per 8 values
  std::uint8_t qh[8];      // per 32 values: 4 x the index's 2 high bits
  std::uint8_t scales[8];  // 4 bits per 16 values, low half first
};
struct BlockIQ3_XXS {  // d * (scale + 1/2) / 2 * grid
  std::uint16_t d;
  std::uint8_t qs[64];     // per 4 values: index
  std::uint8_t signs[32];  // per 32 values a word: 4 x seven signs, scale of 4 bits
};
struct BlockIQ3_S {  // d * (2 scale + 1) * grid
  std::uint16_t d;
  std::uint8_t qs[64];     // per 4 values: the low 8 bits of the index
  std::uint8_t qh[8];      // bit i % 8 of qh[i / 8] is the ninth bit of index i
  std::uint8_t signs[32];  // per 8 values
  std::uint8_t scales[4];  // 4 bits per 32 values, low half first
};
struct BlockIQ1_S {  // d * (2 scale + 1) * (grid + or - 1/8)
  std::uint16_t d;
  std::uint8_t qs[32];  // per 8 values: the low 8 bits of the index
  std::uint16_t qh[8];  // per 32 values: 4 x the index's 3 high bits, scale of 3 bits, sign of the 1/8
};
struct BlockIQ1_M {        // d * (2 scale + 1) * (grid + or - 1/8)
  std::uint8_t qs[32];     // per 8 values: the low 8 bits of the index
  std::uint8_t qh[16];     // per 8 values 4 bits: the index's 3 high bits, sign of the 1/8
  std::uint8_t scales[8];  // four words: 4 scales of 3 bits (per 16 values), 4 bits of d, lowest first
};
struct BlockIQ4_XS {  // d * (scale - 32) * kIQ4Levels[q], eight sub-blocks of 32
  std::uint16_t d;
  std::uint16_t scales_h;    // 2 high bits each
  std::uint8_t scales_l[4];  // 4 low bits each, low half first
  std::uint8_t qs[128];      // sub-block j: as a block of 32 in qs[16j ..]
};

// Ternary types: d * (trit - 1).
struct BlockTQ1_0 {     // a byte b holds trits 3^n b mod 256 * 3 / 256, n = 0, 1, ...
  std::uint8_t qs[48];  // 5 trits: n-th of byte i is value 32n + i (i < 32), 160 + 16n + i - 32 (else)
  std::uint8_t qh[4];   // 4 trits: n-th of byte i is value 240 + 4n + i
  std::uint16_t d;
};
struct BlockTQ2_0 {  // placed like the values of Q2_K; the code 3 decodes to 2 d
  std::uint8_t qs[64];
  std::uint16_t d;
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);

// The 16 levels of IQ4_NL and IQ4_XS: denser near zero, as weights are.
inline constexpr std::array<std::int8_t, 16> kIQ4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};
// The E2M1 values, doubled to be integers; ggml has no negative zero.
inline constexpr std::array<std::int8_t, 16> kMXFP4Levels = {0, 1,  2,  3,  4,  6,  8,  12,
                                                             0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128): half of what the code means in the OCP specification, because kMXFP4Levels are doubled. The
// lowest two are float32 subnormals.
constexpr float mxfp4_half_scale(unsigned e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

// Scale j < 16 of a Q3_K block, 0..63 (the value is 32 less): low nibbles in bytes 0..7, sixteen pairs of
// high bits in bytes 8..11.
constexpr unsigned q3_k_scale(const std::uint8_t (&scales)[12], unsigned j) {
  const unsigned low = j < 8 ? scales[j] & 0xfu : scales[j - 8] >> 4;
  const unsigned high = scales[8 + j % 4] >> (2 * (j / 4)) & 3u;
  return low | high << 4;
}
constexpr void set_q3_k_scale(std::uint8_t (&scales)[12], unsigned j, unsigned value) {
  const unsigned low_shift = j < 8 ? 0 : 4, high_shift = 2 * (j / 4);
  std::uint8_t &low = scales[j % 8], &high = scales[8 + j % 4];
  low = static_cast<std::uint8_t>((low & ~(0xfu << low_shift)) | (value & 0xfu) << low_shift);
  high = static_cast<std::uint8_t>((high & ~(3u << high_shift)) | (value >> 4 & 3u) << high_shift);
}

struct ScaleMin {
  unsigned scale, min;  // 0..63
};
// Scale and minimum of sub-block j < 8 of Q4_K and Q5_K: the first four scales and minima in the low 6 bits
// of bytes 0..3 and 4..7; the last four in the nibbles of bytes 8..11 and the 2 bits that were left in 0..7.
constexpr ScaleMin q4_k_scale(const std::uint8_t (&scales)[12], unsigned j) {
  if (j < 4) return {scales[j] & 63u, scales[j + 4] & 63u};
  const unsigned both = scales[j + 4];
  return {(both & 0xfu) | static_cast<unsigned>(scales[j - 4] >> 6) << 4,
          both >> 4 | static_cast<unsigned>(scales[j] >> 6) << 4};
}
constexpr void set_q4_k_scale(std::uint8_t (&scales)[12], unsigned j, ScaleMin value) {
  const auto put = [&](unsigned byte, unsigned mask, unsigned bits) {
    scales[byte] = static_cast<std::uint8_t>((scales[byte] & ~mask) | bits);
  };
  if (j < 4) {
    put(j, 63, value.scale);
    put(j + 4, 63, value.min);
  } else {
    put(j + 4, 255, (value.scale & 0xfu) | (value.min & 0xfu) << 4);
    put(j - 4, 0xc0, value.scale >> 4 << 6);
    put(j, 0xc0, value.min >> 4 << 6);
  }
}

}  // namespace doppler
