// Panels: how the cpu backend lays quantised weights out, and the kernels that multiply them with activations
// quantised to 8 bits.
//
// A panel is 16 rows, the lanes of the widest vectors. Its bytes follow each other in the order in which a
// product reads them: block after block of columns, and in a block first the scales of the 16 rows, then the
// codes. One stream per thread, no gathering, and one broadcast of four activations serves 16 rows. All
// instruction sets share the layout; those with shorter vectors take a panel in parts.
//
// A code is what the file stores for a value, without its sign: value = scale * (code - offset) (+ minimum).
// Four codes of neighbouring columns fill a row's 32-bit lane, so that the dot products of 8-bit numbers that
// all machines have (vpdpbusd, vpmaddubsw, sdot) give a sum per row; two vectors of four rows and four
// columns, their lanes in turn, are the two rows of eight columns that a matrix instruction (usmmla) takes.
// Codes of 5, 6 and 3 bits are kept as two planes, so that panels are (almost) as small as the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "quant/dtype.h"

namespace doppler::cpu {

inline constexpr std::size_t kPanelRows = 16;
// Activations are quantised, and codes grouped, by 32 columns: the blocks of every format are whole multiples
// of it.
inline constexpr std::size_t kSubBlock = 32;

// 32 activations of one token: x[i] ~ scale * q[i], |q| <= 127. A cache line.
struct alignas(64) ActivationBlock {
  std::int8_t q[kSubBlock];
  float scale;
  std::int32_t minus_sum[3];  // of q: columns 0..15, 16..31, all; multiplied by a format's offset
  float scaled_sum[3];        // scale * sum of q, likewise; multiplied by a format's minimum
  float unused;
};
static_assert(sizeof(ActivationBlock) == 64);

// Tokens are multiplied in tiles of a power of two, largest first; this is the next tile's size.
constexpr std::size_t next_tile(std::size_t tokens_left, std::size_t largest) {
  std::size_t tile = largest;
  while (tile > tokens_left) tile /= 2;
  return tile;
}

// How a type stores a block of 16 rows.
struct PanelFormat {
  DType dtype;
  std::size_t block_cols;   // 32 or 256
  std::size_t block_bytes;  // of 16 rows
  // Writes one block of 16 rows; `rows` are the blocks as the file stores them, null for rows beyond the end.
  void (*pack)(const std::uint8_t* const (&rows)[kPanelRows], std::uint8_t* out);
};

// Null for types that have no panels.
const PanelFormat* panel_format(DType dtype);
std::span<const PanelFormat> all_panel_formats();

// Quantised weights [rows, cols] in panels; rows beyond the last are zeros.
struct PanelMatrix {
  const PanelFormat* format = nullptr;
  const std::uint8_t* data = nullptr;
  std::size_t rows = 0, cols = 0;

  std::size_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  std::size_t panel_bytes() const { return cols / format->block_cols * format->block_bytes; }
};

// Lays panels [begin, end) of a matrix in file order out. `file` holds its rows side by side.
void pack_panels(const PanelMatrix& shape, const std::uint8_t* file, std::size_t begin, std::size_t end,
                 std::uint8_t* out);

// out[t * stride + r] = dot(row 16 * panel_begin + r, token t) (+ bias).
struct PanelCall {
  PanelMatrix weight;
  const float* bias = nullptr;         // rows of the weight, or null
  const ActivationBlock* x = nullptr;  // output of quantise() for `tokens` rows of weight.cols
  std::size_t tokens = 0;
  std::size_t panel_begin = 0, panel_end = 0;
  float* out = nullptr;
  std::size_t stride = 0;
};

struct PanelKernels {
  std::string_view name;    // of the instruction set
  std::size_t tile_tokens;  // the largest tile
  // Quantises rows [begin, end) of x [tokens, cols] into the order in which rows() reads them: tile after
  // tile, in a tile block after block, in a block token after token. A block with NaN or Inf has the scale
  // NaN.
  void (*quantise)(const float* x, std::size_t tokens, std::size_t cols, std::size_t begin, std::size_t end,
                   ActivationBlock* out);
  // The products of a (row, token) are summed in the order of columns, one fused multiply-add per scale,
  // whatever the tile.
  void (*rows)(const PanelCall& call);
};

// By instruction set; null where the machine lacks it.
#if defined(__x86_64__)
const PanelKernels* panel_avx512_vnni();
const PanelKernels* panel_avx512();
const PanelKernels* panel_avx_vnni();
const PanelKernels* panel_avx2();
#elif defined(__aarch64__)
const PanelKernels* panel_neon_i8mm();
const PanelKernels* panel_neon();
#elif defined(__wasm_simd128__)
const PanelKernels* panel_wasm();
#endif
const PanelKernels* panel_portable();  // never null

}  // namespace doppler::cpu
