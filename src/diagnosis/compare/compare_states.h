// What recurrent layers keep, compared with a recording: `layers.{i}.state` and `layers.{i}.conv_state`, as
// the prompt leaves them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "diagnosis/compare/compare.h"

namespace doppler::diagnosis {

// Whether a recording's tensor is such a state and not a stage with a row per token.
bool is_recorded_state(std::string_view name);

// The state of one layer in a slot that holds a sequence: of `part` kConvState or kState. Errors: kNotFound
// where the layer keeps none; those of CacheAccess::read.
Result<std::vector<float>> read_state(Backend& backend, std::uint32_t slot, std::size_t layer,
                                      CachePart part);

// Adds each recorded state behind the last stage of its layer. `tokens` of slot 0 have run. Errors:
// kMismatch for a state of another size.
Status compare_states(Backend& backend, const Recording& recording, double tolerance,
                      std::vector<StageComparison>& stages);

}  // namespace doppler::diagnosis
