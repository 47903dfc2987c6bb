// JSON of a model's configuration files, as Python writes it.
#pragma once

#include <string_view>

#include "base/json.h"

namespace doppler {

// parse_json() for files that Python programs saved. Python's json module writes Infinity, -Infinity and NaN,
// which JSON lacks, and published configs have them (Mamba 2's time_step_limit). Each becomes the object
// {"__float__": "Infinity"}, as newer configs spell it: whoever expects a number there refuses it, and only
// who knows of such values reads them. Requests and settings are written by others, and get parse_json().
// Errors: those of parse_json(), with the places in `text`.
Result<Json> parse_config_json(std::string_view text, std::string_view what);

}  // namespace doppler
