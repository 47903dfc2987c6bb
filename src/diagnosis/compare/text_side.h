// A loaded model's own side of texts.
#pragma once

#include "diagnosis/compare/text_truth.h"
#include "engine/loaded.h"

namespace doppler::diagnosis {

// `loaded` outlives it.
TextSide text_side_of(const Loaded& loaded);

}  // namespace doppler::diagnosis
