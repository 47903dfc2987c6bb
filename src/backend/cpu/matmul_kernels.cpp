// Weights times activations. One vector accumulator per (row, token) walks the columns from left to right and
// its lanes are summed at the end: the same order alone (decode), in a tile, or in any batch.
//
// Decode (tokens <= tile_tokens) converts weights in registers and is bound by memory; prefill decodes a
// block of rows once into floats and multiplies it with all tokens of the step, and is bound by
// multiplications.
#include "backend/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul_kernels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace doppler::cpu::HWY_NAMESPACE {
namespace {

// Sums held in registers: 4 rows x 6 tokens of 32 registers, 4 x 3 of 16; the activations of a step and one
// weight vector take the rest. Per column step that is 24 multiplications for 10 loads (12 for 7), so loads
// do not limit.
constexpr std::size_t kTileRows = 4;
constexpr std::size_t kTileTokens = kManyRegisters ? 6 : 3;
// Prefill keeps kBlockRows x kBlockCols decoded weights, 64 kB, in L2, of which a tile reads 8 kB at a time
// beside 12 kB of activations: together within L1 (32 kB). The sums are parked in memory between column
// blocks (512 kB for 256 tokens, L2 too): 48 moves per 768 multiplications of a tile. Each activation fetched
// from L3 is used by kBlockRows rows; measured on a Zen 4 core with 256 tokens of 2048 and 8192 columns: 16
// rows 96 and 76 GFlop/s, 32 rows 102 and 93, 64 rows 96 and 83.
constexpr std::size_t kBlockRows = 32;
constexpr std::size_t kBlockCols = 512;
static_assert(kBlockRows % kTileRows == 0 && kBlockCols % kLanes == 0);
// Rows up to this long are decoded one after the other where vectors have 16 lanes: the activations (8 kB)
// stay in L1 beside the stream, one sum keeps up with the memory, and hardware follows a single stream best.
// Llama 3.2 1B on two Zen 4 cores reached 94% of the plain read loop so, 90% with four rows side by side for
// all lengths.
constexpr std::size_t kStreamCols = 2048;
// Of every machine that Highway's x86, Arm and wasm targets run on, or a divisor.
constexpr std::size_t kLineBytes = 64;

constexpr std::size_t vectors(std::size_t cols) {
  return (cols + kLanes - 1) / kLanes;
}

std::size_t packed_floats(std::size_t tokens, std::size_t cols) {
  return tokens * vectors(cols) * kLanes;
}
bool is_packed(std::size_t tokens, std::size_t cols) {
  return tokens == 1 && cols % kLanes == 0;
}

// Tile after tile, and in a tile: for each vector of columns its tokens side by side, zeros beyond the last
// column.
void pack(const float* x, std::size_t tokens, std::size_t cols, std::size_t begin, std::size_t end,
          float* packed) {
  const std::size_t whole = cols / kLanes, tail = cols % kLanes;
  for (std::size_t tile = begin; tile < end; ++tile) {
    const std::size_t first = tile * kTileTokens, count = std::min(kTileTokens, tokens - first);
    float* to = packed + first * vectors(cols) * kLanes;
    for (std::size_t t = 0; t < count; ++t) {
      const float* from = x + (first + t) * cols;
      for (std::size_t k = 0; k < whole; ++k) {
        hn::StoreU(hn::LoadU(D(), from + k * kLanes), D(), to + (k * count + t) * kLanes);
      }
      if (tail != 0)
        hn::StoreU(load_some(from + whole * kLanes, tail), D(), to + (whole * count + t) * kLanes);
    }
  }
}

// Adds kSteps vectors of columns of kRows weight rows times kTokens tokens.
template <class W, std::size_t kSteps, std::size_t kRows, std::size_t kTokens>
HWY_INLINE void direct_steps(const std::uint8_t* w, std::size_t row_bytes, const float* x,
                             V (&sum)[kRows][kTokens]) {
  const D d;
  DOPPLER_UNROLL for (std::size_t k = 0; k < kSteps; ++k) {
    V token[kTokens];
    DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) token[t] =
        hn::LoadU(d, x + (k * kTokens + t) * kLanes);
    DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
      const V weight = W::load(w + r * row_bytes + k * kLanes * W::kBytes);
      DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) sum[r][t] =
          hn::MulAdd(weight, token[t], sum[r][t]);
    }
  }
}

// Decode: kRows rows straight from the file. Several rows side by side share each activation and hide the
// latency of the sums, but hardware follows so many short streams badly; so each line of the next rows is
// prefetched into L2 while the same line of these is used. Measured on one Zen 4 core with bf16 (GB/s at
// 1152, 2048, 4096 and 6912 columns; a plain read loop gets 29 to 30): one row at a time 27, 29, 19, 14; four
// rows 12, 17, -, 18; four rows with this prefetch 29, 28, 27, 27; the same into L1, where it evicts the
// activations, 13, 17, -, 17.
template <class W, std::size_t kRows, std::size_t kTokens>
HWY_INLINE void direct_tile(const MatmulCall& call, std::size_t row) {
  const D d;
  const std::size_t cols = call.weight.cols, whole = cols / kLanes, tail = cols % kLanes;
  const std::size_t row_bytes = cols * W::kBytes;
  const std::uint8_t* w = call.weight.data + row * row_bytes;
  const float* x = call.packed;
  V sum[kRows][kTokens];
  DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
    DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) sum[r][t] = hn::Zero(d);
  }
  // Not beyond the call's rows: the rows that follow may be another thread's.
  const std::uint8_t* next = w + (row + 2 * kRows <= call.row_end ? kRows * row_bytes : 0);
  constexpr std::size_t kStep = kLanes * W::kBytes, kLineSteps = kStep < kLineBytes ? kLineBytes / kStep : 1;
  std::size_t k = 0;
  for (; k + kLineSteps <= whole;
       k += kLineSteps, x += kLineSteps * kTokens * kLanes, w += kLineSteps * kStep) {
    if constexpr (kRows > 1) {
      DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) __builtin_prefetch(next + r * row_bytes, 0, 2);
    }
    next += kLineSteps * kStep;
    direct_steps<W, kLineSteps>(w, row_bytes, x, sum);
  }
  for (; k < whole; ++k, x += kTokens * kLanes, w += kStep) direct_steps<W, 1>(w, row_bytes, x, sum);
  if (tail != 0) {
    DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
      const V weight = load_some<W>(w + r * row_bytes, tail);
      DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) {
        sum[r][t] = hn::MulAdd(weight, hn::LoadU(d, x + t * kLanes), sum[r][t]);
      }
    }
  }
  float* out = call.out + (row - call.row_begin);
  DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
    const float bias = call.bias == nullptr ? 0.0f : call.bias[row + r];
    DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) {
      out[t * call.stride + r] = sum_of(sum[r][t]) + bias;
    }
  }
}

template <class W, std::size_t kTokens>
void direct_rows(const MatmulCall& call) {
  std::size_t row = call.row_begin;
  const bool one_stream = kTokens == 1 && kLanes >= 16 && call.weight.cols <= kStreamCols;
  for (; !one_stream && row + kTileRows <= call.row_end; row += kTileRows)
    direct_tile<W, kTileRows, kTokens>(call, row);
  for (; row < call.row_end; ++row) direct_tile<W, 1, kTokens>(call, row);
}

// One tile over one block of columns. `parked` holds the sums between blocks.
struct TileCall {
  const float *weights, *tokens;  // [steps][kRows][kLanes], [steps][kTokens][kLanes]
  std::size_t steps;
  bool first, last;
  float* parked;
  float* out;
  std::size_t stride;
  const float* bias;
};

template <std::size_t kRows, std::size_t kTokens>
void panel_tile(const TileCall& call) {
  const D d;
  V sum[kRows][kTokens];
  DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
    DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) {
      sum[r][t] = call.first ? hn::Zero(d) : hn::LoadU(d, call.parked + (r * kTokens + t) * kLanes);
    }
  }
  const float *w = call.weights, *x = call.tokens;
  for (std::size_t k = 0; k < call.steps; ++k, w += kRows * kLanes, x += kTokens * kLanes) {
    V token[kTokens];
    DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) token[t] = hn::LoadU(d, x + t * kLanes);
    DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
      const V weight = hn::LoadU(d, w + r * kLanes);
      DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) sum[r][t] =
          hn::MulAdd(weight, token[t], sum[r][t]);
    }
  }
  DOPPLER_UNROLL for (std::size_t r = 0; r < kRows; ++r) {
    const float bias = call.bias == nullptr ? 0.0f : call.bias[r];
    DOPPLER_UNROLL for (std::size_t t = 0; t < kTokens; ++t) {
      if (call.last) {
        call.out[t * call.stride + r] = sum_of(sum[r][t]) + bias;
      } else {
        hn::StoreU(sum[r][t], d, call.parked + (r * kTokens + t) * kLanes);
      }
    }
  }
}

using TileFunction = void (*)(const TileCall&);
// By tokens - 1, for as many as a tile has here. A tile has kTileRows rows, or one at the end of a call.
template <std::size_t kRows, std::size_t... kToken>
constexpr std::array<TileFunction, kTileTokens> tile_functions(std::index_sequence<kToken...>) {
  return {panel_tile<kRows, kToken + 1>...};
}
constexpr auto kFullTiles = tile_functions<kTileRows>(std::make_index_sequence<kTileTokens>());
constexpr auto kSingleTiles = tile_functions<1>(std::make_index_sequence<kTileTokens>());

std::size_t scratch_floats(std::size_t tokens) {
  return tokens <= kTileTokens ? 0 : kBlockRows * kBlockCols + kBlockRows * tokens * kLanes;
}

// Rows [0, rows) of a block of columns, as the tiles read them: groups of kTileRows, then single rows.
template <class W>
void decode_block(const WeightMatrix& weight, std::size_t row, std::size_t rows, std::size_t col,
                  std::size_t cols, float* panel) {
  const std::size_t steps = vectors(cols), whole = cols / kLanes;
  const std::size_t grouped = rows / kTileRows * kTileRows;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t width = r < grouped ? kTileRows : 1;
    float* to =
        panel + (r < grouped ? r / kTileRows * kTileRows * steps + r % kTileRows : r * steps) * kLanes;
    if (width == 1) to = panel + r * steps * kLanes;
    const std::uint8_t* from = weight.data + ((row + r) * weight.cols + col) * W::kBytes;
    for (std::size_t k = 0; k < whole; ++k)
      hn::StoreU(W::load(from + k * kLanes * W::kBytes), D(), to + k * width * kLanes);
    if (whole < steps) {
      hn::StoreU(load_some<W>(from + whole * kLanes * W::kBytes, cols % kLanes), D(),
                 to + whole * width * kLanes);
    }
  }
}

template <class W>
void panel_rows(const MatmulCall& call) {
  const std::size_t cols = call.weight.cols, padded = vectors(cols) * kLanes;
  float* panel = call.scratch;
  float* parked = call.scratch + kBlockRows * kBlockCols;
  for (std::size_t row = call.row_begin; row < call.row_end; row += kBlockRows) {
    const std::size_t rows = std::min(kBlockRows, call.row_end - row);
    for (std::size_t col = 0; col < cols; col += kBlockCols) {
      const std::size_t width = std::min(kBlockCols, cols - col), steps = vectors(width);
      decode_block<W>(call.weight, row, rows, col, width, panel);
      for (std::size_t first = 0; first < call.tokens; first += kTileTokens) {
        const std::size_t count = std::min(kTileTokens, call.tokens - first);
        TileCall tile{.weights = panel,
                      .tokens = call.packed + first * padded + col * count,
                      .steps = steps,
                      .first = col == 0,
                      .last = col + width == cols,
                      .parked = parked + first * kBlockRows * kLanes,
                      .out = call.out + first * call.stride + (row - call.row_begin),
                      .stride = call.stride,
                      .bias = call.bias == nullptr ? nullptr : call.bias + row};
        for (std::size_t r = 0; r < rows;) {
          const bool full = r + kTileRows <= rows;
          (full ? kFullTiles : kSingleTiles)[count - 1](tile);
          const std::size_t done = full ? kTileRows : 1;
          r += done;
          tile.weights += done * steps * kLanes;
          tile.parked += done * count * kLanes;
          tile.out += done;
          if (tile.bias != nullptr) tile.bias += done;
        }
      }
    }
  }
}

using DirectFunction = void (*)(const MatmulCall&);
template <class W, std::size_t... kToken>
constexpr std::array<DirectFunction, kTileTokens> direct_functions(std::index_sequence<kToken...>) {
  return {direct_rows<W, kToken + 1>...};
}

template <class W>
void rows_of(const MatmulCall& call) {
  if (call.tokens > kTileTokens) return panel_rows<W>(call);
  constexpr auto kDirect = direct_functions<W>(std::make_index_sequence<kTileTokens>());
  if (call.tokens > 0) kDirect[call.tokens - 1](call);
}

void rows(const MatmulCall& call) {
  switch (call.weight.dtype) {
    case DType::kF32:
      return rows_of<F32>(call);
    case DType::kF16:
      return rows_of<F16>(call);
    case DType::kBF16:
      return rows_of<Bf16>(call);
    default:
      return;  // the backend refuses other types before it runs
  }
}

}  // namespace

const MatmulKernels kMatmul = {kTileTokens, kBlockRows, packed_floats, is_packed, pack, scratch_floats, rows};

}  // namespace doppler::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace doppler::cpu {
#define DOPPLER_TABLE_OF_FILE kMatmul
DOPPLER_KERNEL_TABLE(MatmulKernels, matmul_kernels)
}  // namespace doppler::cpu
#endif
