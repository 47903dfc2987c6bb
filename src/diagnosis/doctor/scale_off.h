// A scale that is wrong by less than quantising explains for a single value, seen in all values together.
#pragma once

#include <optional>

#include "diagnosis/doctor/op_case.h"

namespace doppler::diagnosis {

// For a product whose recording was made with finer weights: the factor by which its outputs are larger than
// the recorded ones, if neither chance nor quantising explains it.
std::optional<double> scale_off(const OpCase& opcase);

}  // namespace doppler::diagnosis
