// Recordings as people have them: with fewer stages than a model computes. For trying out what is said of
// them.
#pragma once

#include <span>
#include <string_view>

#include "diagnosis/compare/recording.h"

namespace doppler::diagnosis {

struct Thinning {
  std::string_view name;     // "hidden_states"
  std::string_view meaning;  // one line
  // Whether the stage is kept; `layers`: how many the recording has.
  bool (*keeps)(Stage stage, int layer, int layers);
  bool decode = false;       // keeps the decode steps
  bool normed_last = false;  // the last layer_out holds what final_norm does
};

std::span<const Thinning> all_thinnings();
// Null if there is none of that name.
const Thinning* find_thinning(std::string_view name);

// The recording without what the thinning leaves out. Its tensors stay in the first one's memory. Errors:
// those of read_recording().
Result<Recording> thin(const Recording& recording, const Thinning& thinning);

}  // namespace doppler::diagnosis
