// Values as text: str(), repr() and JSON, as Python writes them.
#pragma once

#include <string>

#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

std::string integer_text(Integer value);
std::string float_text(double value);            // repr: the shortest digits that read back the same
std::string quoted_text(std::string_view text);  // repr of a string

// str(value). Errors: beyond the text bound.
Result<std::string> to_text(Runtime& rt, const Value& value);
Status append_text(Runtime& rt, std::string& out, const Value& value);
Result<std::string> to_repr(Runtime& rt, const Value& value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps. Errors: values JSON has no form for.
Result<std::string> to_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace doppler::chat::jinja
