// How the threads of a matrix-vector kernel share a matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/weights.h"

namespace doppler::gpu {

struct GemvShape {
  std::uint32_t rows = 0;     // of a workgroup: a power of two, at most 64
  std::uint32_t lanes = 0;    // threads of a row
  std::uint32_t units = 0;    // of 64 values, a thread: a power of two, as at_once is, so that sums are
                              // those of any other shape (docs/kernels.md: one order of sums)
  std::uint32_t at_once = 0;  // of its units, those that a thread loads together; 0: all
  std::uint32_t stream = 0;   // pieces that a thread multiplies at a time, with as many under way behind
                              // them, in place of units (streams()); 0: units
  std::uint32_t loaded() const { return at_once == 0 ? units : at_once; }
  std::uint32_t threads() const { return rows * lanes; }
  bool operator==(const GemvShape&) const = default;
};

// Whether weights of that format can be taken so: floats of 16 bits, a unit of which takes so many registers
// that a processor has room for few workgroups.
bool streams(const WeightFormat& format, const GemvShape& shape);

// A shape for `rows` x `units` that fits the device, `sets` rows at a time in a thread.
GemvShape choose_gemv_shape(const Limits& limits, const WeightFormat& format, std::uint32_t rows,
                            std::uint32_t units, std::uint32_t sets = 1);

// The same for kernels with a prologue, whose workgroups are whole subgroups and few, since each repeats it:
// the `most` shapes that look best, in order; none where nothing fits. `gated`: a thread has a row of gate
// and one of up, and a workgroup a divisor of `rows`. `quantises`: a workgroup has whole blocks of 32
// results. `in_rounds`: the kernel can load some of its units at a time.
std::vector<GemvShape> best_fused_shapes(const Device& device, const WeightFormat& format, std::uint32_t rows,
                                         std::uint32_t units, bool gated, bool quantises, bool in_rounds,
                                         std::size_t most);

// The same for expert_out.wgsl, whose workgroups have their rows of all of a token's `places` experts:
// `lanes` threads of a row at each place.
std::vector<GemvShape> best_shapes_of_places(const Device& device, const WeightFormat& format,
                                             std::uint32_t rows, std::uint32_t units, std::uint32_t places,
                                             std::size_t most);

}  // namespace doppler::gpu
