// String operations that filters and string methods share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

// str.replace; a negative count replaces all. An empty `from` stands between all characters.
Result<Value> replace_text(Runtime& rt, std::string_view text, std::string_view from, std::string_view to,
                           std::int64_t count);

// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

enum class Alignment { kLeft, kRight, kCenter };
// Fills up to `width` characters with the one character `fill`. Errors: kLimit.
Result<Value> pad_text(Runtime& rt, std::string_view text, std::int64_t width, std::string_view fill,
                       Alignment alignment);

// Jinja's and Python's int(text, base), spaces and underscores included.
std::optional<Integer> parse_integer(std::string_view text, int base);
// float(text), "inf" and "nan" included.
std::optional<double> parse_real(std::string_view text);

}  // namespace doppler::chat::jinja
