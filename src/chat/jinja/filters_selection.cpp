// Filters that apply other filters or tests to each item.
#include <algorithm>

#include "base/text.h"
#include "chat/jinja/arguments.h"
#include "chat/jinja/attribute_path.h"

namespace doppler::chat::jinja {
namespace {

// The arguments behind the first `count`.
Arguments tail(const Arguments& given, std::size_t count) {
  Arguments rest;
  rest.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         given.positional.end());
  rest.named = given.named;
  return rest;
}

const Value* named_argument(const Arguments& given, std::string_view name) {
  for (const auto& [key, value] : given.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<Value> filter_map(Call& call) {
  if (!truth(call.self)) return call.rt.generator({});  // as Jinja, which then looks at nothing else
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  Values out;
  if (const Value* path = named_argument(call.given, "attribute");
      path != nullptr && call.given.positional.empty()) {
    for (const auto& [name, value] : call.given.named) {
      if (name != "attribute" && name != "default")
        return type_error("Unexpected keyword argument '{}'", name);
    }
    const Value* otherwise = named_argument(call.given, "default");
    for (const Value& item : *items) {
      DOPPLER_ASSIGN(Value found, attribute_at(call.rt, item, path, otherwise));
      out.push_back(std::move(found));
    }
    return call.rt.generator(std::move(out));
  }
  if (call.given.positional.empty()) return type_error("map requires a filter argument");
  const Value& name = call.given.positional.front();
  const Builtin* filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr) {
    DOPPLER_ASSIGN(const std::string shown, to_text(call.rt, name));
    return fail(ErrorCode::kUnsupported, "it uses the unknown filter \"{}\"", printable(shown));
  }
  const Arguments rest = tail(call.given, 1);
  for (const Value& item : *items) {
    DOPPLER_ASSIGN(Value mapped, invoke(call.rt, *filter, item, rest));
    out.push_back(std::move(mapped));
  }
  return call.rt.generator(std::move(out));
}

// select, reject, selectattr, rejectattr: items whose (attribute's) truth or test is `wanted`.
Result<Value> choose(Call& call, bool wanted, bool by_attribute) {
  if (!truth(call.self)) return call.rt.generator({});
  const Values& given = call.given.positional;
  if (by_attribute && given.empty()) return type_error("Missing parameter for attribute name");
  const std::size_t test_at = by_attribute ? 1 : 0;
  const Builtin* test = nullptr;
  Arguments rest;
  if (given.size() > test_at) {
    DOPPLER_ASSIGN(const std::string name, to_text(call.rt, given[test_at]));
    test = find_test(name);
    if (test == nullptr)
      return fail(ErrorCode::kUnsupported, "it uses the unknown test \"{}\"", printable(name));
    rest = tail(call.given, test_at + 1);
  }
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  Values out;
  for (const Value& item : *items) {
    DOPPLER_TRY(call.rt.spend(1));
    DOPPLER_ASSIGN(Value subject, attribute_at(call.rt, item, by_attribute ? &given[0] : nullptr, nullptr));
    if (test != nullptr) {
      DOPPLER_ASSIGN(subject, invoke(call.rt, *test, subject, rest));
    }
    if (truth(subject) == wanted) out.push_back(item);
  }
  return call.rt.generator(std::move(out));
}

Result<Value> filter_select(Call& call) {
  return choose(call, true, false);
}
Result<Value> filter_reject(Call& call) {
  return choose(call, false, false);
}
Result<Value> filter_selectattr(Call& call) {
  return choose(call, true, true);
}
Result<Value> filter_rejectattr(Call& call) {
  return choose(call, false, true);
}

// getattr only: keys of a dict are no attributes.
Result<Value> filter_attr(Call& call) {
  DOPPLER_ASSIGN(const std::string name, text_argument(call, 0, ""));
  if (call.self.is(Kind::kDict) && find_method(call.self, name) == nullptr) {
    return call.rt.undefined(fmt::format("'dict object' has no attribute '{}'", printable(name)));
  }
  return get_attribute(call.rt, call.self, name);
}

constexpr Builtin kSelectionFilters[] = {
    {"map", "*", filter_map},
    {"select", "*", filter_select},
    {"reject", "*", filter_reject},
    {"selectattr", "*", filter_selectattr},
    {"rejectattr", "*", filter_rejectattr},
    {"attr", "name", filter_attr},
};

}  // namespace

std::span<const Builtin> selection_filters() {
  return kSelectionFilters;
}

}  // namespace doppler::chat::jinja
