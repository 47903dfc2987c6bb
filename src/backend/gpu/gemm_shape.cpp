#include "backend/gpu/gemm_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Two units written out are more instructions than a processor keeps at hand: on an H200 the product of 1152
// x 6912 with 512 tokens takes 167 us then, and 127 as a loop. One unit is a little faster written out where
// k is short (13824 x 1152 in Q4_0: 202 and 209), and in a loop elsewhere (an H100, 28672 x 4096 in Q4_K:
// 1,446 and 1,370; 16384 x 2048 in Q4_0: 393 and 390).
constexpr GemmShape kGemmShapes[] = {
    {64, 128, 16, 4, 1, 1, false},                                                // wide matrices
    {64, 128, 16, 4, 2, 1, false},                                                // long k
    {64, 128, 16, 4, 1, 1},        {64, 128, 16, 4, 2, 1}, {64, 64, 8, 4, 1, 1},  //
    {32, 128, 8, 4, 1, 1},                                                        // few tokens
    {32, 64, 8, 4, 2, 1, false},                                                  //
    {32, 32, 4, 4, 2, 1, false},                                                  // narrow matrices
    {16, 64, 4, 4, 2, 1, false},                                                  // very few tokens
};

constexpr GemmShape kFloatShapes[] = {
    {64, 128, 8, 8, 1, 1},   // many tokens
    {128, 128, 8, 8, 1, 1},  // the same with fewer loads, for devices that have the room
    {64, 64, 8, 4, 1, 1},    // narrow matrices
    {32, 64, 4, 4, 1, 1},    // few tokens
    {16, 64, 4, 4, 1, 1},    // very few tokens
};

// For up to kFewRows tokens, whose sums wait on the levels of a tree: fewer a thread.
constexpr GemmShape kFewFloatShapes[] = {
    {64, 64, 8, 4, 1, 1}, {64, 64, 4, 4, 1, 1}, {32, 64, 4, 4, 1, 1}, {16, 64, 4, 4, 1, 1}};

// Cuts that were measured on a device, by the shape of the product: taken where they apply and fit. The first
// row that matches counts. 0 stands for any.
struct Measured {
  std::uint32_t least_tokens, most_tokens;
  std::uint32_t rows, units;
  GemmShape shape;
};
constexpr Measured kMeasured[] = {
    // An H200 with 512 tokens: Gemma 3 1B, then Llama 3.2 1B.
    {257, 1024, 13824, 18, {64, 128, 16, 4, 1, 1}},
    {257, 1024, 1152, 108, {64, 128, 16, 4, 2, 3, false}},
    {257, 1024, 1536, 18, {32, 32, 4, 4, 2, 1, false}},
    {257, 1024, 1152, 16, {32, 32, 4, 4, 2, 1, false}},
    {257, 1024, 16384, 32, {64, 128, 16, 4, 1, 1, false}},
    {257, 1024, 2048, 128, {64, 128, 16, 4, 2, 2, false}},
    // Llama 3.1 8B's output: 206 us in one unit a step, 214 in two, with one scale for 256 values.
    {257, 1024, 4096, 64, {64, 128, 16, 4, 1, 1, false}},
    // Its downs: 757 us and 15 for the sum of three parts, 802 in one of two units a step.
    {257, 1024, 4096, 224, {64, 128, 16, 4, 1, 3, false}},
};

// A large GPU of today: what it multiplies in a second with the widest tile, and the threads' share of it.
struct Machine {
  double products_per_second;  // of a processor
  double tokens_each, rows_each;
  double busy_warps;  // of 32 threads, which a processor needs to hide its latencies
  // As many more where the widest tile takes one unit a step and waits twice as often: with eight warps an
  // H200 did 66 T/s then, and 80 with two units.
  double short_step_warps;
  // Whether no more of the widest tiles than make up these warps fit a processor's registers: a tile more
  // waits for the next round. On an H200 4 splits of 2048 x 8192 in BF16 ran at 26 Tflop/s, and what fills a
  // round at 34.
  bool in_rounds;
};
constexpr double kProcessors = 132;
constexpr Machine kEightBitMachine = {.products_per_second = 0.32e12,
                                      .tokens_each = 16,
                                      .rows_each = 4,
                                      .busy_warps = 8,
                                      .short_step_warps = 1.5,
                                      .in_rounds = false};
// Two thirds of 67 Tflop/s, in tiles of which three or four fit a processor's registers.
constexpr Machine kFloatMachine = {.products_per_second = 0.16e12,
                                   .tokens_each = 8,
                                   .rows_each = 8,
                                   .busy_warps = 12,
                                   .short_step_warps = 1,
                                   .in_rounds = true};
// Memory's speed, for the sums of split products, and what the dispatch that adds them costs.
constexpr double kBytesPerSecond = 3e12, kDispatchSeconds = 4e-6;
constexpr std::uint32_t kMostColumnSplits = 4, kMostBranches = 16;

double quotient_up(double a, double b) {
  return static_cast<double>(static_cast<std::uint64_t>((a + b - 1) / b));
}

// Products per word that a thread reads from workgroup memory.
double reuse_of(double tokens_each, double rows_each) {
  return tokens_each * rows_each / (2 * tokens_each + rows_each);
}

// Seconds that the product takes, about.
double estimate(const Machine& machine, const GemmShape& shape, double tokens, double rows, double units) {
  const double tiles =
      quotient_up(tokens, shape.tile_tokens) * quotient_up(rows, shape.tile_rows) * shape.splits;
  double each = quotient_up(tiles, kProcessors), warps = each * shape.threads() / 32;
  double busy = machine.busy_warps;
  const bool widest = shape.tokens_each * shape.rows_each >= machine.tokens_each * machine.rows_each;
  if (widest && shape.units == 1) busy *= machine.short_step_warps;
  if (machine.in_rounds && widest) {
    const double fitting = std::max(1.0, std::floor(machine.busy_warps * 32 / shape.threads()));
    each = quotient_up(each, fitting) * fitting;
    warps = fitting * shape.threads() / 32;
  }
  // Against the widest tile's.
  const double reuse =
      reuse_of(shape.tokens_each, shape.rows_each) / reuse_of(machine.tokens_each, machine.rows_each);
  const double speed =
      machine.products_per_second * std::min(1.0, 0.4 + 0.6 * reuse) * std::min(1.0, warps / busy);
  const double k = quotient_up(units, double{1} * shape.units * shape.splits) * shape.units * kUnitValues;
  double seconds = each * shape.tile_tokens * shape.tile_rows * k / speed;
  if (shape.splits > 1) seconds += kDispatchSeconds + shape.splits * tokens * rows * 8 / kBytesPerSecond;
  return seconds;
}

// The fastest of the cuts that `fits` accepts, with the splits that suit it.
template <typename Fits>
std::optional<GemmShape> fastest(std::span<const GemmShape> shapes, const Machine& machine, const Fits& fits,
                                 std::uint32_t tokens, std::uint32_t rows, std::uint32_t units,
                                 bool tree = false) {
  std::optional<GemmShape> best;
  double least = std::numeric_limits<double>::infinity();
  const std::uint32_t most_splits = tree ? kMostBranches : kMostColumnSplits;
  for (GemmShape shape : shapes) {
    shape.tree = tree;
    if (!fits(shape)) continue;
    const double warps =
        quotient_up(tokens, shape.tile_tokens) * quotient_up(rows, shape.tile_rows) * shape.threads() / 32;
    // Parts of a product that keeps the device busy by itself are only more to store.
    const bool busy = machine.in_rounds && warps >= kProcessors * machine.busy_warps;
    for (shape.splits = 1; shape.splits <= (busy && !tree ? 1 : most_splits); ++shape.splits) {
      if (shape.splits * shape.units * 4 > units && shape.splits > 1) break;  // parts of four steps at least
      if (!sums_fit(shape, units)) continue;
      const double seconds = estimate(machine, shape, tokens, rows, units);
      if (seconds < least) {
        least = seconds;
        best = shape;
      }
    }
  }
  return best;
}

}  // namespace

std::string GemmShape::name() const {
  return fmt::format("{}x{}x{} {}x{} /{}{}{}", tile_tokens, tile_rows, units * kUnitValues, tokens_each,
                     rows_each, splits, unrolled ? "" : " loop", tree ? " tree" : "");
}

bool sums_fit(const GemmShape& shape, std::uint32_t units) {
  if (!shape.tree) return true;
  constexpr std::uint32_t kMostSums = 144;  // of a thread's 255 registers
  const std::uint32_t all_steps = ceil_div(units, shape.units), steps = ceil_div(all_steps, shape.splits);
  if ((shape.splits - 1) * steps >= all_steps) return false;  // the last part would be empty
  if (shape.splits > 1 && !std::has_single_bit(steps)) return false;
  const auto levels = static_cast<std::uint32_t>(std::bit_width(steps - 1)) + shape.units;
  return shape.tokens_each * shape.rows_each * levels <= kMostSums;
}

std::span<const GemmShape> gemm_shapes() {
  return kGemmShapes;
}

std::uint32_t gemm_bytes(const GemmShape& shape, const WeightFormat& format) {
  const bool halves = format.scales == ScaleForm::kSuper16 || format.scales == ScaleForm::kSuper16Min;
  const bool minima = format.scales == ScaleForm::kHalfMin || format.scales == ScaleForm::kSuper32Min ||
                      format.scales == ScaleForm::kSuper16Min;
  const std::uint32_t pitch = shape.tile_tokens + 2 / shape.units;
  const std::uint32_t groups = shape.tile_rows * shape.units * (halves ? 4 : 2);
  const std::uint32_t blocks = shape.tile_tokens * shape.units * 2;
  // Nibbles with upper bits, or that stand for levels, lie there as bytes.
  const bool made = format.high_words() > 0 || format.codes == CodeForm::kFloatNibbles;
  const std::uint32_t pieces = made ? 4 : format.pieces();
  std::uint32_t bytes =
      shape.tile_rows * shape.units * pieces * 16 + groups * 4 + shape.units * 4 * pitch * 16 + blocks * 4;
  const bool raised = shape.tree && format.codes == CodeForm::kFloatNibbles;
  if (format.super_blocks() && !shape.tree) bytes += blocks * 4;  // tile_was
  if (minima) bytes += groups * 4;
  if (minima || raised) bytes += minima && halves ? shape.units * 4 * pitch * 4 : blocks * 4;
  return bytes;
}

bool gemm_fits(const Limits& limits, const GemmShape& shape, const WeightFormat& format) {
  return gemm_bytes(shape, format) <= limits.workgroup_bytes &&
         shape.threads() <= limits.workgroup_invocations;
}

ShaderValues gemm_values(const GemmShape& shape, const WeightFormat& format, std::uint32_t rows,
                         std::uint32_t units) {
  return {{"TM", shape.tile_tokens},
          {"TN", shape.tile_rows},
          {"RM", shape.tokens_each},
          {"RN", shape.rows_each},
          {"UK", shape.units},
          {"SPLITS", shape.splits},
          {"GROUPED", 0},
          {"UNROLLED", shape.unrolled ? 1 : 0},
          {"TREE", shape.tree ? 1 : 0},
          {"ROWS", rows},
          {"UNITS_K", units},
          {"FORM", static_cast<std::int64_t>(format.codes)},
          {"SCALES", static_cast<std::int64_t>(format.scales)}};
}

std::optional<GemmShape> choose_gemm_shape(const Limits& limits, const WeightFormat& format,
                                           std::uint32_t tokens, std::uint32_t rows, std::uint32_t units) {
  for (const Measured& m : kMeasured) {
    const bool applies = tokens >= m.least_tokens && tokens <= m.most_tokens &&
                         (m.rows == 0 || m.rows == rows) && (m.units == 0 || m.units == units);
    if (applies && gemm_fits(limits, m.shape, format)) return m.shape;
  }
  const auto fits = [&](const GemmShape& shape) { return gemm_fits(limits, shape, format); };
  return fastest(kGemmShapes, kEightBitMachine, fits, tokens, rows, units);
}

GemmShape for_few_tokens(const GemmShape& shape) {
  return {.tile_tokens = 16,
          .tile_rows = 64,
          .tokens_each = 4,
          .rows_each = 4,
          .units = shape.units,
          .splits = shape.splits,
          .unrolled = false};
}

std::span<const GemmShape> float_shapes(bool tree) {
  return tree ? std::span<const GemmShape>(kFewFloatShapes) : std::span<const GemmShape>(kFloatShapes);
}

// Vectors of four values along k in a step. A tile of few tokens, which a workgroup or two of a processor
// have, waits for memory in each step, so it takes a whole unit; one of many has too few registers for that.
// Each thread loads two vectors of the weights at least, which are one load of halves. BF16 in 13 bits comes
// in blocks of eight vectors.
std::uint32_t float_vecs(const GemmShape& shape, const WeightFormat& format) {
  const std::uint32_t least = format.codes == CodeForm::kBF16In13 ? 8 : 4;
  return shape.tile_tokens <= 16 ? 16 : std::max(least, 2 * shape.threads() / shape.tile_rows);
}

std::uint32_t float_gemm_bytes(const GemmShape& shape, const WeightFormat& format) {
  return (shape.tile_rows + shape.tile_tokens + 2) * float_vecs(shape, format) * 16;
}

std::optional<GemmShape> choose_float_shape(const Limits& limits, const WeightFormat& format,
                                            std::uint32_t tokens, std::uint32_t rows, std::uint32_t units,
                                            bool tree) {
  const auto fits = [&](const GemmShape& shape) {
    // Of few rows no tile is mostly empty.
    return (!tree || shape.tile_tokens <= few_rows_tile(tokens)) &&
           float_gemm_bytes(shape, format) <= limits.workgroup_bytes &&
           shape.threads() <= limits.workgroup_invocations;
  };
  return fastest(float_shapes(tree), kFloatMachine, fits, tokens, rows, units, tree);
}

ShaderValues float_gemm_values(const GemmShape& shape, const WeightFormat& format, std::uint32_t rows,
                               std::uint32_t units) {
  ShaderValues values = gemm_values(shape, format, rows, units);
  for (const char* other : {"UK", "GROUPED"}) values.erase(other);
  values["KV"] = float_vecs(shape, format);
  return values;
}

std::optional<GemmShape> choose_expert_shape(const Limits& limits, const WeightFormat& format,
                                             std::uint32_t tokens, std::uint32_t experts, std::uint32_t units,
                                             bool tree) {
  // By the rows that an expert has on average: a tile that is mostly empty costs as much as a full one.
  constexpr GemmShape kShapes[] = {{64, 128, 16, 4, 1, 1},
                                   {64, 64, 8, 4, 1, 1},
                                   {32, 128, 8, 4, 1, 1},
                                   {32, 64, 8, 4, 2, 1},
                                   {16, 64, 4, 4, 2, 1}};
  const std::uint32_t each = tokens / experts;
  for (GemmShape shape : kShapes) {
    shape.tree = tree;
    if (shape.tile_tokens > 16 && each < shape.tile_tokens * 3 / 4) continue;
    if (gemm_fits(limits, shape, format) && sums_fit(shape, units)) return shape;
  }
  return std::nullopt;
}

}  // namespace doppler::gpu
