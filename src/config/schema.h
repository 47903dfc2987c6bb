// A JSON Schema (2020-12) of configurations, made from the table of settings, for editors and other programs.
#pragma once

#include "base/json_fwd.h"

namespace doppler::config {

// Older names are part of it, marked as deprecated.
Json config_schema();

}  // namespace doppler::config
