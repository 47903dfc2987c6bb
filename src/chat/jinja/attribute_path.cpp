#include "chat/jinja/attribute_path.h"

#include <algorithm>
#include <numeric>

#include "chat/jinja/merge_sort.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_methods.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

Result<Value> walk(Runtime& rt, Value value, std::string_view path, const Value* otherwise) {
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    const bool index = !part.empty() && part.size() < 10 &&
                       std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const Value key = index ? Value::integer(*parse_integer(part, 10)) : rt.text(std::string(part));
    DOPPLER_ASSIGN(value, get_item(rt, value, key));
    if (value.is_undefined() && otherwise != nullptr) value = *otherwise;
    if (dot == std::string_view::npos) return value;
    path.remove_prefix(dot + 1);
  }
}

Value folded(Runtime& rt, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return rt.text(to_lower(value.text()));
}

}  // namespace

Result<Value> attribute_at(Runtime& rt, const Value& value, const Value* path, const Value* otherwise) {
  if (path == nullptr || path->is_none()) return value;
  if (path->is_string()) return walk(rt, value, path->text(), otherwise);
  DOPPLER_ASSIGN(Value found, get_item(rt, value, *path));
  if (found.is_undefined() && otherwise != nullptr) return *otherwise;
  return found;
}

Result<Value> sort_key(Runtime& rt, const Value& value, const Value* path, bool case_sensitive,
                       const Value* otherwise) {
  if (path == nullptr || !path->is_string() || path->text().find(',') == std::string::npos) {
    DOPPLER_ASSIGN(Value key, attribute_at(rt, value, path, otherwise));
    return folded(rt, std::move(key), case_sensitive);
  }
  Values keys;
  std::string_view rest = path->text();
  while (true) {
    const std::size_t comma = rest.find(',');
    DOPPLER_ASSIGN(Value key, walk(rt, value, rest.substr(0, comma), otherwise));
    keys.push_back(folded(rt, std::move(key), case_sensitive));
    if (comma == std::string_view::npos) return rt.list(std::move(keys));
    rest.remove_prefix(comma + 1);
  }
}

Result<Values> sorted(Runtime& rt, const Values& items, const Values& keys, bool descending) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  DOPPLER_TRY(merge_sort(order, [&](std::size_t a, std::size_t b) -> Result<bool> {
    DOPPLER_ASSIGN(const int sign, compare(rt, keys[descending ? b : a], keys[descending ? a : b], "<"));
    return sign < 0;
  }));
  Values out;
  for (const std::size_t i : order) out.push_back(items[i]);
  return out;
}

}  // namespace doppler::chat::jinja
