// A comparison as JSON, complete: for programs, and for the HTML report.
#pragma once

#include <string_view>

#include "base/json_fwd.h"
#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {

// JSON has no infinity: an error without bound (NaN, or a stage that the model lacks) is null there.
Json comparison_json(const Comparison& comparison, std::string_view backend);

// "execution", "description", "total", "not_computed"; "none" where nothing is wrong.
std::string_view name_of(Disagreement why);

}  // namespace doppler::diagnosis
