// How a matrix product with many tokens is cut into workgroups (shaders/gemm.wgsl), and which cut suits a
// shape. k is the dimension that is summed over.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/shader.h"
#include "backend/gpu/weights.h"

namespace doppler::gpu {

struct GemmShape {
  std::uint32_t tile_tokens = 0, tile_rows = 0;  // of a workgroup
  std::uint32_t tokens_each = 0, rows_each = 0;  // of a thread
  std::uint32_t units = 1;                       // of 64 values along k in workgroup memory at a time
  std::uint32_t splits = 1;                      // parts of k that workgroups share
  bool unrolled = true;                          // the blocks of 32 values are written out, not a loop
  bool tree = false;                             // units are added as for single tokens; see gemm.wgsl
  std::uint32_t threads() const { return tile_tokens / tokens_each * (tile_rows / rows_each); }
  std::string name() const;  // "64x128x64 16x4 /3", "... loop"
  bool operator==(const GemmShape&) const = default;
};

// Every cut that is worth measuring, with one split. To try another, add it here: bench/gpu_prefill_bench
// measures them all.
std::span<const GemmShape> gemm_shapes();

// Workgroup memory that gemm.wgsl needs for a format.
std::uint32_t gemm_bytes(const GemmShape& shape, const WeightFormat& format);
bool gemm_fits(const Limits& limits, const GemmShape& shape, const WeightFormat& format);

// Whether a cut's splits are whole branches of the tree over so many units, and a thread's sums that wait on
// its levels, with those that it makes, fit into registers; true without a tree.
bool sums_fit(const GemmShape& shape, std::uint32_t units);

// The cut for `tokens` x `rows` x `units`: the measured one (kMeasured in the source), else the fastest by a
// model of a large GPU. Nothing for a device that holds none of them.
std::optional<GemmShape> choose_gemm_shape(const Limits& limits, const WeightFormat& format,
                                           std::uint32_t tokens, std::uint32_t rows, std::uint32_t units);

// The cut for a handful of tokens that sums along k as the other does.
GemmShape for_few_tokens(const GemmShape& shape);

// The values of gemm.wgsl for a matrix of `rows` x `units` and a cut; its other values say where results go.
ShaderValues gemm_values(const GemmShape& shape, const WeightFormat& format, std::uint32_t rows,
                         std::uint32_t units);

// The cut for `tokens` rows that are spread over experts; its tile_tokens depend on nothing else, unless the
// device cannot hold the cut, or a tree over the rows' units needs too many registers.
std::optional<GemmShape> choose_expert_shape(const Limits& limits, const WeightFormat& format,
                                             std::uint32_t tokens, std::uint32_t experts, std::uint32_t units,
                                             bool tree);

// The same for float activations (shaders/gemm_float.wgsl), where `units` of a cut do not count; with `tree`
// or without.
std::span<const GemmShape> float_shapes(bool tree = false);
std::uint32_t float_gemm_bytes(const GemmShape& shape, const WeightFormat& format);
std::optional<GemmShape> choose_float_shape(const Limits& limits, const WeightFormat& format,
                                            std::uint32_t tokens, std::uint32_t rows, std::uint32_t units,
                                            bool tree);
ShaderValues float_gemm_values(const GemmShape& shape, const WeightFormat& format, std::uint32_t rows,
                               std::uint32_t units);

}  // namespace doppler::gpu
