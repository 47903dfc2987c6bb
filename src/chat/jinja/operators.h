// Python's operators on values, with Python's errors.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "chat/jinja/ast.h"
#include "chat/jinja/runtime.h"

namespace doppler::chat::jinja {

std::string_view type_name(const Value& value);  // as type(value).__name__
bool truth(const Value& value);
bool hashable(const Value& value);

// An undefined value that is used: its own reason as an error; success for any other value.
Status require_defined(const Value& value);

Result<bool> equal(Runtime& rt, const Value& a, const Value& b);
// Negative, zero or positive, as a < b decides. Errors: types without order; `op` names it in the message.
Result<int> compare(Runtime& rt, const Value& a, const Value& b, std::string_view op);
Result<bool> contains(Runtime& rt, const Value& container, const Value& item);
Result<bool> compare_with(Runtime& rt, Operator op, const Value& a, const Value& b);
Result<Value> arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b);
Result<Value> negate(Runtime& rt, const Value& value, bool plus);

// The items a loop sees: of lists, dicts (their keys), strings (characters), ranges, generators (once).
using Items = std::shared_ptr<const Values>;
Result<Items> iterate(Runtime& rt, const Value& value);
std::optional<std::size_t> length_of(const Value& value);

// value.name and value[key] as Jinja resolves them: missing is undefined, not an error.
Result<Value> get_attribute(Runtime& rt, const Value& value, std::string_view name);
Result<Value> get_item(Runtime& rt, const Value& value, const Value& key);
// value[start:stop:step]; undefined or none bounds are left out.
Result<Value> slice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
                    const Value& step);

const Value* find_key(Runtime& rt, const DictObject& dict, const Value& key);
// A dict from entries of which later ones replace earlier ones. Errors: keys that cannot be hashed.
Result<Value> make_dict(Runtime& rt, std::vector<DictObject::Entry> entries);

// An index or count from a value; numbers beyond 64 bits are cut to them. Errors: not an integer.
Result<std::int64_t> to_index(const Value& value);

}  // namespace doppler::chat::jinja
