#include "backend/gpu/gemv_shape.h"

#include <algorithm>

namespace doppler::gpu {

GemvShape choose_gemv_shape(const Limits& limits, const WeightFormat& format, std::uint32_t rows,
                            std::uint32_t units, std::uint32_t sets) {
  // Loads of 16 bytes that a thread has in flight: enough to hide the memory's latency, few enough to stay in
  // registers (measured on an H200: 4 to 8).
  constexpr std::uint32_t kLoads = 8;
  const std::uint32_t most_threads = std::min<std::uint32_t>(limits.workgroup_invocations, 512);
  std::uint32_t per_thread = std::max<std::uint32_t>(1, kLoads / (format.pieces() * sets));
  // Whole shares, so that no thread works on what is not there.
  while (per_thread > 1 && units % per_thread != 0) --per_thread;
  while ((units + per_thread - 1) / per_thread > most_threads) ++per_thread;
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
      ++shape.units;
      shape.lanes = (units + shape.units - 1) / shape.units;
    }
  }
  return shape;
}

}  // namespace doppler::gpu
