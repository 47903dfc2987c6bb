// Where a difference comes from: every op of a comparison judged by itself, on the oracle.
#pragma once

#include "inspect/allowance.h"
#include "inspect/compare.h"
#include "inspect/op_experiment.h"

namespace doppler {

// One side of a comparison.
struct RunRows {
  const StageRows& rows;
  Arithmetic arithmetic;
};

// `found` beside what the oracle computed, with the allowance of each value; errors are shares of `largest`.
OpError judge_values(std::span<const float> oracle, std::span<const float> found,
                     std::span<const float> allowed, std::size_t width, double largest);

// Fills execution, description, inherited and untold of every stage. `plan` is an unfused one. Errors: those
// of decoding weights.
Status judge_ops(std::vector<StageComparison>& stages, const Plan& plan, const Weights& weights,
                 const RunRows& found, const RunRows& expected, std::size_t threads);

}  // namespace doppler
