// Weights on the device: every tensor type in one of ten forms of codes and eight of scales, laid out so
// that the threads of a subgroup load neighbouring 16 bytes, for decoding, for prompts and for embeddings
// alike. shaders/weights.wgsl reads this layout.
//
//   codes  [tile of 64 rows][unit of 64 values][piece][row in tile], 16 bytes each
//   scales [tile][unit][word][row in tile], 4 bytes each; behind the scales what codes have beyond 4 bits.
//          Small scales (kPower) of two units share their words: [tile][unit / 2]... In front of a tile's
//          units, of forms that have one, a factor for each row, 4 bytes.
//
// Rows and values are filled up with zeros to whole tiles and units.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/gpu/device.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/tensor.h"

namespace doppler::gpu {

inline constexpr std::uint32_t kTileRows = 64, kUnitValues = 64;

// As shaders/weights.wgsl numbers them.
enum class CodeForm : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kBytes,
  kSignedNibbles,
  kNibbles,
  kSignedFive,    // nibbles and, behind the scales, their signs
  kSignedSix,     // nibbles and the two bits above each
  kFloatNibbles,  // nibbles that stand for MXFP4's levels: float_nibble_level()
  kBF16In13,      // bf16_in_13_bits.h: no scales, but a factor for each row
};
enum class ScaleForm : std::uint8_t {
  kNone,
  kHalf,
  kHalfMin,
  kSuper32Min,
  kSuper16,
  kSuper16Min,
  kFloat,
  kPower,
};

struct WeightFormat {
  CodeForm codes = CodeForm::kF32;
  ScaleForm scales = ScaleForm::kNone;
  bool operator==(const WeightFormat&) const = default;
  bool quantised() const { return scales != ScaleForm::kNone; }
  // Whether there is anything in the buffer of scales.
  bool has_scales() const { return scale_words() > 0; }
  std::uint32_t pieces() const;       // of 16 bytes in a unit of a row
  std::uint32_t high_words() const;   // of 4 bytes in a unit of a row: what codes have beyond 4 bits
  std::uint32_t scale_words() const;  // the same of scales, those included
  std::uint32_t row_words() const;    // of a row, in front of its units'
  // Whether 256 values share a scale or two, by which the scales of their groups are multiplied (K-quants).
  bool super_blocks() const {
    return scales == ScaleForm::kSuper32Min || scales == ScaleForm::kSuper16 ||
           scales == ScaleForm::kSuper16Min;
  }
  std::uint32_t scale_span() const { return scales == ScaleForm::kPower ? 2 : 1; }  // units that share them
  std::uint64_t row_bytes(std::uint32_t units) const;                               // of codes and scales
};

// The level of quant/blocks.h (kMXFP4Levels) that a nibble of kFloatNibbles stands for. MXFP4's own nibbles
// are not kept: from these a shader makes the level with three bit operations for eight of them, and no
// table.
constexpr int float_nibble_level(unsigned nibble) {
  const bool zero = nibble & 1, one = nibble >> 1 & 1, three = nibble >> 3 & 1;
  const bool jumps = zero + !one + three >= 2;
  return static_cast<int>(nibble) - 16 * three + 13 * jumps - 6;
}

// The form a type takes; types without one of their own are decoded to kF32.
WeightFormat format_of(DType type);
// The same of a head: each token reads all of it, a prompt for one of its tokens.
WeightFormat head_format_of(DType type);

// Rows [first_row, first_row + rows) of a matrix, small enough for a binding.
struct Shard {
  std::uint32_t first_row = 0, rows = 0;
  Buffer codes, scales;  // no scales where has_scales() is false
};

struct GpuMatrix {
  WeightFormat format;
  std::uint32_t rows = 0, cols = 0, units = 0;
  std::vector<Shard> shards;
  std::uint64_t bytes = 0;  // on the device
};

// Puts tensors of one width and format under each other and onto the device. `most_bytes` bounds a shard (the
// device's largest binding; less in tests). `format`: one that the tensors' types take, format_of() if not
// given. Errors: kLimit when the device has no room.
Result<GpuMatrix> upload_matrix(Device& device, ThreadPool& pool, std::span<const TensorView* const> tensors,
                                std::uint64_t most_bytes, std::optional<WeightFormat> format = {});

}  // namespace doppler::gpu
