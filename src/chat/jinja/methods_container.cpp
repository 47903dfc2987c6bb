// Methods of dicts, lists, numbers and Jinja's own objects, and where methods are looked up.
#include <cmath>

#include "chat/jinja/arguments.h"
#include "chat/jinja/loop.h"

namespace doppler::chat::jinja {
namespace {

Result<Value> dict_items(Call& call) {
  Values pairs;
  for (const auto& [key, value] : call.self.as<DictObject>().entries)
    pairs.push_back(call.rt.tuple({key, value}));
  DOPPLER_TRY(call.rt.spend(pairs.size()));
  return call.rt.view("dict_items", std::move(pairs));
}

Result<Value> dict_keys(Call& call) {
  Values keys;
  for (const auto& [key, value] : call.self.as<DictObject>().entries) keys.push_back(key);
  DOPPLER_TRY(call.rt.spend(keys.size() / 8));
  return call.rt.view("dict_keys", std::move(keys));
}

Result<Value> dict_values(Call& call) {
  Values values;
  for (const auto& [key, value] : call.self.as<DictObject>().entries) values.push_back(value);
  DOPPLER_TRY(call.rt.spend(values.size() / 8));
  return call.rt.view("dict_values", std::move(values));
}

Result<Value> dict_get(Call& call) {
  if (!hashable(*call[0])) return type_error("unhashable type: '{}'", type_name(*call[0]));
  const Value* found = find_key(call.rt, call.self.as<DictObject>(), *call[0]);
  return found != nullptr ? *found : argument_or(call, 1, Value::none());
}

Result<Value> copy(Call& call) {
  return call.self;
}

Result<Value> list_index(Call& call) {
  const Values& items = call.self.as<ListObject>().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    DOPPLER_ASSIGN(const bool same, equal(call.rt, items[i], *call[0]));
    if (same) return Value::integer(static_cast<Integer>(i));
  }
  DOPPLER_ASSIGN(const std::string shown, to_repr(call.rt, *call[0]));
  return type_error("{} is not in {}", shown, type_name(call.self));
}

Result<Value> list_count(Call& call) {
  Integer times = 0;
  for (const Value& item : call.self.as<ListObject>().items) {
    DOPPLER_ASSIGN(const bool same, equal(call.rt, item, *call[0]));
    times += same ? 1 : 0;
  }
  return Value::integer(times);
}

Result<Value> float_is_integer(Call& call) {
  return Value::boolean(std::isfinite(call.self.as_real()) &&
                        std::floor(call.self.as_real()) == call.self.as_real());
}

Result<Value> cycler_next(Call& call) {
  auto& cycler = call.self.as<CyclerObject>();
  const std::size_t at = cycler.position;
  cycler.position = (at + 1) % cycler.items.size();
  return cycler.items[at];
}

Result<Value> cycler_reset(Call& call) {
  call.self.as<CyclerObject>().position = 0;
  return Value::none();
}

constexpr Builtin kDictMethods[] = {
    {"items", "", dict_items},         {"keys", "", dict_keys}, {"values", "", dict_values},
    {"get", "key default?", dict_get}, {"copy", "", copy},
};
constexpr Builtin kListMethods[] = {
    {"index", "value", list_index}, {"count", "value", list_count}, {"copy", "", copy}};
constexpr Builtin kTupleMethods[] = {{"index", "value", list_index}, {"count", "value", list_count}};
constexpr Builtin kFloatMethods[] = {{"is_integer", "", float_is_integer}};
constexpr Builtin kCyclerMethods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};

struct MethodTable {
  Kind kind;
  std::span<const Builtin> methods;
};

}  // namespace

const Builtin* find_method(const Value& object, std::string_view name) {
  const MethodTable tables[] = {
      {Kind::kString, text_methods()}, {Kind::kString, text_query_methods()}, {Kind::kDict, kDictMethods},
      {Kind::kList, kListMethods},     {Kind::kTuple, kTupleMethods},         {Kind::kFloat, kFloatMethods},
      {Kind::kLoop, loop_methods()},   {Kind::kCycler, kCyclerMethods},
  };
  for (const MethodTable& table : tables) {
    if (!object.is(table.kind)) continue;
    if (const Builtin* found = find_builtin(table.methods, name)) return found;
  }
  return nullptr;
}

}  // namespace doppler::chat::jinja
