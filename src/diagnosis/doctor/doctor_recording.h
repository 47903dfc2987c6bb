// What a recording says of the model that it is of.
#pragma once

#include <string>

#include "diagnosis/compare/recording.h"
#include "model/weights.h"

namespace doppler::diagnosis::doctor {

// " Its header says that it is of NAME with the weights ...", as a sentence to add; empty: it says nothing,
// or the same as these weights.
std::string whose_recording(const Recording& recording, const Weights& weights);

}  // namespace doppler::diagnosis::doctor
