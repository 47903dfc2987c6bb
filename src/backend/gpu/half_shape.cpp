#include "backend/gpu/half_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace doppler::gpu {
namespace {

// Seconds of a tile along one value of k where a processor has others to do beside it, and where it is alone
// and memory's latency shows: an H200, from prototypes of these cuts and from products of Gemma 3 1B and
// Llama 3.2 1B. A thread decodes one block, so that 32 * tile_rows * blocks = 32 * threads.
constexpr HalfShape kHalfShapes[] = {
    {128, 128, 1, 2, 2, 1, 16.7e-9, 24e-9},
    {128, 128, 2, 2, 4, 1, 18e-9, 20e-9},
    {64, 128, 1, 2, 2, 1, 10e-9, 15e-9},
    {64, 64, 2, 2, 2, 1, 7e-9, 10e-9},
};
constexpr bool each_thread_has_a_block() {
  return std::ranges::all_of(kHalfShapes,
                             [](const HalfShape& s) { return s.tile_rows * s.blocks == s.threads(); });
}
static_assert(each_thread_has_a_block());

constexpr std::uint32_t kMostHalfSplits = 4;
constexpr double kHalfProcessors = 132;
// What the dispatch that adds split sums costs, and memory's speed for them.
constexpr double kSumSeconds = 4e-6, kSumBytesPerSecond = 3e12;

std::uint32_t half_quotient_up(std::uint32_t a, std::uint32_t b) {
  return (a + b - 1) / b;
}

double half_estimate(const HalfShape& shape, std::uint32_t tokens, std::uint32_t rows, std::uint32_t units) {
  const double tiles = 1.0 * half_quotient_up(tokens, shape.tile_tokens) *
                       half_quotient_up(rows, shape.tile_rows) * shape.splits;
  const double waves = static_cast<std::uint32_t>((tiles + kHalfProcessors - 1) / kHalfProcessors);
  const double k = half_quotient_up(units, shape.splits) * kUnitValues;
  double seconds = k * std::max(shape.seconds_alone, waves * shape.seconds_full);
  if (shape.splits > 1) seconds += kSumSeconds + shape.splits * 8.0 * tokens * rows / kSumBytesPerSecond;
  return seconds;
}

}  // namespace

std::uint32_t HalfShape::workgroup_bytes() const {
  const std::uint32_t pitch = blocks * 64 + 16;
  return (tile_tokens + tile_rows) * pitch + groups_tokens * groups_rows * 256 * 4;
}

std::string HalfShape::name() const {
  return fmt::format("{}x{}x{} {}x{} /{}", tile_tokens, tile_rows, blocks * 32, groups_tokens, groups_rows,
                     splits);
}

std::span<const HalfShape> half_shapes() {
  return kHalfShapes;
}

bool multiplies_halves(const Device& device) {
  return device.features().tiles != Tiles::kNone &&
         std::ranges::any_of(kHalfShapes, [&](const HalfShape& s) { return half_fits(device.limits(), s); });
}

bool multiplies_halves(const WeightFormat& format) {
  return format.codes != CodeForm::kF32;
}

bool half_fits(const Limits& limits, const HalfShape& shape) {
  return shape.workgroup_bytes() <= limits.workgroup_bytes && shape.threads() <= limits.workgroup_invocations;
}

std::optional<HalfShape> choose_half_shape(const Limits& limits, std::uint32_t tokens, std::uint32_t rows,
                                           std::uint32_t units) {
  std::optional<HalfShape> best;
  double least = std::numeric_limits<double>::infinity();
  for (HalfShape shape : kHalfShapes) {
    if (!half_fits(limits, shape)) continue;
    for (shape.splits = 1; shape.splits <= kMostHalfSplits; ++shape.splits) {
      if (shape.splits > 1 && shape.splits * 8 > units) break;  // parts of 512 values at least
      const double seconds = half_estimate(shape, tokens, rows, units);
      if (seconds >= least) continue;
      least = seconds;
      best = shape;
    }
  }
  return best;
}

ShaderValues half_values(const Device& device, const HalfShape& shape, const WeightFormat& format,
                         std::uint32_t rows, std::uint32_t units, std::uint32_t room) {
  return {{"COOP", device.features().tiles == Tiles::kDevice ? 1 : 0},
          {"TM", shape.tile_tokens},
          {"TN", shape.tile_rows},
          {"KB", shape.blocks},
          {"GM", shape.groups_tokens},
          {"GN", shape.groups_rows},
          {"SPLITS", shape.splits},
          {"HALF_TOKENS", room},
          {"ROWS", rows},
          {"UNITS_K", units},
          {"FORM", static_cast<std::int64_t>(format.codes)},
          {"SCALES", static_cast<std::int64_t>(format.scales)}};
}

}  // namespace doppler::gpu
