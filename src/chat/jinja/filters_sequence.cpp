// Filters on sequences and dicts.
#include <algorithm>

#include "chat/jinja/arguments.h"
#include "chat/jinja/attribute_path.h"

namespace doppler::chat::jinja {
namespace {

Result<Value> filter_default(Call& call) {
  const bool missing = call.self.is_undefined() || (flag_argument(call, 1, false) && !truth(call.self));
  if (!missing) return call.self;
  return argument_or(call, 0, call.rt.text(""));
}

Result<Value> filter_length(Call& call) {
  const auto length = length_of(call.self);
  if (!length) return type_error("object of type '{}' has no len()", type_name(call.self));
  return Value::integer(static_cast<Integer>(*length));
}

Result<Value> filter_first(Call& call) {
  if (call.self.is(Kind::kGenerator)) {  // the rest stays unread
    auto& generator = call.self.as<ListObject>();
    if (generator.next < generator.items.size()) return generator.items[generator.next++];
    return call.rt.undefined("No first item, sequence was empty.");
  }
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  if (items->empty()) return call.rt.undefined("No first item, sequence was empty.");
  return items->front();
}

Result<Value> filter_last(Call& call) {
  if (!length_of(call.self)) return type_error("'{}' object is not reversible", type_name(call.self));
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  if (items->empty()) return call.rt.undefined("No last item, sequence was empty.");
  return items->back();
}

Result<Value> filter_list(Call& call) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  DOPPLER_TRY(call.rt.spend(items->size() / 8));
  return call.rt.list(*items);
}

Result<Value> filter_reverse(Call& call) {
  if (call.self.is_string()) {
    return slice(call.rt, call.self, Value::none(), Value::none(), Value::integer(-1));
  }
  if (!length_of(call.self) && !call.self.is(Kind::kGenerator))
    return type_error("argument must be iterable");
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  DOPPLER_TRY(call.rt.spend(items->size() / 8));
  return call.rt.generator(Values(items->rbegin(), items->rend()));
}

Result<Values> keys_of(Call& call, const Values& items, const Value* path, bool case_sensitive) {
  Values keys;
  for (const Value& item : items) {
    DOPPLER_ASSIGN(Value key, sort_key(call.rt, item, path, case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<Value> filter_sort(Call& call) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  DOPPLER_ASSIGN(Values keys, keys_of(call, *items, call[2], flag_argument(call, 1, false)));
  // Jinja compares lists of keys, so equal keys need no order: not even undefined ones.
  for (Value& key : keys) key = call.rt.list({key});
  DOPPLER_ASSIGN(Values out, sorted(call.rt, *items, keys, flag_argument(call, 0, false)));
  return call.rt.list(std::move(out));
}

Result<Value> filter_unique(Call& call) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  DOPPLER_ASSIGN(const Values keys, keys_of(call, *items, call[1], flag_argument(call, 0, false)));
  Values out;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!hashable(keys[i])) return type_error("unhashable type: '{}'", type_name(keys[i]));
    bool seen = false;
    for (std::size_t k = 0; k < kept.size() && !seen; ++k) {
      DOPPLER_ASSIGN(seen, equal(call.rt, keys[kept[k]], keys[i]));
    }
    if (seen) continue;
    kept.push_back(i);
    out.push_back((*items)[i]);
  }
  return call.rt.generator(std::move(out));
}

Result<Value> extreme(Call& call, int sign) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  if (items->empty()) return call.rt.undefined("No aggregated item, sequence was empty.");
  DOPPLER_ASSIGN(const Values keys, keys_of(call, *items, call[1], flag_argument(call, 0, false)));
  std::size_t best = 0;
  for (std::size_t i = 1; i < keys.size(); ++i) {
    DOPPLER_ASSIGN(const int order, compare(call.rt, keys[i], keys[best], sign < 0 ? "<" : ">"));
    if (order * sign > 0) best = i;
  }
  return (*items)[best];
}
Result<Value> filter_min(Call& call) {
  return extreme(call, -1);
}
Result<Value> filter_max(Call& call) {
  return extreme(call, 1);
}

Result<Value> filter_sum(Call& call) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  Value total = argument_or(call, 1, Value::integer(0));
  if (total.is_string()) return type_error("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : *items) {
    DOPPLER_ASSIGN(const Value part, attribute_at(call.rt, item, call[0], nullptr));
    DOPPLER_ASSIGN(total, arithmetic(call.rt, Operator::kAdd, total, part));
  }
  return total;
}

Result<Value> filter_join(Call& call) {
  DOPPLER_ASSIGN(const std::string separator, text_argument(call, 0, ""));
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  std::string out;
  for (std::size_t i = 0; i < items->size(); ++i) {
    DOPPLER_TRY(call.rt.spend(1));
    DOPPLER_ASSIGN(const Value part, attribute_at(call.rt, (*items)[i], call[1], nullptr));
    if (i > 0) out += separator;
    DOPPLER_TRY(Runtime::check_text_size(out.size()));
    DOPPLER_TRY(append_text(call.rt, out, part));
  }
  return call.rt.text(std::move(out));
}

Result<Value> filter_items(Call& call) {
  if (call.self.is_undefined()) return call.rt.generator({});
  if (!call.self.is(Kind::kDict)) return type_error("Can only get item pairs from a mapping.");
  Values pairs;
  for (const auto& [key, value] : call.self.as<DictObject>().entries)
    pairs.push_back(call.rt.tuple({key, value}));
  DOPPLER_TRY(call.rt.spend(pairs.size()));
  return call.rt.generator(std::move(pairs));
}

Result<Value> filter_dictsort(Call& call) {
  DOPPLER_ASSIGN(const std::string by, text_argument(call, 1, "key"));
  if (by != "key" && by != "value") {
    return type_error("You can only sort by either \"key\" or \"value\"");
  }
  if (!call.self.is(Kind::kDict))
    return type_error("'{}' object has no attribute 'items'", type_name(call.self));
  Values pairs;
  for (const auto& [key, value] : call.self.as<DictObject>().entries)
    pairs.push_back(call.rt.tuple({key, value}));
  const Value place = Value::integer(by == "key" ? 0 : 1);
  DOPPLER_ASSIGN(const Values keys, keys_of(call, pairs, &place, flag_argument(call, 0, false)));
  DOPPLER_ASSIGN(Values out, sorted(call.rt, pairs, keys, flag_argument(call, 2, false)));
  return call.rt.list(std::move(out));
}

Result<Value> filter_batch(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t size, index_argument(call, 0, 1));
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  DOPPLER_TRY(call.rt.spend(items->size()));
  Values rows, row;
  for (const Value& item : *items) {
    if (static_cast<std::int64_t>(row.size()) == size) rows.push_back(call.rt.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (call[1] != nullptr && !call[1]->is_none() && static_cast<std::int64_t>(row.size()) < size) {
      DOPPLER_TRY(Runtime::check_list_size(static_cast<std::uint64_t>(size)));
      row.resize(static_cast<std::size_t>(size), *call[1]);
    }
    rows.push_back(call.rt.list(std::move(row)));
  }
  return call.rt.generator(std::move(rows));
}

Result<Value> filter_slice(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t slices, index_argument(call, 0, 1));
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  if (slices == 0) return type_error("integer division or modulo by zero");
  if (slices < 0) return call.rt.generator({});
  DOPPLER_TRY(Runtime::check_list_size(static_cast<std::uint64_t>(slices)));
  DOPPLER_TRY(call.rt.spend(items->size() + static_cast<std::uint64_t>(slices)));
  const auto count = static_cast<std::size_t>(slices);
  const std::size_t each = items->size() / count, longer = items->size() % count;
  Values rows;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = at + each + (i < longer ? 1 : 0);
    Values row(items->begin() + static_cast<std::ptrdiff_t>(at),
               items->begin() + static_cast<std::ptrdiff_t>(end));
    if (call[1] != nullptr && !call[1]->is_none() && i >= longer) row.push_back(*call[1]);
    rows.push_back(call.rt.list(std::move(row)));
    at = end;
  }
  return call.rt.generator(std::move(rows));
}

Result<Value> filter_groupby(Call& call) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, call.self));
  const bool case_sensitive = flag_argument(call, 2, false);
  Values keys;
  for (const Value& item : *items) {
    DOPPLER_ASSIGN(Value key, sort_key(call.rt, item, call[0], case_sensitive, call[1]));
    keys.push_back(std::move(key));
  }
  DOPPLER_ASSIGN(const Values members, sorted(call.rt, *items, keys, false));
  DOPPLER_ASSIGN(const Values ordered, sorted(call.rt, keys, keys, false));
  Values groups;
  for (std::size_t i = 0; i < members.size();) {
    const std::size_t begin = i;
    Values group;
    for (bool same = true; same;) {
      group.push_back(members[i++]);
      if (i == members.size()) break;
      DOPPLER_ASSIGN(same, equal(call.rt, ordered[begin], ordered[i]));
    }
    // Folded keys only group; what is shown is the first member's own.
    DOPPLER_ASSIGN(Value shown, attribute_at(call.rt, group.front(), call[0], call[1]));
    Value pair = call.rt.tuple({std::move(shown), call.rt.list(std::move(group))});
    if (pair.is(Kind::kTuple)) pair.as<ListObject>().type = "_GroupTuple";
    groups.push_back(std::move(pair));
  }
  return call.rt.list(std::move(groups));
}

constexpr Builtin kSequenceFilters[] = {
    {"default", "default_value? boolean?", filter_default},
    {"d", "default_value? boolean?", filter_default},
    {"length", "", filter_length},
    {"count", "", filter_length},
    {"first", "", filter_first},
    {"last", "", filter_last},
    {"list", "", filter_list},
    {"join", "d? attribute?", filter_join},
    {"items", "", filter_items},
    {"reverse", "", filter_reverse, true},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {"min", "case_sensitive? attribute?", filter_min},
    {"max", "case_sensitive? attribute?", filter_max},
    {"sum", "attribute? start?", filter_sum},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"batch", "linecount fill_with?", filter_batch},
    {"slice", "slices fill_with?", filter_slice},
    {"groupby", "attribute default? case_sensitive?", filter_groupby},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace doppler::chat::jinja
