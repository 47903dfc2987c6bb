// Finds the fastest shape of each matrix-vector kernel by measuring candidates on the model's own weights.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/decode_program.h"

namespace doppler::gpu {

// One measured candidate.
struct TuneRow {
  std::string key;
  GemvShape shape;
  GemvShape second;  // of two products in one dispatch: the second's
  std::uint32_t head_groups = 0;
  double seconds = 0;  // a dispatch; of joints: of all layers, and the head
  std::uint64_t bytes = 0;
  bool chosen = false;
  bool wrong = false;  // the fastest, but its results differ: refused
};

// Works until the device's clock is up: a GPU at rest clocks low, and what is measured then depends on when.
// Not where it has hardly rested since it was measured last.
Status wake(Context& context, std::span<const FixedDispatch> work);

// Compiles kernels that are to be measured, while the device wakes.
Status prepare_awake(Context& context, std::span<const KernelSource> sources,
                     std::span<const FixedDispatch> work);

// What tune() would compile, and what wakes the device meanwhile: for DecodeProgram::create().
KernelCache::Others tune_ahead(Context& context, const DecodeProgram& program, std::size_t most_candidates);

// time_in_turns() of a device that is awake, and stays so.
Result<std::vector<double>> time_awake(Context& context, std::span<const std::vector<FixedDispatch>> lists,
                                       double seconds);

// Measures every kind of site over all layers, so that weights come from memory and not from a cache, keeps
// the best that gives the right results in the program and in Context::tuned, and returns what was measured.
// Measures for about `budget` seconds, compiling not counted; sites that are not reached keep their shapes.
// The cache of slot 0 is overwritten.
Result<std::vector<TuneRow>> tune(Context& context, DecodeProgram& program, double budget,
                                  std::size_t most_candidates = 6);

// Tuned shapes of earlier loads: a small JSON file for each adapter and driver in the user's cache folder. A
// file that cannot be read or written is no error; it is measured again.
void load_tuned(Context& context);
void store_tuned(const Context& context);

}  // namespace doppler::gpu
