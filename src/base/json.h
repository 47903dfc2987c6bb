// JSON from hostile bytes: bounded size and depth, no exceptions, errors that name the place.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace doppler {

// Deeper nesting than any model file has; recursion over a parsed value stays harmless below it.
inline constexpr int kMaxJsonDepth = 64;

// Parses UTF-8 JSON. `what` names the source in messages ("The file config.json"). Of a key that comes twice
// the last value counts, as in Python. NaN and Infinity, which Python writes but JSON does not have, are
// errors. Errors: kCorrupt with line and column; nesting beyond kMaxJsonDepth.
Result<Json> parse_json(std::string_view text, std::string_view what);

// A value as text; bytes that are no UTF-8 become U+FFFD. `indent` spaces a level, or all in one line.
std::string dump_json(const Json& value, int indent = -1);

// The depth check alone, for callers that use nlohmann's SAX interface on large files. They must also refuse
// NUL bytes, which that parser takes for the end of its input.
Status check_json_depth(std::string_view text, std::string_view what);

// "line 3, column 14" of a byte offset.
std::string describe_position(std::string_view text, std::size_t offset);

}  // namespace doppler
