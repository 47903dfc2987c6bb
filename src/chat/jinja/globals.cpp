// The functions every template can call.
#include <algorithm>

#include "chat/jinja/arguments.h"
#include "chat/jinja/strftime.h"

namespace doppler::chat::jinja {
namespace {

// The sandbox's bound on range().
constexpr std::int64_t kMaxRange = 100'000;

Result<Value> global_range(Call& call) {
  const Values& given = call.given.positional;
  if (given.empty() || given.size() > 3 || !call.given.named.empty()) {
    return type_error("range expected 1 to 3 arguments, got {}", given.size());
  }
  std::int64_t bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < given.size(); ++i) {
    DOPPLER_ASSIGN(bounds[given.size() == 1 ? 1 : i], to_index(given[i]));
  }
  if (bounds[2] == 0) return type_error("range() arg 3 must not be zero");
  Value range = call.rt.make<RangeObject>(Kind::kRange, bounds[0], bounds[1], bounds[2]);
  if (range.as<RangeObject>().size() > kMaxRange) {
    return fail(ErrorCode::kLimit, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                kMaxRange);
  }
  return range;
}

// dict(mapping or pairs, name=value ...)
Result<std::vector<DictObject::Entry>> entries_of(Call& call) {
  std::vector<DictObject::Entry> entries;
  if (call.given.positional.size() > 1) {
    return type_error("dict expected at most 1 argument, got {}", call.given.positional.size());
  }
  for (const Value& source : call.given.positional) {
    if (source.is(Kind::kDict)) {
      entries = source.as<DictObject>().entries;
      continue;
    }
    DOPPLER_ASSIGN(const Items pairs, iterate(call.rt, source));
    for (const Value& pair : *pairs) {
      DOPPLER_ASSIGN(const Items parts, iterate(call.rt, pair));
      if (parts->size() != 2) {
        return type_error("dictionary update sequence element has length {}; 2 is required", parts->size());
      }
      entries.emplace_back((*parts)[0], (*parts)[1]);
    }
  }
  for (const auto& [name, value] : call.given.named) entries.emplace_back(call.rt.text(name), value);
  return entries;
}

Result<Value> global_dict(Call& call) {
  DOPPLER_ASSIGN(auto entries, entries_of(call));
  return make_dict(call.rt, std::move(entries));
}

Result<Value> global_namespace(Call& call) {
  DOPPLER_ASSIGN(const Value fields, global_dict(call));
  const Value space = call.rt.name_space();
  if (!fields.is(Kind::kDict)) return space;
  for (const auto& [key, value] : fields.as<DictObject>().entries) {
    if (key.is_string()) space.as<NamespaceObject>().fields.emplace_back(key.text(), value);
  }
  return space;
}

Result<Value> global_joiner(Call& call) {
  return call.rt.make<JoinerObject>(Kind::kJoiner, argument_or(call, 0, call.rt.text(", ")));
}

Result<Value> global_cycler(Call& call) {
  if (call.given.positional.empty()) return type_error("at least one item has to be provided");
  return call.rt.make<CyclerObject>(Kind::kCycler, call.given.positional);
}

Result<Value> global_raise_exception(Call& call) {
  DOPPLER_ASSIGN(const std::string message, text_argument(call, 0, ""));
  call.rt.raised = true;
  return fail(ErrorCode::kMismatch, "{}", message);
}

Result<Value> global_strftime_now(Call& call) {
  if (!call[0]->is_string())
    return type_error("strftime() argument 1 must be str, not {}", type_name(*call[0]));
  DOPPLER_TRY(Runtime::check_text_size(call[0]->text().size() * 16));
  return call.rt.text(format_time(call[0]->text(), call.rt.now()));
}

constexpr Builtin kGlobals[] = {
    {"range", "*", global_range},
    {"dict", "*", global_dict},
    {"namespace", "*", global_namespace},
    {"joiner", "sep?", global_joiner},
    {"cycler", "*", global_cycler},
    {"raise_exception", "message", global_raise_exception},
    {"strftime_now", "format", global_strftime_now},
};

}  // namespace

const Builtin* find_global(std::string_view name) {
  return find_builtin(kGlobals, name);
}

}  // namespace doppler::chat::jinja
