// The layout of a panel's blocks, one description per type, shared by the packer and the kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/panel/panel.h"

namespace doppler::cpu::panel {

// How the scale of a row and sub-block (or half of one) is stored in the block's header, always 16 rows side
// by side. As ggml names them: d is a scale, m and dmin are minima; e is an exponent.
enum class Scales : std::uint8_t {
  kHalf,         // f16 d
  kHalfMin,      // f16 d, then f16 m
  kPower,        // u8 e: 2^(e - 128)
  kSixBit,       // f16 d, f16 dmin, then the 12 bytes in which Q4_K and Q5_K pack 8 scales and 8 minima
  kSigned,       // f16 d, then a signed byte per group
  kNibblePairs,  // f16 d, f16 dmin, then a byte per group: scale in the low half, minimum in the high
};

// A sub-block's codes: `kBits` words of 16 lanes. Word v of a nibble plane holds columns 4v.. in the low and
// 16 + 4v.. in the high halves; a 2-bit plane has two words, with columns 4k.. at bits 2 (k % 4) of word k /
// 4; a 1-bit plane is one word with columns 4k.. at bit k; 8-bit codes are eight words.
template <DType kDType, std::size_t kCols, unsigned kCodeBits, unsigned kShift, std::size_t kGroupCols,
          Scales kScaleKind, bool kHasTable = false>
struct Layout {
  static constexpr DType kType = kDType;
  static constexpr std::size_t kBlockCols = kCols;
  static constexpr unsigned kBits = kCodeBits;
  static constexpr unsigned kOffsetShift = kShift;   // offset = 2^kShift; 0: no offset
  static constexpr std::size_t kGroup = kGroupCols;  // columns that share a scale
  static constexpr Scales kScales = kScaleKind;
  static constexpr bool kTable = kHasTable;  // codes index a table of 16 values (which hold the offset)
  static constexpr bool kMins =
      kScales == Scales::kHalfMin || kScales == Scales::kSixBit || kScales == Scales::kNibblePairs;
  static constexpr std::size_t kSubBlocks = kBlockCols / kSubBlock;
  static constexpr std::size_t kGroups = kBlockCols / kGroup;
  static constexpr std::size_t kHeaderRow = kScales == Scales::kHalf      ? 2
                                            : kScales == Scales::kHalfMin ? 4
                                            : kScales == Scales::kPower   ? 1
                                            : kScales == Scales::kSixBit  ? 4 + 12
                                            : kScales == Scales::kSigned  ? 2 + kGroups
                                                                          : 4 + kGroups;
  static constexpr std::size_t kHeaderBytes = kHeaderRow * kPanelRows;
  static constexpr std::size_t kSubBlockBytes = kBits * kPanelRows * 4;
  static constexpr std::size_t kBlockBytes = kHeaderBytes + kSubBlocks * kSubBlockBytes;
  // The largest code after the table, for kernels whose sums must not saturate.
  static constexpr unsigned kLargest = kTable ? (kOffsetShift == 7 ? 255 : 28) : (1u << kBits) - 1;
};

// IQ4's values (ggml's kvalues_iq4nl) plus 128, and MXFP4's (twice E2M1's) plus 16.
inline constexpr std::array<std::uint8_t, 16> kIq4Codes = {1,   24,  45,  63,  79,  93,  106, 118,
                                                           129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr std::array<std::uint8_t, 16> kMxfp4Codes = {16, 17, 18, 19, 20, 22, 24, 28,
                                                             16, 15, 14, 13, 12, 10, 8,  4};

// clang-format off
using Q4_0   = Layout<DType::kQ4_0,   32,  4, 3, 32, Scales::kHalf>;
using Q4_1   = Layout<DType::kQ4_1,   32,  4, 0, 32, Scales::kHalfMin>;
using Q5_0   = Layout<DType::kQ5_0,   32,  5, 4, 32, Scales::kHalf>;
using Q5_1   = Layout<DType::kQ5_1,   32,  5, 0, 32, Scales::kHalfMin>;
using Q8_0   = Layout<DType::kQ8_0,   32,  8, 7, 32, Scales::kHalf>;
using IQ4_NL = Layout<DType::kIQ4_NL, 32,  4, 7, 32, Scales::kHalf, true>;
using MXFP4  = Layout<DType::kMXFP4,  32,  4, 4, 32, Scales::kPower, true>;
using Q2_K   = Layout<DType::kQ2_K,   256, 2, 0, 16, Scales::kNibblePairs>;
using Q3_K   = Layout<DType::kQ3_K,   256, 3, 2, 16, Scales::kSigned>;
using Q4_K   = Layout<DType::kQ4_K,   256, 4, 0, 32, Scales::kSixBit>;
using Q5_K   = Layout<DType::kQ5_K,   256, 5, 0, 32, Scales::kSixBit>;
using Q6_K   = Layout<DType::kQ6_K,   256, 6, 5, 16, Scales::kSigned>;
using IQ4_XS = Layout<DType::kIQ4_XS, 256, 4, 7, 32, Scales::kSigned, true>;
// clang-format on

template <class F>
constexpr const std::array<std::uint8_t, 16>& table_of() {
  return F::kType == DType::kMXFP4 ? kMxfp4Codes : kIq4Codes;
}

// Expands to X(layout) for every layout; used to build tables by type.
#define DOPPLER_FOR_EACH_PANEL_LAYOUT(X) \
  X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(IQ4_NL) X(MXFP4) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_XS)

}  // namespace doppler::cpu::panel
