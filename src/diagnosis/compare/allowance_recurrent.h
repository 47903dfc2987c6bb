// The part of allowance.h for the ops of recurrent layers.
#pragma once

#include <vector>

#include "diagnosis/compare/op_experiment.h"

namespace doppler::diagnosis {

// The largest error of each value of the op's output in float32. An error of a state is carried on, and
// decays with it. Errors: those of decode_f32.
Result<std::vector<double>> recurrent_bounds(const OpSetup& setup, reference::Threads& threads);

}  // namespace doppler::diagnosis
