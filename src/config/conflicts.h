// What a configuration may not say at once.
#pragma once

#include "base/result.h"
#include "config/config.h"

namespace doppler::config {

// A value that another one makes useless, if it was not overruled on purpose: what is decided later wins, but
// what is decided later and can have no effect is a mistake. Errors: kUsage, naming both values, their
// sources, and what to change.
Status check_conflicts(const Config& config);

// Layers that a model with this many does not have, in any setting that names some. Errors: kUsage, naming
// the setting, its source, and the layers there are.
Status check_config_layers(const Config& config, std::size_t layers);

}  // namespace doppler::config
