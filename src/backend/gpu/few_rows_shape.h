// How products of a few rows of activations, those of sequences that grow together, are cut into workgroups:
// up to 8 rows go through the matrix as columns (shaders/gemv_columns.wgsl), up to 64 in one tile of tokens
// (shaders/gemm.wgsl).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/weights.h"

namespace doppler::gpu {

// Columns of gemv_columns.wgsl at most: more rows are multiplied in tiles.
inline constexpr std::uint32_t kMostColumns = 8;
// Rows of activations up to which choose_few_rows_shape() cuts a product.
inline constexpr std::uint32_t kFewRows = 64;

// The smallest number of columns that a kernel is made for and that holds `rows`, at most kMostColumns.
std::uint32_t columns_for(std::uint32_t rows);
// The tile of tokens for so many rows, up to kFewRows: 16, 32 or 64.
std::uint32_t few_rows_tile(std::uint32_t rows);

struct ColumnsShape {
  std::uint32_t rows = 0;   // of a set: a power of two, at most 64
  std::uint32_t lanes = 0;  // threads of a row
  std::uint32_t units = 0;  // of 64 values, a thread: a power of two, as GemvShape has them
  std::uint32_t sets = 1;   // 1, 2 or 4: rows that a thread has, half of them of gate where there is an up
  std::uint32_t threads() const { return rows * lanes; }
  // Results of a workgroup for a column.
  std::uint32_t results(bool gated) const { return rows * sets / (gated ? 2 : 1); }
  bool operator==(const ColumnsShape&) const = default;
};

// The `most` shapes that look best, in order; none where nothing fits. `gated`: the sets are gate and up, and
// a workgroup leaves whole blocks of 32 results. `software`: for a CPU, which takes longer to compile what is
// written out for several sets and units than they save. bench/gpu_few_rows_bench measures them.
std::vector<ColumnsShape> best_columns_shapes(const Limits& limits, const WeightFormat& format,
                                              std::uint32_t rows, std::uint32_t units, bool gated,
                                              std::size_t most, bool software = false);
std::optional<ColumnsShape> choose_columns_shape(const Limits& limits, const WeightFormat& format,
                                                 std::uint32_t rows, std::uint32_t units, bool gated,
                                                 bool software = false);

// The cuts that they are chosen from, with one split.
std::span<const GemmShape> few_rows_shapes();

// The cuts of gemm.wgsl for one tile of `tile` tokens, the `most` that look best in order; none for a device
// that holds none.
std::vector<GemmShape> best_few_rows_shapes(const Limits& limits, const WeightFormat& format,
                                            std::uint32_t tile, std::uint32_t rows, std::uint32_t units,
                                            std::size_t most);
std::optional<GemmShape> choose_few_rows_shape(const Limits& limits, const WeightFormat& format,
                                               std::uint32_t tile, std::uint32_t rows, std::uint32_t units);

}  // namespace doppler::gpu
