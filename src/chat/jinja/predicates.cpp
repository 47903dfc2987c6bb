// Jinja's tests: the names behind `is`.
#include <algorithm>

#include "chat/jinja/arguments.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

using Answer = Result<Value>;

Value yes(bool b) {
  return Value::boolean(b);
}

template <Kind kKind>
Answer is_kind(Call& call) {
  return yes(call.self.is(kKind));
}

template <Operator kOperator>
Answer compares(Call& call) {
  DOPPLER_ASSIGN(const bool holds, compare_with(call.rt, kOperator, call.self, *call[0]));
  return yes(holds);
}

Answer is_defined(Call& call) {
  return yes(!call.self.is_undefined());
}
Answer is_true(Call& call) {
  return yes(call.self.is(Kind::kBool) && call.self.as_bool());
}
Answer is_false(Call& call) {
  return yes(call.self.is(Kind::kBool) && !call.self.as_bool());
}
Answer is_number(Call& call) {
  return yes(call.self.is_number());
}

Answer is_sequence(Call& call) {
  // Whatever has a length and items; an undefined value claims both.
  return yes(length_of(call.self).has_value() && !call.self.is(Kind::kView));
}

Answer is_iterable(Call& call) {
  return yes(length_of(call.self).has_value() || call.self.is(Kind::kGenerator) || call.self.is(Kind::kLoop));
}

Answer is_callable(Call& call) {
  constexpr Kind kCallable[] = {Kind::kUndefined, Kind::kFunction, Kind::kMethod,
                                Kind::kMacro,     Kind::kLoop,     Kind::kJoiner};
  return yes(std::find(std::begin(kCallable), std::end(kCallable), call.self.kind()) != std::end(kCallable));
}

Result<bool> divides(Call& call, const Value& by) {
  DOPPLER_ASSIGN(const Value rest, arithmetic(call.rt, Operator::kModulo, call.self, by));
  return equal(call.rt, rest, Value::integer(0));
}
Answer is_even(Call& call) {
  DOPPLER_ASSIGN(const bool divided, divides(call, Value::integer(2)));
  return yes(divided);
}
Answer is_odd(Call& call) {
  DOPPLER_ASSIGN(const Value rest, arithmetic(call.rt, Operator::kModulo, call.self, Value::integer(2)));
  DOPPLER_ASSIGN(const bool one, equal(call.rt, rest, Value::integer(1)));
  return yes(one);
}
Answer is_divisible(Call& call) {
  DOPPLER_ASSIGN(const bool divided, divides(call, *call[0]));
  return yes(divided);
}

// str.islower and str.isupper of str(value).
Answer has_case(Call& call, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (other(code) || is_title(code)) return yes(false);
    any |= wanted(code);
  }
  return yes(any);
}
Answer is_lower_case(Call& call) {
  return has_case(call, is_lower, is_upper);
}
Answer is_upper_case(Call& call) {
  return has_case(call, is_upper, is_lower);
}

Answer is_same(Call& call) {
  const Value& other = *call[0];
  if (call.self.kind() != other.kind()) return yes(false);
  if (call.self.object() && !call.self.is_string()) return yes(call.self.object() == other.object());
  DOPPLER_ASSIGN(const bool same, equal(call.rt, call.self, other));
  return yes(same);
}

Answer is_escaped(Call& call) {
  return yes(call.self.is_string() && call.self.as<StringObject>().markup);
}
Answer is_filter(Call& call) {
  return yes(call.self.is_string() && find_filter(call.self.text()) != nullptr);
}
Answer is_test(Call& call) {
  return yes(call.self.is_string() && find_test(call.self.text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_kind<Kind::kUndefined>},
    {"none", "", is_kind<Kind::kNone>},
    {"string", "", is_kind<Kind::kString>},
    {"mapping", "", is_kind<Kind::kDict>},
    {"boolean", "", is_kind<Kind::kBool>},
    {"integer", "", is_kind<Kind::kInt>},
    {"float", "", is_kind<Kind::kFloat>},
    {"number", "", is_number},
    {"true", "", is_true},
    {"false", "", is_false},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable},
    {"callable", "", is_callable},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible},
    {"lower", "", is_lower_case},
    {"upper", "", is_upper_case},
    {"sameas", "other", is_same},
    {"escaped", "", is_escaped},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"in", "seq", compares<Operator::kIn>},
    {"eq", "other", compares<Operator::kEqual>},
    {"equalto", "other", compares<Operator::kEqual>},
    {"==", "other", compares<Operator::kEqual>},
    {"ne", "other", compares<Operator::kNotEqual>},
    {"!=", "other", compares<Operator::kNotEqual>},
    {"lt", "other", compares<Operator::kLess>},
    {"lessthan", "other", compares<Operator::kLess>},
    {"<", "other", compares<Operator::kLess>},
    {"le", "other", compares<Operator::kLessEqual>},
    {"<=", "other", compares<Operator::kLessEqual>},
    {"gt", "other", compares<Operator::kGreater>},
    {"greaterthan", "other", compares<Operator::kGreater>},
    {">", "other", compares<Operator::kGreater>},
    {"ge", "other", compares<Operator::kGreaterEqual>},
    {">=", "other", compares<Operator::kGreaterEqual>},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  return find_builtin(kTests, name);
}

}  // namespace doppler::chat::jinja
