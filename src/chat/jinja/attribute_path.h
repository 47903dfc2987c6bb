// The attribute arguments of filters: "a.b.0", an index, or several paths with commas.
#pragma once

#include <string>

#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

// The value at the path; `otherwise` (if not null) where a step is undefined. A null path is the value
// itself.
Result<Value> attribute_at(Runtime& rt, const Value& value, const Value* path, const Value* otherwise);

// The value by which to sort: the one at the path (a list of values for several paths), text in lower case
// unless `case_sensitive`.
Result<Value> sort_key(Runtime& rt, const Value& value, const Value* path, bool case_sensitive,
                       const Value* otherwise = nullptr);

// Sorts stably by the keys. Errors: keys without order.
Result<Values> sorted(Runtime& rt, const Values& items, const Values& keys, bool descending);

}  // namespace doppler::chat::jinja
