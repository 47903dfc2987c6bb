// Whether a backend that generates by itself gives a sequence the same tokens whatever the company: one after
// the other, as guesses that are checked at once, and beside other sequences.
#pragma once

#include <vector>

#include "backend/device_view.h"
#include "engine/loaded.h"

namespace doppler::bench {

// A row for guesses and one for sequences together, as far as the backend has these; for the latter `loaded`
// gets a backend with a slot for each, in place of its own. Errors: those of running, and of loading that
// backend.
Result<std::vector<KernelCheck>> check_same_tokens(Loaded& loaded);

}  // namespace doppler::bench
