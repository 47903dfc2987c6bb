// From blocks as GGUF stores them to panels. Block layouts: ggml's block_q4_0 .. block_iq4_xs.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backend/cpu/panel/layout.h"

namespace doppler::cpu {
namespace {

using namespace panel;

using Row = const std::uint8_t*;

std::uint32_t word_at(Row p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

constexpr std::uint32_t kNibbles = 0x0f0f0f0f, kPairs = 0x03030303, kOnes = 0x01010101;

// `codes(row, s, k)`: the codes of columns 4k..4k+3 of sub-block s, one per byte. `header(row, r, out)`:
// writes a row's lane of the header.
template <class F>
struct Source;

void copy_half(Row from, std::size_t r, std::uint8_t* lanes) {
  std::memcpy(lanes + 2 * r, from, 2);
}
constexpr std::size_t kHalves = 2 * kPanelRows;  // bytes of 16 f16

// Nibbles of a 32-column block: byte i holds columns i and i + 16.
std::uint32_t split_nibbles(Row q, std::size_t k) {
  return k < 4 ? word_at(q + 4 * k) & kNibbles : (word_at(q + 4 * (k - 4)) >> 4) & kNibbles;
}
// Bit 4k + j of a word, as bit 4 of byte j.
std::uint32_t fifth_bits(std::uint32_t bits, std::size_t k) {
  const std::uint32_t four = (bits >> (4 * k)) & 0xf;
  return ((four * 0x00204081u) & kOnes) << 4;  // bit j to bit 8j: copies 7 bits apart
}

template <>
struct Source<Q4_0> {
  static std::uint32_t codes(Row b, std::size_t, std::size_t k) { return split_nibbles(b + 2, k); }
  static void header(Row b, std::size_t r, std::uint8_t* out) { copy_half(b, r, out); }
  static constexpr std::size_t kBytes = 18;
};
template <>
struct Source<IQ4_NL> : Source<Q4_0> {};
template <>
struct Source<MXFP4> {
  static std::uint32_t codes(Row b, std::size_t, std::size_t k) { return split_nibbles(b + 1, k); }
  static void header(Row b, std::size_t r, std::uint8_t* out) { out[r] = b[0]; }
  static constexpr std::size_t kBytes = 17;
};
template <>
struct Source<Q4_1> {
  static std::uint32_t codes(Row b, std::size_t, std::size_t k) { return split_nibbles(b + 4, k); }
  static void header(Row b, std::size_t r, std::uint8_t* out) {
    copy_half(b, r, out);
    copy_half(b + 2, r, out + kHalves);
  }
  static constexpr std::size_t kBytes = 20;
};
template <>
struct Source<Q5_0> {
  static std::uint32_t codes(Row b, std::size_t, std::size_t k) {
    return split_nibbles(b + 6, k) | fifth_bits(word_at(b + 2), k);
  }
  static void header(Row b, std::size_t r, std::uint8_t* out) { copy_half(b, r, out); }
  static constexpr std::size_t kBytes = 22;
};
template <>
struct Source<Q5_1> {
  static std::uint32_t codes(Row b, std::size_t, std::size_t k) {
    return split_nibbles(b + 8, k) | fifth_bits(word_at(b + 4), k);
  }
  static void header(Row b, std::size_t r, std::uint8_t* out) { Source<Q4_1>::header(b, r, out); }
  static constexpr std::size_t kBytes = 24;
};
template <>
struct Source<Q8_0> {
  static std::uint32_t codes(Row b, std::size_t, std::size_t k) {
    return word_at(b + 2 + 4 * k) ^ 0x80808080u;  // signed to offset 128
  }
  static void header(Row b, std::size_t r, std::uint8_t* out) { copy_half(b, r, out); }
  static constexpr std::size_t kBytes = 34;
};
// Q4_K: d, dmin, 12 bytes of scales, then 32 bytes for each pair of sub-blocks: the even one low, the odd one
// high.
std::uint32_t paired_nibbles(Row q, std::size_t s, std::size_t k) {
  return (word_at(q + 32 * (s / 2) + 4 * k) >> (4 * (s % 2))) & kNibbles;
}
template <>
struct Source<Q4_K> {
  static std::uint32_t codes(Row b, std::size_t s, std::size_t k) { return paired_nibbles(b + 16, s, k); }
  static void header(Row b, std::size_t r, std::uint8_t* out) {
    copy_half(b, r, out);
    copy_half(b + 2, r, out + kHalves);
    for (std::size_t i = 0; i < 12; ++i) out[2 * kHalves + i * kPanelRows + r] = b[4 + i];
  }
  static constexpr std::size_t kBytes = 144;
};
template <>
struct Source<Q5_K> {
  static std::uint32_t codes(Row b, std::size_t s, std::size_t k) {
    return paired_nibbles(b + 48, s, k) | (((word_at(b + 16 + 4 * k) >> s) & kOnes) << 4);
  }
  static void header(Row b, std::size_t r, std::uint8_t* out) { Source<Q4_K>::header(b, r, out); }
  static constexpr std::size_t kBytes = 176;
};
// Q6_K: ql[128], qh[64], 16 signed scales, d. Each half of the block: sub-blocks 0 and 1 are the low nibbles
// of its two groups of 32 bytes, 2 and 3 the high ones; qh holds two more bits of each of the four.
template <>
struct Source<Q6_K> {
  static std::uint32_t codes(Row b, std::size_t s, std::size_t k) {
    const std::size_t half = s / 4, in = s % 4;
    const std::uint32_t low = word_at(b + 64 * half + 32 * (in % 2) + 4 * k) >> (4 * (in / 2));
    const std::uint32_t high = word_at(b + 128 + 32 * half + 4 * k) >> (2 * in);
    return (low & kNibbles) | ((high & kPairs) << 4);
  }
  static void header(Row b, std::size_t r, std::uint8_t* out) {
    copy_half(b + 208, r, out);
    for (std::size_t g = 0; g < 16; ++g) out[kHalves + g * kPanelRows + r] = b[192 + g];
  }
  static constexpr std::size_t kBytes = 210;
};
// Two bits of column 128 h + 32 j + l: bits 2j of byte 32 h + l.
std::uint32_t two_bits(Row q, std::size_t s, std::size_t k) {
  return (word_at(q + 32 * (s / 4) + 4 * k) >> (2 * (s % 4))) & kPairs;
}
template <>
struct Source<Q2_K> {
  static std::uint32_t codes(Row b, std::size_t s, std::size_t k) { return two_bits(b + 16, s, k); }
  static void header(Row b, std::size_t r, std::uint8_t* out) {
    copy_half(b + 80, r, out);
    copy_half(b + 82, r, out + kHalves);
    for (std::size_t g = 0; g < 16; ++g) out[2 * kHalves + g * kPanelRows + r] = b[g];
  }
  static constexpr std::size_t kBytes = 84;
};
// Q3_K: hmask[32] (a set bit: do not subtract 4), qs[64], 16 scales of 6 bits in 12 bytes, offset by 32, d.
template <>
struct Source<Q3_K> {
  static std::uint32_t codes(Row b, std::size_t s, std::size_t k) {
    return two_bits(b + 32, s, k) | (((word_at(b + 4 * k) >> s) & kOnes) << 2);
  }
  static void header(Row b, std::size_t r, std::uint8_t* out) {
    copy_half(b + 108, r, out);
    const Row q = b + 96;
    for (std::size_t g = 0; g < 16; ++g) {
      const int low = (q[g % 8] >> (4 * (g / 8))) & 0xf, high = (q[8 + g % 4] >> (2 * (g / 4))) & 3;
      out[kHalves + g * kPanelRows + r] = static_cast<std::uint8_t>((low | (high << 4)) - 32);
    }
  }
  static constexpr std::size_t kBytes = 110;
};
// IQ4_XS: d, the scales' upper 2 bits (u16), their lower 4 (4 bytes), offset by 32, then blocks like
// IQ4_NL's.
template <>
struct Source<IQ4_XS> {
  static std::uint32_t codes(Row b, std::size_t s, std::size_t k) { return split_nibbles(b + 8 + 16 * s, k); }
  static void header(Row b, std::size_t r, std::uint8_t* out) {
    copy_half(b, r, out);
    const unsigned high = b[2] | static_cast<unsigned>(b[3]) << 8;
    for (std::size_t g = 0; g < 8; ++g) {
      const unsigned scale = ((b[4 + g / 2] >> (4 * (g % 2))) & 0xfu) | ((high >> (2 * g)) & 3u) << 4;
      out[kHalves + g * kPanelRows + r] = static_cast<std::uint8_t>(static_cast<int>(scale) - 32);
    }
  }
  static constexpr std::size_t kBytes = 136;
};

// The planes of one sub-block of one row, from its eight words of codes.
template <unsigned kBits>
std::array<std::uint32_t, kBits> planes(const std::array<std::uint32_t, 8>& codes) {
  std::array<std::uint32_t, kBits> words{};
  if constexpr (kBits == 8) {
    for (std::size_t k = 0; k < 8; ++k) words[k] = codes[k];
  } else if constexpr (kBits >= 4) {
    for (std::size_t v = 0; v < 4; ++v) words[v] = (codes[v] & kNibbles) | (codes[v + 4] & kNibbles) << 4;
    for (std::size_t k = 0; k < 8; ++k) {
      if constexpr (kBits == 5) words[4] |= ((codes[k] >> 4) & kOnes) << k;
      if constexpr (kBits == 6) words[4 + k / 4] |= ((codes[k] >> 4) & kPairs) << (2 * (k % 4));
    }
  } else {
    for (std::size_t k = 0; k < 8; ++k) {
      words[k / 4] |= (codes[k] & kPairs) << (2 * (k % 4));
      if constexpr (kBits == 3) words[2] |= ((codes[k] >> 2) & kOnes) << k;
    }
  }
  return words;
}

template <class F>
void pack_block(Row const (&rows)[kPanelRows], std::uint8_t* out) {
  // Rows beyond the end get zeros everywhere, so their sums are zero whatever the activations' finite values.
  if (rows[kPanelRows - 1] == nullptr) std::memset(out, 0, F::kBlockBytes);
  for (std::size_t r = 0; r < kPanelRows; ++r) {
    if (rows[r] == nullptr) continue;
    Source<F>::header(rows[r], r, out);
    for (std::size_t s = 0; s < F::kSubBlocks; ++s) {
      std::array<std::uint32_t, 8> codes;
      for (std::size_t k = 0; k < 8; ++k) codes[k] = Source<F>::codes(rows[r], s, k);
      const auto words = planes<F::kBits>(codes);
      std::uint8_t* to = out + F::kHeaderBytes + s * F::kSubBlockBytes + 4 * r;
      for (std::size_t w = 0; w < words.size(); ++w) std::memcpy(to + w * kPanelRows * 4, &words[w], 4);
    }
  }
}

#define DOPPLER_PANEL_FORMAT(F) PanelFormat{F::kType, F::kBlockCols, F::kBlockBytes, pack_block<F>},
constexpr std::array kFormats = {DOPPLER_FOR_EACH_PANEL_LAYOUT(DOPPLER_PANEL_FORMAT)};
#undef DOPPLER_PANEL_FORMAT

// The file's block of each format is what the dtype table says.
#define DOPPLER_SOURCE_BYTES(F) Source<F>::kBytes,
[[maybe_unused]] constexpr std::array kSourceBytes = {DOPPLER_FOR_EACH_PANEL_LAYOUT(DOPPLER_SOURCE_BYTES)};
#undef DOPPLER_SOURCE_BYTES

}  // namespace

const PanelFormat* panel_format(DType dtype) {
  const auto found = std::ranges::find(kFormats, dtype, &PanelFormat::dtype);
  return found == kFormats.end() ? nullptr : &*found;
}

std::span<const PanelFormat> all_panel_formats() {
  return kFormats;
}

void pack_panels(const PanelMatrix& shape, const std::uint8_t* file, std::size_t begin, std::size_t end,
                 std::uint8_t* out) {
  const DTypeInfo& info = dtype_info(shape.format->dtype);
  const std::size_t file_block = info.block_bits / 8, blocks = shape.cols / shape.format->block_cols;
  const std::size_t row_bytes = blocks * file_block;
  for (std::size_t p = begin; p < end; ++p, out += shape.panel_bytes()) {
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::uint8_t* rows[kPanelRows];
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        const std::size_t row = p * kPanelRows + r;
        rows[r] = row < shape.rows ? file + row * row_bytes + b * file_block : nullptr;
      }
      shape.format->pack(rows, out + b * shape.format->block_bytes);
    }
  }
}

}  // namespace doppler::cpu
