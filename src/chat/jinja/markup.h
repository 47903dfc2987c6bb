// Markup: the strings that `safe` and `escape` make. They stay markup through string operations, and plain
// strings that join them are HTML-escaped, even where autoescaping is off.
#pragma once

#include <string>
#include <string_view>

#include "base/html.h"
#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

inline bool is_markup(const Value& value) {
  return value.is_string() && value.as<StringObject>().markup;
}

// The string, or the strings of the list or tuple, as markup.
Value as_markup(Runtime& rt, const Value& value);

// str(value), escaped unless it is markup already.
Result<std::string> escaped_text(Runtime& rt, const Value& value);

}  // namespace doppler::chat::jinja
