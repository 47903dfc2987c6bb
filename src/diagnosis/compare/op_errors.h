// Where a difference comes from: every op of a comparison judged by itself, on the oracle.
#pragma once

#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/op_experiment.h"

namespace doppler::diagnosis {

// One side of a comparison.
struct RunRows {
  const StageRows& rows;
  Arithmetic arithmetic;
};

// Compares `found` with the oracle's values, by the allowance of each value; errors are shares of `largest`.
OpError judge_values(std::span<const float> oracle, std::span<const float> found,
                     std::span<const float> allowed, std::size_t width, double largest);

// Whether the rows of a prompt of `tokens` tokens are kept for judging ops one by one: up to 500 tokens of a
// model of a billion parameters, which fit into the memory of a machine that holds the model.
bool can_keep(const Plan& plan, std::size_t tokens);

// Fills execution, description, inherited, untold and explained of every stage; an op that reads what nobody
// recorded (values that are no stages, above all) is judged with the ops of its layer that compute it. `plan`
// is an unfused one. Errors: those of decoding weights.
Status judge_ops(std::vector<StageComparison>& stages, const Plan& plan, const Weights& weights,
                 const RunRows& found, const RunRows& expected, std::size_t threads);

}  // namespace doppler::diagnosis
