#include "backend/gpu/few_rows_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// A large GPU of today: processors, and the threads that hide the latencies of one.
constexpr double kManyProcessors = 132, kBusyThreads = 512;

// A power of two up to kMostColumns, or tiles up to kFewRows: so many kernels are made at most.
std::uint32_t power_from(std::uint32_t least, std::uint32_t rows, std::uint32_t most) {
  while (least < rows && least < most) least *= 2;
  return least;
}

// What a shape costs beyond the work that all have.
double columns_cost(const ColumnsShape& shape, const WeightFormat& format, std::uint32_t rows,
                    std::uint32_t units, bool gated) {
  const double here = shape.rows * (gated ? 1 : shape.sets);
  const double groups = std::ceil(rows / here), each = std::ceil(groups / kManyProcessors);
  const double idle = each * kManyProcessors * here / rows - 1;
  const double threads = groups / kManyProcessors * shape.threads();
  const double loads = double(shape.units) * shape.sets * format.pieces();
  double cost = idle + 0.3 * std::max(0.0, std::log2(kBusyThreads / threads));
  cost += 0.2 * std::max(0.0, std::log2(4 / loads)) + 0.2 * std::max(0.0, std::log2(loads / 8));
  if (shape.sets == 1) cost += 0.15;  // activations are loaded for one row only
  if (shape.threads() % 32 != 0) cost += 0.2;
  if (shape.lanes * shape.units != units) cost += 0.1;
  return cost;
}

}  // namespace

std::uint32_t columns_for(std::uint32_t rows) {
  return power_from(2, rows, kMostColumns);
}

std::uint32_t few_rows_tile(std::uint32_t rows) {
  return power_from(16, rows, kFewRows);
}

std::optional<ColumnsShape> choose_columns_shape(const Limits& limits, const WeightFormat& format,
                                                 std::uint32_t rows, std::uint32_t units, bool gated) {
  // Threads wait for a load each and hold some sums: more would leave too few registers.
  const std::uint32_t most_threads = std::min<std::uint32_t>(limits.workgroup_invocations, 384);
  std::optional<ColumnsShape> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t per_set = gated ? 32 : 8; per_set <= (gated ? 32u : 64u); per_set *= 2) {
    if (gated && rows % per_set != 0) continue;
    for (std::uint32_t sets = gated ? 2 : 1; sets <= 2; ++sets) {
      // A workgroup's rows are part of a tile of 64, behind whose last there may be nothing.
      if (!gated && per_set * sets > 64) continue;
      if (!gated && ceil_div(rows, per_set * sets) > limits.workgroups_per_dimension) continue;
      for (std::uint32_t share = 1; share <= units; ++share) {
        const ColumnsShape shape{
            .rows = per_set, .lanes = ceil_div(units, share), .units = share, .sets = sets};
        const std::uint64_t bytes =
            std::uint64_t{kMostColumns} * 4 * (sets * shape.threads() + (gated ? per_set : 0)) +
            (gated ? shape.threads() * 8 : 0);  // quantise_vec.wgsl without subgroups
        if (shape.threads() > most_threads || shape.threads() % 8 != 0 || bytes > limits.workgroup_bytes)
          continue;
        const double cost = columns_cost(shape, format, rows, units, gated);
        if (cost >= least) continue;
        least = cost;
        best = shape;
      }
    }
  }
  return best;
}

std::optional<GemmShape> choose_few_rows_shape(const Limits& limits, const WeightFormat& format,
                                               std::uint32_t tile, std::uint32_t rows, std::uint32_t units) {
  constexpr GemmShape kShapes[] = {
      {64, 64, 8, 4, 1, 1}, {64, 128, 16, 4, 1, 1}, {64, 64, 8, 4, 2, 1}, {64, 32, 4, 4, 2, 1},  //
      {32, 64, 4, 4, 2, 1}, {32, 128, 8, 4, 1, 1},  {32, 32, 4, 2, 2, 1},                        //
      {16, 64, 2, 4, 2, 1}, {16, 128, 4, 4, 1, 1},  {16, 32, 2, 2, 2, 1},
  };
  constexpr std::uint32_t kMostSplits = 16;
  // Cycles of a processor: 64 dots of four bytes each, of which three quarters are reached; what a step waits
  // for memory at least, which the steps of other workgroups hide, four at a time; a workgroup's beginning
  // and end; and the dispatch that adds the parts up, whose bytes pass at 3 TB/s and 1.7 GHz.
  constexpr double kDots = 64 * 0.75, kStep = 1000, kEnds = 2500, kAtATime = 4, kSum = 4200,
                   kBytes = 3e12 / 1.7e9;
  std::optional<GemmShape> best;
  double least = std::numeric_limits<double>::infinity();
  for (GemmShape shape : kShapes) {
    if (shape.tile_tokens != tile || !gemm_fits(limits, shape, format)) continue;
    if (ceil_div(rows, shape.tile_rows) > limits.workgroups_per_dimension) continue;
    const std::uint32_t all_steps = ceil_div(units, shape.units);
    for (shape.splits = 1; shape.splits <= std::min(kMostSplits, all_steps); ++shape.splits) {
      const std::uint32_t steps = ceil_div(all_steps, shape.splits);
      if ((shape.splits - 1) * steps >= all_steps) continue;  // the last part would be empty
      const double each = std::ceil(ceil_div(rows, shape.tile_rows) * shape.splits / kManyProcessors);
      const double work =
          each * steps * shape.units * shape.tile_tokens * shape.tile_rows * kUnitValues / 4.0 / kDots;
      double cycles = std::max(work, std::ceil(each / kAtATime) * steps * kStep) + kEnds;
      if (shape.splits > 1) cycles += kSum + double(shape.splits) * tile * rows * 8 / kBytes;
      if (cycles >= least) continue;
      least = cycles;
      best = shape;
    }
  }
  return best;
}

}  // namespace doppler::gpu
