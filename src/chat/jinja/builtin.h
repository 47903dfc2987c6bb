// Filters, tests, methods and globals are rows of tables: a name, its parameters and a function.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/jinja/value.h"

namespace doppler::chat::jinja {

class Runtime;

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One call of a builtin: what it is called on, and its arguments in the order of its parameters.
struct Call {
  Runtime& rt;
  const Value& self;
  const Arguments& given;
  std::array<const Value*, 8> bound{};  // null where left out

  const Value* operator[](std::size_t i) const { return bound[i]; }
};

struct Builtin {
  std::string_view name;
  // "old new count?": names separated by spaces, optional ones marked; "*" takes anything (read `given`).
  std::string_view parameters;
  Result<Value> (*function)(Call&);
  bool keeps_markup = false;  // called on markup it returns markup, as every string method does
};

// Binds the arguments to the parameters and calls. Errors as Python's: missing, unknown, too many arguments.
Result<Value> invoke(Runtime& rt, const Builtin& builtin, const Value& self, const Arguments& arguments);

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);

// The tables.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
const Builtin* find_method(const Value& object, std::string_view name);
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> selection_filters();
std::span<const Builtin> text_methods();
std::span<const Builtin> text_query_methods();

}  // namespace doppler::chat::jinja
