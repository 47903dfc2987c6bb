#include "chat/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "chat/jinja/format.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/text_form.h"

namespace doppler::chat::jinja {
namespace {

constexpr std::string_view kOperatorTexts[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

std::string_view operator_text(Operator op) {
  return kOperatorTexts[static_cast<std::size_t>(op)];
}

bool sequence(const Value& v) {
  return v.is(Kind::kList) || v.is(Kind::kTuple);
}

std::unexpected<Error> unsupported(Operator op, const Value& a, const Value& b) {
  return type_error("unsupported operand type(s) for {}: '{}' and '{}'", operator_text(op), type_name(a),
                    type_name(b));
}

Result<bool> equal_items(Runtime& rt, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    DOPPLER_ASSIGN(const bool same, equal(rt, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Runtime& rt, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find_key(rt, b, key);
    if (other == nullptr) return false;
    DOPPLER_ASSIGN(const bool same, equal(rt, value, *other));
    if (!same) return false;
  }
  return true;
}

// Exact, as Python compares an int with a float.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  }
  const auto x =
      static_cast<long double>(a.is_integral() ? static_cast<long double>(a.as_integer()) : a.as_real());
  const auto y =
      static_cast<long double>(b.is_integral() ? static_cast<long double>(b.as_integer()) : b.as_real());
  return x < y ? -1 : x > y ? 1 : 0;
}

bool either_nan(const Value& a, const Value& b) {
  return std::isnan(a.as_real()) || std::isnan(b.as_real());
}

Result<Value> repeat(Runtime& rt, const Value& value, Integer times) {
  const auto count = static_cast<std::uint64_t>(std::clamp<Integer>(times, 0, Integer{1} << 40));
  if (value.is_string()) {
    const std::string& text = value.text();
    if (text.empty()) return value;
    DOPPLER_TRY(Runtime::check_text_size(count > kMaxTextBytes ? count : count * text.size()));
    std::string out;
    out.reserve(count * text.size());
    for (std::uint64_t i = 0; i < count; ++i) out += text;
    return is_markup(value) ? rt.markup(std::move(out)) : rt.text(std::move(out));
  }
  const Values& items = value.as<ListObject>().items;
  if (items.empty()) return value;
  DOPPLER_TRY(Runtime::check_list_size(count > kMaxListItems ? count : count * items.size()));
  Values out;
  for (std::uint64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return value.is(Kind::kList) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
}

Result<Value> add_objects(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    DOPPLER_TRY(Runtime::check_text_size(a.text().size() + b.text().size()));
    if (!is_markup(a) && !is_markup(b)) return rt.text(a.text() + b.text());
    return rt.markup((is_markup(a) ? a.text() : escape_html(a.text())) +
                     (is_markup(b) ? b.text() : escape_html(b.text())));
  }
  if (sequence(a) && a.kind() == b.kind()) {
    Values items = a.as<ListObject>().items;
    const Values& more = b.as<ListObject>().items;
    DOPPLER_TRY(Runtime::check_list_size(items.size() + more.size()));
    DOPPLER_TRY(rt.spend((items.size() + more.size()) / 8));
    items.insert(items.end(), more.begin(), more.end());
    return a.is(Kind::kList) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
  }
  if (a.is_string()) return type_error("can only concatenate str (not \"{}\") to str", type_name(b));
  if (a.is(Kind::kList)) return type_error("can only concatenate list (not \"{}\") to list", type_name(b));
  if (a.is(Kind::kTuple)) return type_error("can only concatenate tuple (not \"{}\") to tuple", type_name(b));
  return unsupported(Operator::kAdd, a, b);
}

Result<Value> overflow() {
  return fail(ErrorCode::kLimit, "an integer grows beyond 128 bits");
}

Integer floor_divide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Result<Value> integer_power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) return type_error("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Integer result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {  // at most 127 rounds before it overflows
    if (__builtin_mul_overflow(result, base, &result)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(Operator op, Integer a, Integer b) {
  constexpr Integer kLowest = static_cast<Integer>(1) << 126;  // far enough from the edge for / and %
  Integer out = 0;
  switch (op) {
    case Operator::kAdd:
      return __builtin_add_overflow(a, b, &out) ? overflow() : Value::integer(out);
    case Operator::kSubtract:
      return __builtin_sub_overflow(a, b, &out) ? overflow() : Value::integer(out);
    case Operator::kMultiply:
      return __builtin_mul_overflow(a, b, &out) ? overflow() : Value::integer(out);
    case Operator::kPower:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) {
    return type_error("{}", op == Operator::kDivide        ? "division by zero"
                            : op == Operator::kFloorDivide ? "integer division or modulo by zero"
                                                           : "integer modulo by zero");
  }
  if (a < -kLowest || a > kLowest) return overflow();
  if (op == Operator::kDivide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  const Integer quotient = floor_divide(a, b);
  return Value::integer(op == Operator::kFloorDivide ? quotient : a - quotient * b);
}

Result<Value> real_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kPower:
      if (a == 0 && b < 0) return type_error("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) {
    return type_error("{}", op == Operator::kDivide        ? "float division by zero"
                            : op == Operator::kFloorDivide ? "float floor division by zero"
                                                           : "float modulo");
  }
  if (op == Operator::kDivide) return Value::real(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (b < 0) != (rest < 0)) rest += b;
  if (op == Operator::kModulo) return Value::real(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  const double floored = std::floor(quotient);
  return Value::real(quotient - floored > 0.5 ? floored + 1 : floored);
}

struct TypeName {
  Kind kind;
  std::string_view name;
};
constexpr TypeName kTypeNames[] = {
    {Kind::kUndefined, "Undefined"}, {Kind::kNone, "NoneType"},
    {Kind::kBool, "bool"},           {Kind::kInt, "int"},
    {Kind::kFloat, "float"},         {Kind::kString, "str"},
    {Kind::kDict, "dict"},           {Kind::kRange, "range"},
    {Kind::kNamespace, "Namespace"}, {Kind::kFunction, "function"},
    {Kind::kMacro, "Macro"},         {Kind::kMethod, "builtin_function_or_method"},
    {Kind::kLoop, "LoopContext"},    {Kind::kJoiner, "Joiner"},
    {Kind::kCycler, "Cycler"},
};

}  // namespace

std::string_view type_name(const Value& value) {
  for (const TypeName& row : kTypeNames) {
    if (value.is(row.kind)) return row.name;
  }
  return value.as<ListObject>().type;
}

std::optional<std::size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.as<StringObject>().characters;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return value.as<ListObject>().items.size();
    case Kind::kDict:
      return value.as<DictObject>().entries.size();
    case Kind::kRange:
      return static_cast<std::size_t>(value.as<RangeObject>().size());
    default:
      return std::nullopt;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_integer() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    default:
      return length_of(value).value_or(1) != 0;
  }
}

bool hashable(const Value& value) {
  if (value.is(Kind::kTuple)) {
    const Values& items = value.as<ListObject>().items;
    return std::all_of(items.begin(), items.end(), hashable);
  }
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kView);
}

Status require_defined(const Value& value) {
  if (!value.is_undefined()) return {};
  if (!value.object()) return type_error("an undefined value is used");
  return type_error("{}", value.as<UndefinedObject>().reason);
}

Result<bool> equal(Runtime& rt, const Value& a, const Value& b) {
  DOPPLER_TRY(rt.spend(1));
  if (a.is_number() && b.is_number()) return !either_nan(a, b) && compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(rt, a.as<ListObject>().items, b.as<ListObject>().items);
    case Kind::kDict:
      return equal_dicts(rt, a.as<DictObject>(), b.as<DictObject>());
    case Kind::kRange: {
      const auto &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
      return x.size() == y.size() &&
             (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
    }
    default:
      return a.object() == b.object();
  }
}

Result<int> compare(Runtime& rt, const Value& a, const Value& b, std::string_view op) {
  DOPPLER_TRY(rt.spend(1));
  DOPPLER_TRY(require_defined(a));
  DOPPLER_TRY(require_defined(b));
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string())
    return a.text().compare(b.text());  // UTF-8 keeps the order of code points
  if (sequence(a) && a.kind() == b.kind()) {
    const Values &x = a.as<ListObject>().items, &y = b.as<ListObject>().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      DOPPLER_ASSIGN(const bool same, equal(rt, x[i], y[i]));
      if (!same) return compare(rt, x[i], y[i], op);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  return type_error("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

Result<bool> contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return type_error("'in <string>' requires string as left operand, not {}", type_name(item));
    }
    DOPPLER_TRY(rt.spend(container.text().size() / 64));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    if (!hashable(item)) return type_error("unhashable type: '{}'", type_name(item));
    return find_key(rt, container.as<DictObject>(), item) != nullptr;
  }
  auto items = iterate(rt, container);
  if (!items) {
    if (container.is_undefined()) return std::unexpected(items.error());
    return type_error("argument of type '{}' is not iterable", type_name(container));
  }
  for (const Value& candidate : **items) {
    DOPPLER_ASSIGN(const bool same, equal(rt, candidate, item));
    if (same) return true;
  }
  return false;
}

Result<bool> compare_with(Runtime& rt, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return equal(rt, a, b);
    case Operator::kIn:
      return contains(rt, b, a);
    case Operator::kNotEqual: {
      DOPPLER_ASSIGN(const bool same, equal(rt, a, b));
      return !same;
    }
    case Operator::kNotIn: {
      DOPPLER_ASSIGN(const bool found, contains(rt, b, a));
      return !found;
    }
    default:
      break;
  }
  DOPPLER_ASSIGN(const int order, compare(rt, a, b, operator_text(op)));
  if (a.is_number() && either_nan(a, b)) return false;
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Result<Value> arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b) {
  DOPPLER_TRY(require_defined(a));
  if (op == Operator::kModulo && a.is_string()) {
    DOPPLER_ASSIGN(std::string out, format_percent(rt, a.text(), b, is_markup(a)));
    return is_markup(a) ? rt.markup(std::move(out)) : rt.text(std::move(out));
  }
  DOPPLER_TRY(require_defined(b));
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return real_arithmetic(op, a.as_real(), b.as_real());
  if (op == Operator::kAdd) return add_objects(rt, a, b);
  if (op == Operator::kMultiply) {
    if ((a.is_string() || sequence(a)) && b.is_integral()) return repeat(rt, a, b.as_integer());
    if ((b.is_string() || sequence(b)) && a.is_integral()) return repeat(rt, b, a.as_integer());
    if (a.is_string() || sequence(a)) {
      return type_error("can't multiply sequence by non-int of type '{}'", type_name(b));
    }
    if (b.is_string() || sequence(b)) {
      return type_error("can't multiply sequence by non-int of type '{}'", type_name(a));
    }
  }
  return unsupported(op, a, b);
}

Result<Value> negate(Runtime&, const Value& value, bool plus) {
  DOPPLER_TRY(require_defined(value));
  if (value.is(Kind::kFloat)) return Value::real(plus ? value.as_real() : -value.as_real());
  if (value.is_integral()) {
    if (plus) return Value::integer(value.as_integer());
    return integer_arithmetic(Operator::kSubtract, 0, value.as_integer());
  }
  return type_error("bad operand type for unary {}: '{}'", plus ? '+' : '-', type_name(value));
}

Result<std::int64_t> to_index(const Value& value) {
  DOPPLER_TRY(require_defined(value));
  if (!value.is_integral()) {
    return type_error("'{}' object cannot be interpreted as an integer", type_name(value));
  }
  // Half the range: sums of two indices still fit.
  constexpr Integer kMost = std::numeric_limits<std::int64_t>::max() / 4;
  return static_cast<std::int64_t>(std::clamp(value.as_integer(), -kMost, kMost));
}

}  // namespace doppler::chat::jinja
