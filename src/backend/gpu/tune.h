// Finds the fastest shape of each matrix-vector kernel by measuring candidates on the model's own weights.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/decode_program.h"

namespace doppler::gpu {

// The mean seconds of each of `dispatches`, run one after the other and all `rounds` times, in one
// submission.
Result<double> time_dispatches(Device& device, std::span<const FixedDispatch> dispatches,
                               std::uint32_t rounds);

// One measured candidate.
struct TuneRow {
  std::string key;
  GemvShape shape;
  std::uint32_t head_groups = 0;
  double seconds = 0;
  std::uint64_t bytes = 0;
  bool chosen = false;
};

// Measures every kind of site over all layers, so that weights come from memory and not from a cache, keeps
// the best in the program and in Context::tuned, and returns what was measured. Stops after `budget` seconds
// with what it has.
Result<std::vector<TuneRow>> tune(Context& context, DecodeProgram& program, double budget);

}  // namespace doppler::gpu
