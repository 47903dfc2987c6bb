// The seed of a run: random unless somebody gives one.
#pragma once

#include "cli/settings.h"

namespace doppler::cli {

// For the commands that answer people; those whose results are compared leave the seed at its default.
void choose_seed(const Settings& settings, GenerateOptions& options);

}  // namespace doppler::cli
