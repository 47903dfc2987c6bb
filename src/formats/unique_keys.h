// JSON objects in which a key that comes twice is an error.
#pragma once

#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace doppler {

// A file's text as a JSON object. Errors: those of parse_json(); kCorrupt for any other value, and for an
// object, at any depth, that has a key twice: of two tensors of one name a parser would keep the last.
Result<Json> parse_unique_object(std::string_view text, std::string_view file);

}  // namespace doppler
