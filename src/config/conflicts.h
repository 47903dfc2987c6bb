// Settings that contradict each other or the model.
#pragma once

#include "base/result.h"
#include "config/config.h"

namespace doppler::config {

// Refuses a value that another one makes useless: a later value overrides an earlier one, but a later value
// that can have no effect is a mistake. Errors: kUsage, naming both values, their sources, and what to
// change.
Status check_conflicts(const Config& config);

// Refuses layers that a model with `layers` layers does not have, in any setting that names layers. Errors:
// kUsage, naming the setting, its source, and the layers that exist.
Status check_config_layers(const Config& config, std::size_t layers);

}  // namespace doppler::config
