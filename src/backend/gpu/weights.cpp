#include "backend/gpu/weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/gpu/bf16_in_13_bits.h"
#include "base/float16.h"
#include "quant/blocks.h"
#include "system/memory.h"
#include "system/threads.h"

namespace doppler::gpu {
namespace {

// One unit of a row as codes and scales. `codes` has pieces() x 4 words, `scales` scale_words().
using PackUnit = void (*)(const std::byte* row, std::size_t unit, std::uint32_t* codes,
                          std::uint32_t* scales);

template <typename Block>
Block load_block(const std::byte* row, std::size_t index) {
  Block block;
  std::memcpy(&block, row + index * sizeof(Block), sizeof(Block));
  return block;
}

std::uint32_t two_halves(std::uint16_t low, std::uint16_t high) {
  return low | static_cast<std::uint32_t>(high) << 16;
}

// Nibble codes are stored as GGUF's blocks of 32 have them: value i in the low half of byte i, value i + 16
// in the high half. The type's signed codes q - 8 become two's complement by turning the nibbles' highest
// bit.
constexpr std::uint32_t kToSigned = 0x88888888;

constexpr std::uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0f;

std::uint64_t load_eight(const std::uint8_t* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

void put_nibbles(const std::uint8_t (&codes)[32], std::uint32_t* out) {
  for (std::size_t i = 0; i < 16; i += 8) {
    const std::uint64_t low = load_eight(codes + i) & kLowNibbles,
                        high = load_eight(codes + i + 16) & kLowNibbles, both = low | high << 4;
    std::memcpy(out + i / 4, &both, sizeof(both));
  }
}

// The same of 32 bytes' low or high nibbles.
void fold_nibbles(const std::uint8_t* bytes, bool high, std::uint32_t* out) {
  for (std::size_t i = 0; i < 16; i += 8) {
    const std::uint64_t a = load_eight(bytes + i), b = load_eight(bytes + i + 16);
    const std::uint64_t both =
        high ? (a >> 4 & kLowNibbles) | (b & ~kLowNibbles) : (a & kLowNibbles) | (b & kLowNibbles) << 4;
    std::memcpy(out + i / 4, &both, sizeof(both));
  }
}

void pack_q4_0(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto a = load_block<BlockQ4_0>(row, 2 * unit), b = load_block<BlockQ4_0>(row, 2 * unit + 1);
  std::memcpy(codes, a.qs, 16);
  std::memcpy(codes + 4, b.qs, 16);
  for (std::size_t i = 0; i < 8; ++i) codes[i] ^= kToSigned;
  scales[0] = two_halves(a.d, b.d);
}

void pack_q4_1(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto a = load_block<BlockQ4_1>(row, 2 * unit), b = load_block<BlockQ4_1>(row, 2 * unit + 1);
  std::memcpy(codes, a.qs, 16);
  std::memcpy(codes + 4, b.qs, 16);
  scales[0] = two_halves(a.d, b.d);
  scales[1] = two_halves(a.m, b.m);
}

// For bits 0 to 7 of a byte where they go in a word of signs, of which bit 8 m + j belongs to byte m of the
// word j of codes: from j = 0 on.
constexpr auto kSpreadBits = [] {
  std::array<std::uint32_t, 256> spread{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 8; ++i) spread[byte] |= (byte >> i & 1u) << (8 * (i % 4) + i / 4);
  }
  return spread;
}();

// The 32 codes of a block in two's complement: the nibbles of four words of `codes`, which are the type's
// own, and in one word of `signs` bit 8 m + j for byte m of the word j of codes, those of high nibbles
// counting on from 4. A code less 16 is negative where its fifth bit is not set.
void put_signed_five(const BlockQ5_0& block, std::uint32_t* codes, std::uint32_t* signs) {
  std::memcpy(codes, block.qs, sizeof(block.qs));
  *signs = 0;
  for (std::size_t b = 0; b < 4; ++b)
    *signs |= kSpreadBits[static_cast<std::uint8_t>(~block.qh[b])] << (2 * b);
}

// The 32 codes 0..31 of a block of 5 bits.
void read_five_bits(const BlockQ5_1& block, std::uint8_t (&codes)[32]) {
  std::uint32_t high;
  std::memcpy(&high, block.qh, sizeof(high));
  for (unsigned i = 0; i < 16; ++i) {
    codes[i] = static_cast<std::uint8_t>((block.qs[i] & 15) | (high >> i & 1) << 4);
    codes[i + 16] = static_cast<std::uint8_t>(block.qs[i] >> 4 | (high >> (i + 16) & 1) << 4);
  }
}

void pack_q5_0(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto a = load_block<BlockQ5_0>(row, 2 * unit), b = load_block<BlockQ5_0>(row, 2 * unit + 1);
  put_signed_five(a, codes, scales + 1);
  put_signed_five(b, codes + 4, scales + 2);
  scales[0] = two_halves(a.d, b.d);
}

void pack_q5_1(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto a = load_block<BlockQ5_1>(row, 2 * unit), b = load_block<BlockQ5_1>(row, 2 * unit + 1);
  std::uint8_t values[32];
  read_five_bits(a, values);
  std::memcpy(codes, values, sizeof(values));
  read_five_bits(b, values);
  std::memcpy(codes + 8, values, sizeof(values));
  scales[0] = two_halves(a.d, b.d);
  scales[1] = two_halves(a.m, b.m);
}

void pack_q8_0(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto a = load_block<BlockQ8_0>(row, 2 * unit), b = load_block<BlockQ8_0>(row, 2 * unit + 1);
  std::memcpy(codes, a.qs, 32);
  std::memcpy(codes + 8, b.qs, 32);
  scales[0] = two_halves(a.d, b.d);
}

void read_levels(const std::uint8_t (&qs)[16], const std::array<std::int8_t, 16>& levels,
                 std::int8_t (&codes)[32]) {
  for (std::size_t i = 0; i < 16; ++i) {
    codes[i] = levels[qs[i] & 15];
    codes[i + 16] = levels[qs[i] >> 4];
  }
}

void put_levels(const std::uint8_t (&qs)[16], const std::array<std::int8_t, 16>& levels, std::uint32_t* out) {
  std::int8_t codes[32];
  read_levels(qs, levels, codes);
  std::memcpy(out, codes, sizeof(codes));
}

void pack_iq4_nl(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto a = load_block<BlockIQ4_NL>(row, 2 * unit), b = load_block<BlockIQ4_NL>(row, 2 * unit + 1);
  put_levels(a.qs, kIQ4Levels, codes);
  put_levels(b.qs, kIQ4Levels, codes + 8);
  scales[0] = two_halves(a.d, b.d);
}

// Both nibbles of a byte of MXFP4 as those of kFloatNibbles.
constexpr auto kFloatNibbles = [] {
  std::array<std::uint8_t, 16> one{};
  for (std::size_t i = 0; i < 16; ++i) {
    while (float_nibble_level(one[i]) != kMXFP4Levels[i]) ++one[i];
  }
  std::array<std::uint8_t, 256> two{};
  for (std::size_t i = 0; i < 256; ++i) two[i] = static_cast<std::uint8_t>(one[i % 16] | one[i / 16] << 4);
  return two;
}();

void pack_mxfp4(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  std::uint8_t bytes[32];
  scales[0] = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    const auto block = load_block<BlockMXFP4>(row, 2 * unit + b);
    for (std::size_t i = 0; i < 16; ++i) bytes[16 * b + i] = kFloatNibbles[block.qs[i]];
    scales[0] |= std::uint32_t{block.e} << (8 * b);
  }
  std::memcpy(codes, bytes, sizeof(bytes));
}

void pack_iq4_xs(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto block = load_block<BlockIQ4_XS>(row, unit / 4);
  for (std::size_t b = 0; b < 2; ++b) {
    const std::size_t j = 2 * (unit % 4) + b;
    std::uint8_t qs[16];
    std::memcpy(qs, block.qs + 16 * j, 16);
    put_levels(qs, kIQ4Levels, codes + 8 * b);
    const int scale = (block.scales_l[j / 2] >> (4 * (j % 2)) & 15) | (block.scales_h >> (2 * j) & 3) << 4;
    scales[b] = std::bit_cast<std::uint32_t>(f16_to_f32(block.d) * static_cast<float>(scale - 32));
  }
}

// Scales and minima of the two sub-blocks of 32 in a unit.
template <typename Block>
void put_scales_32(const Block& block, std::size_t part, std::uint32_t* scales) {
  const ScaleMin a = q4_k_scale(block.scales, static_cast<unsigned>(2 * part));
  const ScaleMin b = q4_k_scale(block.scales, static_cast<unsigned>(2 * part + 1));
  scales[0] = a.scale | a.min << 8 | b.scale << 16 | b.min << 24;
  scales[1] = two_halves(block.d, block.dmin);
}

void pack_q4_k(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto block = load_block<BlockQ4_K>(row, unit / 4);
  const std::size_t part = unit % 4;
  for (std::size_t b = 0; b < 2; ++b) fold_nibbles(block.qs + 32 * part, b == 1, codes + 4 * b);
  put_scales_32(block, part, scales);
}

void pack_q5_k(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto block = load_block<BlockQ5_K>(row, unit / 4);
  const std::size_t part = unit % 4;
  std::uint8_t values[64];
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t i = 0; i < 32; ++i) {
      const int low = block.qs[32 * part + i] >> (4 * b) & 15;
      values[32 * b + i] = static_cast<std::uint8_t>(low | (block.qh[i] >> (2 * part + b) & 1) << 4);
    }
  }
  std::memcpy(codes, values, sizeof(values));
  put_scales_32(block, part, scales);
}

// Codes of 6 bits less 32, in two's complement: the nibbles are the type's own, and of the two bits above
// them, which lie at `shift` of 32 bytes, the higher one is turned. In each word of `highs` those of 16
// values, of byte m of word k from bit 8 m + 2 k on.
void put_signed_highs(const std::uint8_t* bytes, std::size_t shift, std::uint32_t* highs) {
  constexpr std::uint32_t kEachTwo = 0x03030303, kHigher = 0xaaaaaaaa;
  for (std::size_t i = 0; i < 2; ++i) {
    std::uint32_t words[4];
    std::memcpy(words, bytes + 16 * i, sizeof(words));
    highs[i] = kHigher;
    for (std::size_t k = 0; k < 4; ++k) highs[i] ^= (words[k] >> shift & kEachTwo) << (2 * k);
  }
}

void pack_q6_k(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto block = load_block<BlockQ6_K>(row, unit / 4);
  const std::size_t part = unit % 4, half = part / 2;
  for (std::size_t b = 0; b < 2; ++b) {
    const std::size_t k = 2 * (part % 2) + b;  // quarter of 32 values in the half of 128
    fold_nibbles(block.ql + 64 * half + 32 * (k % 2), k / 2 == 1, codes + 4 * b);
    put_signed_highs(block.qh + 32 * half, 2 * k, scales + 2 + 2 * b);
  }
  std::memcpy(scales, block.scales + 4 * part, 4);
  scales[1] = block.d;
}

void pack_q2_k(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto block = load_block<BlockQ2_K>(row, unit / 4);
  const std::size_t part = unit % 4, half = part / 2;
  for (std::size_t b = 0; b < 2; ++b) {
    const std::size_t k = 2 * (part % 2) + b;
    std::uint8_t values[32];
    for (std::size_t i = 0; i < 32; ++i)
      values[i] = static_cast<std::uint8_t>(block.qs[32 * half + i] >> (2 * k) & 3);
    put_nibbles(values, codes + 4 * b);
  }
  std::uint8_t both[8];
  for (std::size_t g = 0; g < 4; ++g) {
    const std::uint8_t packed = block.scales[4 * part + g];
    both[g] = packed & 15;
    both[4 + g] = packed >> 4;
  }
  std::memcpy(scales, both, sizeof(both));
  scales[2] = two_halves(block.d, block.dmin);
}

void pack_q3_k(const std::byte* row, std::size_t unit, std::uint32_t* codes, std::uint32_t* scales) {
  const auto block = load_block<BlockQ3_K>(row, unit / 4);
  const std::size_t part = unit % 4, half = part / 2;
  for (std::size_t b = 0; b < 2; ++b) {
    const std::size_t k = 2 * (part % 2) + b;
    std::uint8_t values[32];
    for (std::size_t i = 0; i < 32; ++i) {
      const int low = block.qs[32 * half + i] >> (2 * k) & 3;
      const int high = block.hmask[i] >> (4 * half + k) & 1;
      values[i] = static_cast<std::uint8_t>((low | high << 2) - 4);
    }
    put_nibbles(values, codes + 4 * b);
  }
  std::int8_t small[4];
  for (std::size_t g = 0; g < 4; ++g)
    small[g] = static_cast<std::int8_t>(
        static_cast<int>(q3_k_scale(block.scales, static_cast<unsigned>(4 * part + g))) - 32);
  std::memcpy(scales, small, sizeof(small));
  scales[1] = block.d;
}

struct Packing {
  DType type;
  WeightFormat format;
  PackUnit pack;
};
constexpr Packing kPackings[] = {
    {DType::kQ4_0, {CodeForm::kSignedNibbles, ScaleForm::kHalf}, pack_q4_0},
    {DType::kQ4_1, {CodeForm::kNibbles, ScaleForm::kHalfMin}, pack_q4_1},
    {DType::kQ5_0, {CodeForm::kSignedFive, ScaleForm::kHalf}, pack_q5_0},
    {DType::kQ5_1, {CodeForm::kBytes, ScaleForm::kHalfMin}, pack_q5_1},
    {DType::kQ8_0, {CodeForm::kBytes, ScaleForm::kHalf}, pack_q8_0},
    {DType::kQ2_K, {CodeForm::kNibbles, ScaleForm::kSuper16Min}, pack_q2_k},
    {DType::kQ3_K, {CodeForm::kSignedNibbles, ScaleForm::kSuper16}, pack_q3_k},
    {DType::kQ4_K, {CodeForm::kNibbles, ScaleForm::kSuper32Min}, pack_q4_k},
    {DType::kQ5_K, {CodeForm::kBytes, ScaleForm::kSuper32Min}, pack_q5_k},
    {DType::kQ6_K, {CodeForm::kSignedSix, ScaleForm::kSuper16}, pack_q6_k},
    {DType::kIQ4_NL, {CodeForm::kBytes, ScaleForm::kHalf}, pack_iq4_nl},
    {DType::kIQ4_XS, {CodeForm::kBytes, ScaleForm::kFloat}, pack_iq4_xs},
    {DType::kMXFP4, {CodeForm::kFloatNibbles, ScaleForm::kPower}, pack_mxfp4},
};

const Packing* packing_of(DType type) {
  for (const Packing& packing : kPackings) {
    if (packing.type == type) return &packing;
  }
  return nullptr;
}

// Tensors that lie under each other: a few, or those of hundreds of experts.
class WeightRows {
 public:
  explicit WeightRows(std::span<const TensorView* const> tensors) : tensors_(tensors) {
    std::size_t rows = 0;
    for (const TensorView* tensor : tensors)
      ends_.push_back(rows += static_cast<std::size_t>(tensor->rows()));
  }
  const TensorView& first() const { return *tensors_.front(); }
  // The tensor and its row at a row of all.
  std::pair<const TensorView*, std::size_t> at(std::size_t row) const {
    const std::size_t i = static_cast<std::size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
    if (i == ends_.size()) return {nullptr, 0};
    return {tensors_[i], i == 0 ? row : row - ends_[i - 1]};
  }

 private:
  std::span<const TensorView* const> tensors_;
  std::vector<std::size_t> ends_;  // of each tensor, the row behind its last
};

// Fills tiles of codes and scales, which are zero before.
class TilePacker {
 public:
  TilePacker(const GpuMatrix& matrix, const WeightRows& rows)
      : rows_(rows),
        cols_(matrix.cols),
        units_(matrix.units),
        pieces_(matrix.format.pieces()),
        words_(matrix.format.scale_words()),
        span_(matrix.format.scale_span()),
        row_words_(matrix.format.row_words()),
        codes_(matrix.format.codes) {}

  // Bytes of a tile.
  std::size_t code_bytes() const { return units_ * pieces_ * 16 * kTileRows; }
  std::size_t scale_bytes() const {
    return ((units_ + span_ - 1) / span_ * words_ + row_words_) * 4 * kTileRows;
  }

  // Rows from `first` on, of which `last` is the last that will be asked for.
  Status pack(std::size_t first, std::size_t count, std::size_t last, std::byte* codes, std::byte* scales) {
    for (std::size_t r = 0; r < count; ++r) {
      const auto [tensor, row] = rows_.at(first + r);
      if (tensor == nullptr) return fail(ErrorCode::kInternal, "A matrix has no row {}.", first + r);
      DOPPLER_ASSIGN(const std::span<const std::byte> from, bytes_of(*tensor, row, last - first - r + 1));
      const Packing* packing = packing_of(tensor->dtype);
      if (packing != nullptr)
        pack_blocks(dtype_info(tensor->dtype), from.data(), packing->pack, r, codes, scales);
      else
        DOPPLER_TRY(pack_floats(*tensor, from, r, codes, scales));
    }
    return {};
  }

 private:
  void put(std::size_t row, std::size_t unit, const void* from, std::byte* codes) const {
    std::byte* to = codes + (unit * pieces_ * kTileRows + row) * 16;
    const auto* pieces = static_cast<const std::byte*>(from);
    for (std::size_t p = 0; p < pieces_; ++p) std::memcpy(to + p * kTileRows * 16, pieces + 16 * p, 16);
  }

  // The bytes of a row. Of a source those behind it are read with it, of at most `wanted` rows.
  Result<std::span<const std::byte>> bytes_of(const TensorView& tensor, std::size_t row, std::size_t wanted) {
    constexpr std::size_t kPieceBytes = 1 << 20;
    const auto rows = static_cast<std::size_t>(tensor.rows());
    const auto bytes = static_cast<std::size_t>(tensor.bytes() / rows);
    if (tensor.source == nullptr) return tensor.data.subspan(row * bytes, bytes);
    if (held_ != &tensor || row < held_begin_ || row >= held_end_) {
      const std::size_t count = std::min(
          {wanted, rows - row, std::max<std::size_t>(kPieceBytes / std::max<std::size_t>(bytes, 1), 1)});
      held_ = nullptr;
      piece_.resize(count * bytes);
      DOPPLER_TRY(read_bytes(tensor, std::uint64_t{row} * bytes, piece_));
      held_ = &tensor;
      held_begin_ = row;
      held_end_ = row + count;
    }
    return std::span<const std::byte>(piece_).subspan((row - held_begin_) * bytes, bytes);
  }

  void pack_blocks(const DTypeInfo& info, const std::byte* from, PackUnit pack_unit, std::size_t r,
                   std::byte* codes, std::byte* scales) {
    const std::size_t block_bytes = info.block_bits / 8;
    std::uint32_t unit_codes[64] = {}, unit_scales[8] = {};
    for (std::size_t unit = 0; unit < units_; ++unit) {
      const bool half = (unit + 1) * kUnitValues > cols_;
      if (half) {  // a last block of 32 alone
        std::byte both[2 * sizeof(BlockQ8_0)] = {};
        std::memcpy(both, from + 2 * unit * block_bytes, block_bytes);
        pack_unit(both, 0, unit_codes, unit_scales);
      } else {
        pack_unit(from, unit, unit_codes, unit_scales);
      }
      put(r, unit, unit_codes, codes);
      for (std::size_t w = 0; w < words_; ++w) {
        std::byte* to = scale(r, unit / span_ * words_ + w, scales);
        std::uint32_t word = unit_scales[w];
        if (unit % span_ != 0) {  // beside those of the unit before, in the word's upper half
          std::memcpy(&word, to, 4);
          word |= unit_scales[w] << 16;
        }
        std::memcpy(to, &word, 4);
      }
    }
  }

  // Where a row has that word of all its units'.
  std::byte* scale(std::size_t row, std::size_t word, std::byte* scales) const {
    return scales + ((row_words_ + word) * kTileRows + row) * 4;
  }

  Status pack_floats(const TensorView& tensor, std::span<const std::byte> from, std::size_t r,
                     std::byte* codes, std::byte* scales) {
    std::span<const std::byte> row = from;
    if (codes_ == CodeForm::kF32) {
      floats_.resize(cols_);
      DOPPLER_TRY(decode_f32({.name = tensor.name, .dtype = tensor.dtype, .shape = {cols_}, .data = from}, 0,
                             floats_));
      row = std::as_bytes(std::span(floats_));
    }
    const std::size_t units_bytes = row.size() / cols_ * units_ * kUnitValues;
    if (row.size() < units_bytes) {
      row_.assign(units_bytes, std::byte{0});
      std::ranges::copy(row, row_.begin());
      row = row_;
    }
    if (codes_ == CodeForm::kBF16In13) {
      put_in_13_bits(row, r, codes, scales);
      return {};
    }
    for (std::size_t unit = 0; unit < units_; ++unit) put(r, unit, row.data() + unit * pieces_ * 16, codes);
    return {};
  }

  void put_in_13_bits(std::span<const std::byte> row, std::size_t r, std::byte* codes, std::byte* scales) {
    halves_.resize(units_ * kUnitValues);
    std::memcpy(halves_.data(), row.data(), halves_.size() * 2);
    const int base = base_of_row(halves_);
    const float factor = factor_of_base(base);
    std::memcpy(scales + r * 4, &factor, 4);
    for (std::size_t unit = 0; unit < units_; ++unit) {
      std::uint32_t unit_codes[2 * kBlockPieceWords];
      for (std::size_t b = 0; b < 2; ++b) {
        std::uint32_t behind;
        pack_in_13_bits(
            std::span(halves_).subspan(unit * kUnitValues + b * kBlockValues).first<kBlockValues>(), base,
            std::span(unit_codes).subspan(b * kBlockPieceWords).first<kBlockPieceWords>(), behind);
        std::memcpy(scale(r, unit * words_ + b, scales), &behind, 4);
      }
      put(r, unit, unit_codes, codes);
    }
  }

  const WeightRows& rows_;
  std::size_t cols_, units_, pieces_, words_, span_, row_words_;
  CodeForm codes_;
  std::vector<std::byte> row_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> halves_;
  const TensorView* held_ = nullptr;  // whose rows piece_ holds
  std::size_t held_begin_ = 0, held_end_ = 0;
  std::vector<std::byte> piece_;
};

// The first of the errors that threads meet.
class FirstError {
 public:
  void note(Status status) {
    if (status) return;
    const system::Lock lock(mutex_);
    if (first_) first_ = std::move(status);
  }
  Status status() const { return first_; }

 private:
  system::Mutex mutex_;
  Status first_;
};

// One shard's buffers, filled by all threads.
Result<Shard> upload_shard(Device& device, ThreadPool& pool, const GpuMatrix& matrix, const WeightRows& all,
                           std::uint32_t first_row, std::uint32_t rows) {
  const TilePacker sizes(matrix, all);
  const std::size_t tiles = (rows + kTileRows - 1) / kTileRows;
  Shard shard{.first_row = first_row, .rows = rows, .codes = {}, .scales = {}};
  std::vector<std::byte> scales(tiles * sizes.scale_bytes());
  const auto fill = [&](std::uint64_t offset, std::span<std::byte> codes) {
    const auto first_tile = static_cast<std::size_t>(offset / sizes.code_bytes());
    FirstError error;
    pool.parallel_for(codes.size() / sizes.code_bytes(), 1, [&](std::size_t begin, std::size_t end) {
      TilePacker packer(matrix, all);
      std::vector<std::byte> packed(sizes.code_bytes());  // rows lie across each other: made in a cache
      const std::size_t last = std::min<std::size_t>((first_tile + end) * kTileRows, rows) - 1;
      for (std::size_t tile = begin; tile < end; ++tile) {
        const std::size_t done = (first_tile + tile) * kTileRows;
        const std::size_t count = std::min<std::size_t>(kTileRows, rows - done);
        if (count < kTileRows) std::ranges::fill(packed, std::byte{0});
        error.note(packer.pack(first_row + done, count, first_row + last, packed.data(),
                               scales.data() + (first_tile + tile) * sizes.scale_bytes()));
        std::memcpy(codes.data() + tile * packed.size(), packed.data(), packed.size());
      }
    });
    return error.status();
  };
  DOPPLER_ASSIGN(shard.codes,
                 device.make_in_pieces("weights", tiles * sizes.code_bytes(), sizes.code_bytes(), fill));
  if (!scales.empty()) {
    DOPPLER_ASSIGN(shard.scales,
                   device.make_in_pieces("scales", scales.size(), sizes.scale_bytes(),
                                         [&](std::uint64_t at, std::span<std::byte> out) -> Status {
                                           std::memcpy(out.data(), scales.data() + at, out.size());
                                           return {};
                                         }));
  }
  return shard;
}

}  // namespace

std::uint32_t WeightFormat::pieces() const {
  constexpr std::uint32_t kPieces[] = {16, 8, 8, 4, 2, 2, 2, 2, 2, 6};  // by CodeForm
  return kPieces[static_cast<std::size_t>(codes)];
}

std::uint32_t WeightFormat::high_words() const {
  constexpr std::uint32_t kWords[] = {0, 0, 0, 0, 0, 0, 2, 4, 0, 2};  // by CodeForm
  return kWords[static_cast<std::size_t>(codes)];
}

std::uint32_t WeightFormat::scale_words() const {
  constexpr std::uint32_t kWords[] = {0, 1, 2, 2, 2, 3, 2, 1};  // by ScaleForm
  return kWords[static_cast<std::size_t>(scales)] + high_words();
}

std::uint32_t WeightFormat::row_words() const {
  return codes == CodeForm::kBF16In13 ? 1 : 0;
}

std::uint64_t WeightFormat::row_bytes(std::uint32_t units) const {
  return std::uint64_t{units} * pieces() * 16 + row_words() * 4 +
         std::uint64_t{(units + scale_span() - 1) / scale_span()} * scale_words() * 4;
}

WeightFormat format_of(DType type) {
  if (type == DType::kF16) return {CodeForm::kF16, ScaleForm::kNone};
  if (type == DType::kBF16) return {CodeForm::kBF16, ScaleForm::kNone};
  const Packing* packing = packing_of(type);
  return packing == nullptr ? WeightFormat{} : packing->format;
}

WeightFormat head_format_of(DType type) {
  if (type == DType::kBF16) return {CodeForm::kBF16In13, ScaleForm::kNone};
  return format_of(type);
}

Result<GpuMatrix> upload_matrix(Device& device, ThreadPool& pool, std::span<const TensorView* const> tensors,
                                std::uint64_t most_bytes, std::optional<WeightFormat> format) {
  GpuMatrix matrix;
  matrix.format = format.value_or(format_of(tensors.front()->dtype));
  std::uint64_t rows = 0;
  for (const TensorView* tensor : tensors) {
    const bool takes =
        matrix.format == format_of(tensor->dtype) || matrix.format == head_format_of(tensor->dtype);
    if (tensor->cols() != tensors.front()->cols() || !takes) {
      return fail(ErrorCode::kInternal, "The tensors {} and {} differ in width or form.",
                  tensors.front()->name, tensor->name);
    }
    rows += tensor->rows();
  }
  const std::uint64_t cols = tensors.front()->cols();
  if (rows == 0 || cols == 0 || rows > INT32_MAX || cols > INT32_MAX) {
    return fail(ErrorCode::kLimit,
                "The tensor {} has {} x {} values, which the gpu backend does not address.",
                tensors.front()->name, rows, cols);
  }
  matrix.rows = static_cast<std::uint32_t>(rows);
  matrix.cols = static_cast<std::uint32_t>(cols);
  matrix.units = (matrix.cols + kUnitValues - 1) / kUnitValues;
  const std::uint64_t tile_bytes = std::uint64_t{matrix.units} * matrix.format.pieces() * 16 * kTileRows;
  const std::uint64_t most = std::min(most_bytes, device.limits().buffer_bytes - 16);
  const std::uint64_t tiles = most / tile_bytes;
  if (tiles == 0) {
    return fail(ErrorCode::kLimit, "The GPU {} binds at most {} bytes, too few for 64 rows of the tensor {}.",
                device.adapter().name, most, tensors.front()->name);
  }
  const auto shard_rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(tiles * kTileRows, INT32_MAX));
  const WeightRows all(tensors);
  for (std::uint32_t first = 0; first < matrix.rows;) {
    const std::uint32_t count = std::min(shard_rows, matrix.rows - first);
    DOPPLER_ASSIGN(Shard shard, upload_shard(device, pool, matrix, all, first, count));
    matrix.bytes += shard.codes.bytes() + shard.scales.bytes();
    matrix.shards.push_back(std::move(shard));
    first += count;
  }
  for (const TensorView* tensor : tensors) {
    if (tensor->mapped) system::release_pages(tensor->data);  // the device has them
  }
  return matrix;
}

}  // namespace doppler::gpu
