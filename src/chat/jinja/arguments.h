// Reading the bound arguments of a builtin, with Python's defaults and errors.
#pragma once

#include <string>

#include "chat/jinja/operators.h"
#include "chat/jinja/text_form.h"

namespace doppler::chat::jinja {

// The argument, or `otherwise` when it is left out.
inline Value argument_or(const Call& call, std::size_t i, Value otherwise) {
  return call[i] != nullptr ? *call[i] : std::move(otherwise);
}

inline bool flag_argument(const Call& call, std::size_t i, bool otherwise) {
  return call[i] != nullptr ? truth(*call[i]) : otherwise;
}

inline Result<std::int64_t> index_argument(const Call& call, std::size_t i, std::int64_t otherwise) {
  if (call[i] == nullptr || call[i]->is_none()) return otherwise;
  return to_index(*call[i]);
}

// str() of the argument.
inline Result<std::string> text_argument(const Call& call, std::size_t i, std::string_view otherwise) {
  if (call[i] == nullptr) return std::string(otherwise);
  return to_text(call.rt, *call[i]);
}

}  // namespace doppler::chat::jinja
