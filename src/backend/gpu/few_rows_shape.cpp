#include "backend/gpu/few_rows_shape.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// A large GPU of today: its processors, each with four schedulers and 64 dots of four bytes a cycle; the
// threads that hide the latencies of one; and the bytes of memory that it reads in a cycle.
constexpr double kManyProcessors = 132, kSchedulers = 4, kBusyThreads = 512, kBytesPerCycle = 20;

template <typename Shape>
using Ranked = std::vector<std::pair<double, Shape>>;

// The `most` cheapest; of equals the first.
template <typename Shape>
std::vector<Shape> cheapest(Ranked<Shape> shapes, std::size_t most) {
  std::ranges::stable_sort(shapes, {}, &std::pair<double, Shape>::first);
  std::vector<Shape> best;
  for (std::size_t i = 0; i < std::min(most, shapes.size()); ++i) best.push_back(shapes[i].second);
  return best;
}

constexpr GemmShape kFewRowsShapes[] = {
    {64, 32, 4, 4, 2, 1}, {64, 64, 8, 4, 1, 1},  {64, 64, 4, 4, 2, 1},  //
    {32, 64, 4, 4, 2, 1}, {32, 128, 8, 4, 1, 1}, {32, 32, 4, 2, 2, 1},  //
    {16, 64, 2, 4, 2, 1}, {16, 128, 4, 4, 1, 1}, {16, 32, 2, 2, 2, 1},
};

// Rows of a matrix of which each processor has fewer than two workgroups of 8.
constexpr std::uint32_t kNarrow = 2112;

// A power of two up to kMostColumns, or tiles up to kFewRows: so many kernels are made at most.
std::uint32_t power_from(std::uint32_t least, std::uint32_t rows, std::uint32_t most) {
  while (least < rows && least < most) least *= 2;
  return least;
}

// Cycles that a product of kMostColumns columns takes, about.
double columns_cost(const ColumnsShape& shape, const WeightFormat& format, std::uint32_t rows,
                    std::uint32_t units, bool gated) {
  const double here = shape.rows * (gated ? 1 : shape.sets);
  const double groups = std::ceil(rows / here), each = std::ceil(groups / kManyProcessors);
  const double uneven = each * kManyProcessors * here / rows;
  const double busy = std::min(1.0, groups / kManyProcessors * shape.threads() / kBusyThreads);
  const double all_units = double(rows) * (gated ? 2 : 1) * units;
  // A warp's unit of a row times a column: 16 dots at two cycles and what goes with them, or six loads of
  // activations, which the schedulers share and which are as many as the warp has different units; and the
  // thread's beginning and end.
  const double different = 32.0 / shape.rows, loads_of_x = 6 * kSchedulers * std::clamp(different, 1.0, 4.0);
  const double cycles =
      std::max(45.0, loads_of_x / shape.sets) + 100.0 / (kMostColumns * shape.units * shape.sets);
  const double dots = all_units * kMostColumns / 32 / (kManyProcessors * kSchedulers) * cycles *
                      (double(shape.lanes) * shape.units / units);
  const double memory = all_units * (format.pieces() * 16 + 4) / (kBytesPerCycle * kManyProcessors);
  const double loads = double(shape.units) * shape.sets * format.pieces();
  double cost = std::max(dots, memory) * uneven / std::sqrt(busy);
  // Waiting for memory, the sum over the lanes, and loads that are too many for the registers.
  cost += 700 + 20 * loads + 4.0 * shape.lanes * shape.sets + 300 * std::max(0.0, loads / 8 - 1);
  if (shape.threads() % 32 != 0) cost += 200;
  return cost;
}

}  // namespace

std::uint32_t columns_for(std::uint32_t rows) {
  return power_from(2, rows, kMostColumns);
}

std::uint32_t few_rows_tile(std::uint32_t rows) {
  return power_from(16, rows, kFewRows);
}

std::span<const GemmShape> few_rows_shapes() {
  return kFewRowsShapes;
}

std::vector<ColumnsShape> best_columns_shapes(const Limits& limits, const WeightFormat& format,
                                              std::uint32_t rows, std::uint32_t units, bool gated,
                                              std::size_t most) {
  // Threads wait for a load each and hold some sums: more would leave too few registers.
  const std::uint32_t most_threads = std::min<std::uint32_t>(limits.workgroup_invocations, 384);
  Ranked<ColumnsShape> shapes;
  // Rows side by side are 128 bytes at least, or half where a narrow matrix would leave processors idle.
  const std::uint32_t least_rows = gated ? 32 : rows < kNarrow ? 4 : 8;
  for (std::uint32_t per_set = least_rows; per_set <= (gated ? 32u : 64u); per_set *= 2) {
    if (gated && rows % per_set != 0) continue;
    for (std::uint32_t sets = gated ? 2 : 1; sets <= 2; ++sets) {
      // A workgroup's rows are part of a tile of 64, behind whose last there may be nothing.
      if (!gated && per_set * sets > 64) continue;
      if (!gated && ceil_div(rows, per_set * sets) > limits.workgroups_per_dimension) continue;
      for (std::uint32_t share = 1; share <= units; share *= 2) {
        const ColumnsShape shape{
            .rows = per_set, .lanes = ceil_div(units, share), .units = share, .sets = sets};
        const std::uint64_t bytes =
            std::uint64_t{kMostColumns} * 4 * (sets * shape.threads() + (gated ? per_set : 0)) +
            (gated ? shape.threads() * 8 : 0);  // quantise_vec.wgsl without subgroups
        if (shape.threads() > most_threads || shape.threads() % 8 != 0 || bytes > limits.workgroup_bytes)
          continue;
        shapes.emplace_back(columns_cost(shape, format, rows, units, gated), shape);
      }
    }
  }
  return cheapest(std::move(shapes), most);
}

std::optional<ColumnsShape> choose_columns_shape(const Limits& limits, const WeightFormat& format,
                                                 std::uint32_t rows, std::uint32_t units, bool gated) {
  const std::vector<ColumnsShape> best = best_columns_shapes(limits, format, rows, units, gated, 1);
  return best.empty() ? std::nullopt : std::optional(best[0]);
}

std::vector<GemmShape> best_few_rows_shapes(const Limits& limits, const WeightFormat& format,
                                            std::uint32_t tile, std::uint32_t rows, std::uint32_t units,
                                            std::size_t most) {
  constexpr std::uint32_t kMostParts = 16;
  // Cycles of a processor: 64 dots of four bytes each, of which four fifths are reached, less where a thread
  // reads many words for its products; what a unit waits for memory at least, which other workgroups hide,
  // four at a time; a workgroup's beginning and end; and the dispatch that adds the parts up, whose bytes
  // pass at 3 TB/s and 1.7 GHz.
  constexpr double kDots = 64 * 0.8, kUnitCycles = 700, kEnds = 2500, kAtATime = 4, kSum = 4200,
                   kBytes = 3e12 / 1.7e9, kBestReuse = 16.0 * 4 / (2 * 16 + 4);
  Ranked<GemmShape> shapes;
  for (GemmShape shape : kFewRowsShapes) {
    shape.tree = true;
    if (shape.tile_tokens != tile || !gemm_fits(limits, shape, format)) continue;
    if (ceil_div(rows, shape.tile_rows) > limits.workgroups_per_dimension) continue;
    const std::uint32_t all_steps = ceil_div(units, shape.units);
    const double a = shape.tokens_each, b = shape.rows_each, reuse = a * b / (2 * a + b) / kBestReuse;
    for (shape.splits = 1; shape.splits <= std::min(kMostParts, all_steps); ++shape.splits) {
      const std::uint32_t steps = ceil_div(all_steps, shape.splits);
      if (!sums_fit(shape, units)) continue;
      const double each = std::ceil(ceil_div(rows, shape.tile_rows) * shape.splits / kManyProcessors);
      const double work = each * steps * shape.units * shape.tile_tokens * shape.tile_rows * kUnitValues /
                          4.0 / (kDots * std::min(1.0, 0.4 + 0.6 * reuse));
      double cycles = std::max(work, std::ceil(each / kAtATime) * steps * shape.units * kUnitCycles) + kEnds;
      if (shape.splits > 1) cycles += kSum + double(shape.splits) * tile * rows * 8 / kBytes;
      shapes.emplace_back(cycles, shape);
    }
  }
  return cheapest(std::move(shapes), most);
}

std::optional<GemmShape> choose_few_rows_shape(const Limits& limits, const WeightFormat& format,
                                               std::uint32_t tile, std::uint32_t rows, std::uint32_t units) {
  const std::vector<GemmShape> best = best_few_rows_shapes(limits, format, tile, rows, units, 1);
  return best.empty() ? std::nullopt : std::optional(best[0]);
}

}  // namespace doppler::gpu
