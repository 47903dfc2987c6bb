// Reading from containers: items, attributes, slices, iteration.
#include <algorithm>
#include <limits>

#include "base/text.h"
#include "chat/jinja/loop.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_form.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

// Methods that would change their object; the sandbox hands them out as unsafe.
struct Mutator {
  Kind kind;
  std::string_view name;
};
constexpr Mutator kMutators[] = {
    {Kind::kDict, "clear"},   {Kind::kDict, "pop"},    {Kind::kDict, "popitem"}, {Kind::kDict, "setdefault"},
    {Kind::kDict, "update"},  {Kind::kList, "append"}, {Kind::kList, "clear"},   {Kind::kList, "pop"},
    {Kind::kList, "reverse"}, {Kind::kList, "insert"}, {Kind::kList, "sort"},    {Kind::kList, "extend"},
    {Kind::kList, "remove"},
};

// How Jinja names the object of a missing attribute.
std::string object_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kNamespace:
      return "jinja2.utils.Namespace object";
    case Kind::kLoop:
      return "jinja2.runtime.LoopContext object";
    case Kind::kMacro:
      return "jinja2.runtime.Macro object";
    default:
      return fmt::format("{} object", type_name(value));
  }
}

Value unsafe_attribute(Runtime& rt, const Value& value, std::string_view name) {
  Value refused = rt.undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", printable(name), type_name(value)));
  refused.as<UndefinedObject>().unsafe = true;
  return refused;
}

Value missing_attribute(Runtime& rt, const Value& value, std::string_view name) {
  return rt.undefined(
      fmt::format("'{}' has no attribute {}", object_name(value), quoted_text(name.substr(0, 80))));
}

// The result of Python's getattr: fields and methods. Nothing if there is none.
std::optional<Value> own_attribute(Runtime& rt, const Value& value, std::string_view name) {
  for (const Mutator& row : kMutators) {
    if (value.is(row.kind) && name == row.name) return unsafe_attribute(rt, value, name);
  }
  if (value.is(Kind::kNamespace)) {
    for (const auto& [field, held] : value.as<NamespaceObject>().fields) {
      if (field == name) return held;
    }
    return std::nullopt;
  }
  if (value.is(Kind::kTuple) && std::string_view(value.as<ListObject>().type) == "_GroupTuple") {
    if (name == "grouper") return value.as<ListObject>().items[0];
    if (name == "list") return value.as<ListObject>().items[1];
  }
  if (value.is(Kind::kCycler) && name == "current") {
    const auto& cycler = value.as<CyclerObject>();
    return cycler.items[cycler.position];
  }
  if (value.is(Kind::kLoop)) {
    if (Value found = loop_attribute(rt, value, name); !found.is_undefined() || found.object()) return found;
  }
  if (const Builtin* method = find_method(value, name))
    return rt.make<FunctionObject>(Kind::kMethod, *method, value);
  return std::nullopt;
}

// A Python index into `size` items; nothing if out of range.
std::optional<std::size_t> place(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value character(Runtime& rt, const StringObject& string, std::size_t index) {
  const std::size_t begin = string.ascii() ? index : byte_offset(string.text, index);
  const std::size_t length = utf8_sequence_length(std::string_view(string.text).substr(begin));
  return rt.text(string.text.substr(begin, std::max<std::size_t>(length, 1)));
}

// value[key] for an integer key of a sequence. Nothing if the index is out of range or the value no sequence.
std::optional<Value> item_at(Runtime& rt, const Value& value, std::int64_t index) {
  const bool sequence =
      value.is(Kind::kList) || value.is(Kind::kTuple) || value.is_string() || value.is(Kind::kRange);
  if (!sequence) return std::nullopt;
  const auto at = place(index, *length_of(value));
  if (!at) return std::nullopt;
  if (value.is_string()) {
    const Value found = character(rt, value.as<StringObject>(), *at);
    return is_markup(value) ? as_markup(rt, found) : found;
  }
  if (value.is(Kind::kRange)) {
    const auto& range = value.as<RangeObject>();
    return Value::integer(range.start + static_cast<Integer>(range.step) * static_cast<Integer>(*at));
  }
  return value.as<ListObject>().items[*at];
}

Values characters(Runtime& rt, const std::string& text) {
  Values out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    out.push_back(rt.text(text.substr(begin, at - begin)));
  }
  return out;
}

struct SliceBounds {
  std::int64_t start, stop, step;
  std::size_t count() const {
    if (step > 0) return start < stop ? static_cast<std::size_t>((stop - start - 1) / step + 1) : 0;
    return start > stop ? static_cast<std::size_t>((start - stop - 1) / -step + 1) : 0;
  }
};

Result<std::int64_t> slice_part(const Value& value, std::int64_t otherwise) {
  if (value.is_none()) return otherwise;
  if (!value.is_integral()) {
    DOPPLER_TRY(require_defined(value));
    return type_error("slice indices must be integers or None or have an __index__ method");
  }
  return to_index(value);
}

// As Python's slice.indices.
Result<SliceBounds> slice_bounds(std::size_t size, const Value& start, const Value& stop, const Value& step) {
  const auto count = static_cast<std::int64_t>(size);
  SliceBounds bounds{};
  DOPPLER_ASSIGN(bounds.step, slice_part(step, 1));
  if (bounds.step == 0) return type_error("slice step cannot be zero");
  const bool forward = bounds.step > 0;
  const std::int64_t low = forward ? 0 : -1, high = forward ? count : count - 1;
  const auto clamp = [&](std::int64_t index) {
    return std::clamp(index < 0 ? index + count : index, low, high);
  };
  const std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  DOPPLER_ASSIGN(const std::int64_t from, slice_part(start, forward ? 0 : far));
  DOPPLER_ASSIGN(const std::int64_t to, slice_part(stop, forward ? far : -far));
  bounds.start = clamp(from);
  bounds.stop = clamp(to);
  return bounds;
}

Value slice_text(Runtime& rt, const StringObject& string, const SliceBounds& bounds) {
  if (bounds.step == 1) {
    const auto first = static_cast<std::size_t>(bounds.start);
    const std::size_t begin = string.ascii() ? first : byte_offset(string.text, first);
    const std::string_view tail = std::string_view(string.text).substr(begin);
    return rt.text(
        std::string(tail.substr(0, string.ascii() ? bounds.count() : byte_offset(tail, bounds.count()))));
  }
  const auto codes = code_points(string.text);
  std::string out;
  std::int64_t at = bounds.start;
  for (std::size_t i = 0; i < bounds.count(); ++i, at += bounds.step) {
    append_code_point(out, codes[static_cast<std::size_t>(at)]);
  }
  return rt.text(std::move(out));
}

}  // namespace

Result<Items> iterate(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return Items(value.object(), &value.as<ListObject>().items);
    case Kind::kGenerator: {
      auto& generator = value.as<ListObject>();
      const std::size_t begin = std::exchange(generator.next, generator.items.size());
      if (begin == 0) return Items(value.object(), &generator.items);
      return std::make_shared<Values>(generator.items.begin() + static_cast<std::ptrdiff_t>(begin),
                                      generator.items.end());
    }
    case Kind::kDict: {
      Values keys;
      for (const auto& [key, ignored] : value.as<DictObject>().entries) keys.push_back(key);
      DOPPLER_TRY(rt.spend(keys.size() / 8));
      return std::make_shared<Values>(std::move(keys));
    }
    case Kind::kString:
      DOPPLER_TRY(Runtime::check_list_size(value.as<StringObject>().characters));
      DOPPLER_TRY(rt.spend(value.as<StringObject>().characters));
      return std::make_shared<Values>(characters(rt, value.text()));
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      Values numbers;
      DOPPLER_TRY(rt.spend(static_cast<std::uint64_t>(range.size())));
      for (std::int64_t i = 0; i < range.size(); ++i) {
        numbers.push_back(Value::integer(range.start + static_cast<Integer>(range.step) * i));
      }
      return std::make_shared<Values>(std::move(numbers));
    }
    case Kind::kUndefined:
      if (value.object() && value.as<UndefinedObject>().unsafe) DOPPLER_TRY(require_defined(value));
      return std::make_shared<Values>();
    default:
      return type_error("'{}' object is not iterable", type_name(value));
  }
}

Result<Value> get_attribute(Runtime& rt, const Value& value, std::string_view name) {
  if (value.is_undefined()) {
    DOPPLER_TRY(require_defined(value));
  }
  if (auto found = own_attribute(rt, value, name)) return *found;
  if (name.starts_with("__")) return unsafe_attribute(rt, value, name);
  if (value.is(Kind::kDict)) {
    if (const Value* found = value.as<DictObject>().find(name)) return *found;
  }
  return missing_attribute(rt, value, name);
}

Result<Value> get_item(Runtime& rt, const Value& value, const Value& key) {
  DOPPLER_TRY(require_defined(value));
  if (value.is(Kind::kDict) && hashable(key)) {
    if (const Value* found = find_key(rt, value.as<DictObject>(), key)) return *found;
  }
  if (key.is_integral()) {
    DOPPLER_ASSIGN(const std::int64_t index, to_index(key));
    if (auto found = item_at(rt, value, index)) return *found;
  }
  if (!key.is_string()) {
    DOPPLER_ASSIGN(const std::string shown, to_repr(rt, key));
    return rt.undefined(fmt::format("{} has no element {}", object_name(value), printable(shown)));
  }
  if (auto found = own_attribute(rt, value, key.text())) return *found;
  return missing_attribute(rt, value, key.text());
}

Result<Value> slice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
                    const Value& step) {
  DOPPLER_TRY(require_defined(value));
  const bool sequence =
      value.is(Kind::kList) || value.is(Kind::kTuple) || value.is_string() || value.is(Kind::kRange);
  // Slices go to Python directly: what cannot be sliced is an error, not undefined.
  if (value.is(Kind::kDict)) return type_error("unhashable type: 'slice'");
  if (!sequence) return type_error("'{}' object is not subscriptable", type_name(value));
  DOPPLER_ASSIGN(const SliceBounds bounds, slice_bounds(*length_of(value), start, stop, step));
  if (value.is_string()) {
    DOPPLER_TRY(rt.spend(value.text().size() / 64));
    const Value part = slice_text(rt, value.as<StringObject>(), bounds);
    return is_markup(value) ? as_markup(rt, part) : part;
  }
  Values out;
  DOPPLER_TRY(rt.spend(bounds.count() / 8));
  std::int64_t at = bounds.start;
  for (std::size_t i = 0; i < bounds.count(); ++i, at += bounds.step) out.push_back(*item_at(rt, value, at));
  return value.is(Kind::kTuple) ? rt.tuple(std::move(out)) : rt.list(std::move(out));
}

const Value* find_key(Runtime& rt, const DictObject& dict, const Value& key) {
  if (key.is_string()) return dict.find(key.text());
  for (const auto& [candidate, value] : dict.entries) {
    const auto same = equal(rt, candidate, key);
    if (same && *same) return &value;
  }
  return nullptr;
}

Result<Value> make_dict(Runtime& rt, std::vector<DictObject::Entry> entries) {
  std::vector<DictObject::Entry> unique;
  std::unordered_map<std::string, std::size_t> seen;
  for (auto& [key, value] : entries) {
    if (!hashable(key)) return type_error("unhashable type: '{}'", type_name(key));
    std::size_t at = unique.size();
    if (key.is_string()) {
      at = seen.emplace(key.text(), at).first->second;
    } else {
      for (std::size_t i = 0; i < unique.size() && at == unique.size(); ++i) {
        DOPPLER_ASSIGN(const bool same, equal(rt, unique[i].first, key));
        if (same) at = i;
      }
    }
    if (at == unique.size())
      unique.emplace_back(std::move(key), std::move(value));
    else
      unique[at].second = std::move(value);
  }
  return rt.dict(std::move(unique));
}

}  // namespace doppler::chat::jinja
