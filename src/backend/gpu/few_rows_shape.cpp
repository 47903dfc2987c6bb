#include "backend/gpu/few_rows_shape.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// A large GPU of today: its processors, each with four schedulers, and the bytes of memory that one reads in
// a cycle.
constexpr double kManyProcessors = 132, kSchedulers = 4, kBytesPerCycle = 17;

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

// Cycles that a product of kMostColumns columns takes, about: fitted to 310 timings on an H100, of products
// of Gemma 3 1B, Llama 3.2 1B and Llama 3.1 8B in 4 to 8 bits (bench/gpu_few_rows_bench), so that the shape
// it finds takes 4 % longer than the best on average, and 23 % at most.
double columns_cost(const ColumnsShape& shape, const WeightFormat& format, std::uint32_t rows,
                    std::uint32_t units, bool gated) {
  const double sets = shape.sets, each_unit = double(shape.units) * kMostColumns;
  // Workgroups of a processor, and how many of them its registers hold at a time: a unit's weights, and sums
  // that wait on each level of the tree.
  const double held = sets * (format.pieces() + 0.4 * std::log2(shape.units));
  const double groups = std::ceil(std::ceil(rows / double(shape.results(gated))) / kManyProcessors);
  const double rounds =
      std::ceil(groups / std::max(1.0, std::floor(490 / (shape.threads() * (1 + 0.076 * held)))));
  // A warp's unit of a row times a column: 16 dots at two cycles, or six loads of activations, which the rows
  // of a thread share.
  const double dots =
      groups * shape.threads() / 32 / kSchedulers * each_unit * sets * std::max(31.0, 75 / sets);
  // A thread by itself, which waits for weights in each unit and for activations in each column.
  const double alone = 1500 + 110.0 * shape.units + each_unit * (18 + 60 * sets);
  const double memory = double(rows) * (gated ? 2 : 1) * units *
                        (format.pieces() * 16 + format.scale_words() * 4) /
                        (kBytesPerCycle * kManyProcessors);
  // What is loaded and what is multiplied overlap the more, the more rounds there are.
  return std::max({dots, rounds * alone, memory}) + 2.25 * std::min(dots, memory) / std::pow(rounds, 0.24) +
         0.22 * alone + 9.2 * shape.lanes * sets;
}

// The same of weights in floats, as a rank: no model fits what 101 timings of BF16 and F32 show, since the
// driver's compiler moves loads about. The best have two rows a thread and 24 to 32 loads of weights under
// way, and few threads; or, of long rows, one row and so many threads that few registers are left for such
// moves.
double float_columns_rank(const ColumnsShape& shape, const WeightFormat& format) {
  const double loads = double(shape.units) * shape.sets * format.pieces();
  const std::uint32_t threads = shape.threads();
  double rank = 30;
  if (shape.sets == 2 && loads >= 24 && loads <= 32 && shape.rows >= 8 && threads <= 288) {
    rank = 0;
  } else if (shape.sets == 1) {
    rank = threads > 288 ? 10 : 20;
  }
  return rank + std::abs(std::log2(loads / 32)) + (threads < 128 ? 1 : 0) + threads / 1024.0;
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
                                              std::size_t most, bool software) {
  const std::uint32_t least_sets = gated ? 2 : 1, most_sets = software ? least_sets : 4;
  const std::uint32_t most_threads = std::min<std::uint32_t>(limits.workgroup_invocations, 512);
  Ranked<ColumnsShape> shapes;
  // Rows side by side are 128 bytes at least, or half where a narrow matrix would leave processors idle.
  const std::uint32_t least_rows = gated ? 16 : rows < kNarrow ? 4 : 8;
  for (std::uint32_t per_set = least_rows; per_set <= 64; per_set *= 2) {
    for (std::uint32_t sets = least_sets; sets <= most_sets; sets *= 2) {
      for (std::uint32_t share = 1; share <= units; share *= 2) {
        const ColumnsShape shape{
            .rows = per_set, .lanes = ceil_div(units, share), .units = share, .sets = sets};
        const std::uint32_t results = shape.results(gated);
        // A workgroup's rows are part of a tile of 64, behind whose last there may be nothing; and gated ones
        // leave whole blocks.
        if (gated ? results % 32 != 0 || rows % results != 0 : results > 64) continue;
        if (ceil_div(rows, results) > limits.workgroups_per_dimension) continue;
        // Loads of a unit that a thread waits for at a time.
        if (sets > 1 && sets * format.pieces() > (format.quantised() ? 8u : 16u)) continue;
        const std::uint64_t bytes =
            std::uint64_t{kMostColumns} * 4 * (sets * shape.threads() + (gated ? results : 0)) +
            (gated ? shape.threads() * 8 : 0);  // quantise_vec.wgsl without subgroups
        if (shape.threads() > most_threads || shape.threads() % 8 != 0 || bytes > limits.workgroup_bytes)
          continue;
        const double cost = software             ? share
                            : format.quantised() ? columns_cost(shape, format, rows, units, gated)
                                                 : float_columns_rank(shape, format);
        shapes.emplace_back(cost, shape);
      }
    }
  }
  return cheapest(std::move(shapes), most);
}

std::optional<ColumnsShape> choose_columns_shape(const Limits& limits, const WeightFormat& format,
                                                 std::uint32_t rows, std::uint32_t units, bool gated,
                                                 bool software) {
  const std::vector<ColumnsShape> best = best_columns_shapes(limits, format, rows, units, gated, 1, software);
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
