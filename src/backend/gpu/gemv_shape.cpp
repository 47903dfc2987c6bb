#include "backend/gpu/gemv_shape.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {

bool streams(const WeightFormat& format, const GemvShape& shape) {
  const bool halves = format.codes == CodeForm::kF16 || format.codes == CodeForm::kBF16;
  return halves && shape.stream != 0 && format.pieces() % shape.stream == 0 &&
         format.pieces() >= 2 * shape.stream;
}

GemvShape choose_gemv_shape(const Limits& limits, const WeightFormat& format, std::uint32_t rows,
                            std::uint32_t units, std::uint32_t sets) {
  // Loads of 16 bytes that a thread has in flight: enough to hide the memory's latency, few enough to stay in
  // registers (measured on an H200: 4 to 8).
  constexpr std::uint32_t kLoads = 8;
  const std::uint32_t most_threads = std::min<std::uint32_t>(limits.workgroup_invocations, 512);
  std::uint32_t per_thread = std::bit_floor(std::max<std::uint32_t>(1, kLoads / (format.pieces() * sets)));
  // Whole shares, so that no thread works beyond the row.
  while (per_thread > 1 && units % per_thread != 0) per_thread /= 2;
  while ((units + per_thread - 1) / per_thread > most_threads) per_thread *= 2;
  GemvShape shape{.rows = 1, .lanes = (units + per_thread - 1) / per_thread, .units = per_thread};
  // Few rows leave processors idle: a grid should have some hundreds of workgroups.
  constexpr std::uint32_t kWorkgroups = 96;
  while (shape.rows < 64 && shape.rows * 2 * shape.lanes <= std::min<std::uint32_t>(most_threads, 320) &&
         rows / (shape.rows * 2) >= kWorkgroups)
    shape.rows *= 2;
  // A subgroup reads at least 128 contiguous bytes where the matrix allows.
  while (shape.rows < 8 && shape.rows * 2 * shape.lanes <= most_threads) shape.rows *= 2;
  // A tall matrix takes taller workgroups, with more work for each thread, rather than more than there may
  // be.
  while (shape.rows < 64 && rows > std::uint64_t{shape.rows} * limits.workgroups_per_dimension) {
    if (shape.rows * 2 * shape.lanes <= most_threads) {
      shape.rows *= 2;
    } else {
      shape.units *= 2;
      shape.lanes = (units + shape.units - 1) / shape.units;
    }
  }
  return shape;
}

namespace {

// How far a value lies from the best, in octaves.
double octaves(double value, double best) {
  return std::abs(std::log2(value / best));
}

// What each further round of loads costs a shape, and one that puts places together, whose rounds are short.
constexpr double kRound = 0.08, kRoundOfPlaces = 0.15;

// How many of its units, a power of two, a thread may load at once so that rounds are whole.
std::vector<std::uint32_t> parts_of(std::uint32_t units) {
  std::vector<std::uint32_t> parts;
  for (std::uint32_t part = 1; part <= units; part *= 2) parts.push_back(part);
  return parts;
}

// The `most` cheapest; of equals the first.
std::vector<GemvShape> best_of(std::vector<std::pair<double, GemvShape>>& shapes, std::size_t most) {
  std::ranges::stable_sort(shapes, {}, &std::pair<double, GemvShape>::first);
  std::vector<GemvShape> best;
  for (std::size_t i = 0; i < std::min(most, shapes.size()); ++i) best.push_back(shapes[i].second);
  return best;
}

}  // namespace

std::vector<GemvShape> best_fused_shapes(const Device& device, const WeightFormat& format, std::uint32_t rows,
                                         std::uint32_t units, bool gated, bool quantises, bool in_rounds,
                                         std::size_t most) {
  // Those that quantise take 32 rows and more, and need as many threads to have few loads each.
  const std::uint32_t most_threads =
      std::min<std::uint32_t>(device.limits().workgroup_invocations, quantises ? 1024 : 512);
  const std::uint32_t subgroup = device.features().subgroup_size;
  // Threads of a workgroup: fewer where there are three to a processor (head_groups_of(),
  // decode_products.cpp).
  const double best_threads = format.codes == CodeForm::kBF16In13 ? 256 : 448;
  std::vector<std::pair<double, GemvShape>> shapes;
  for (std::uint32_t per_row = quantises ? 32 : 1; per_row <= 64; per_row *= 2) {
    if (gated && rows % per_row != 0) continue;
    for (std::uint32_t share = 1; share <= units; share *= 2) {
      // Whole subgroups, if need be with lanes that have nothing to do.
      const std::uint32_t needed = (units + share - 1) / share, grain = std::max(1u, subgroup / per_row);
      const std::uint32_t padded = (needed + grain - 1) / grain * grain;
      const bool pads = padded * share * 8 <= units * 9;
      for (const std::uint32_t at_once : in_rounds ? parts_of(share) : std::vector{share}) {
        const GemvShape shape{
            .rows = per_row, .lanes = pads ? padded : needed, .units = share, .at_once = at_once};
        // Eight threads quantise a block of 32 together.
        if (shape.threads() > most_threads || shape.threads() % 8 != 0) continue;
        const double loads = at_once * format.pieces() * (gated ? 2.0 : 1.0);
        // Fitted to 64 shapes each of 20 products of four models on an H200: among the six that look best is
        // one within half a percent of the fastest.
        double cost = std::max(0.0, octaves(shape.threads(), best_threads) - 0.4) + 0.25 * octaves(loads, 3) +
                      0.5 * std::max(0.0, 48.0 * per_row / rows - 1) +
                      0.1 * octaves(rows / double(per_row), 320);
        if (shape.threads() % subgroup != 0) cost += 3;
        if (shape.lanes * shape.units != units) cost += 0.2;
        if (gated && per_row % 32 != 0) cost += 2;  // whole blocks are quantised in place
        if (per_row < 4) cost += 1;                 // less than 64 bytes side by side
        if (loads > 16) cost += 4;
        cost += kRound * (share / at_once - 1);
        shapes.emplace_back(cost, shape);
      }
    }
  }
  return best_of(shapes, most);
}

std::vector<GemvShape> best_shapes_of_places(const Device& device, const WeightFormat& format,
                                             std::uint32_t rows, std::uint32_t units, std::uint32_t places,
                                             std::size_t most) {
  const std::uint32_t most_threads = std::min<std::uint32_t>(device.limits().workgroup_invocations, 512);
  const std::uint32_t subgroup = device.features().subgroup_size;
  std::vector<std::pair<double, GemvShape>> shapes;
  for (std::uint32_t per_row = 1; per_row <= 32; per_row *= 2) {
    for (std::uint32_t share = 1; share <= units; share *= 2) {
      for (const std::uint32_t at_once : parts_of(share)) {
        const GemvShape shape{
            .rows = per_row, .lanes = ceil_div(units, share), .units = share, .at_once = at_once};
        const std::uint32_t threads = shape.threads() * places;
        if (threads > most_threads) continue;
        // As above: workgroups of 256 to 512 threads, some loads in flight in each, and some hundreds of
        // workgroups, each of which reads at least 64 bytes side by side.
        double cost = std::max(0.0, octaves(threads, 320) - 0.4) +
                      0.6 * octaves(at_once * format.pieces(), 4) +
                      0.5 * std::max(0.0, 132.0 * per_row / rows - 1);
        if (threads % subgroup != 0) cost += 1;
        if (shape.lanes * share != units) cost += 0.2;
        if (per_row < 4) cost += 1;
        cost += kRoundOfPlaces * (share / at_once - 1);
        shapes.emplace_back(cost, shape);
      }
    }
  }
  return best_of(shapes, most);
}

}  // namespace doppler::gpu
