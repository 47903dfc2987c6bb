// Filters on numbers.
#include <cmath>
#include <cstdlib>

#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/text_methods.h"

namespace doppler::chat::jinja {
namespace {

// Doubles beyond this have no 128-bit integer.
constexpr double kIntegerRange = 1.7e38;

std::optional<Integer> truncated(double value) {
  if (!(std::fabs(value) < kIntegerRange)) return std::nullopt;
  return static_cast<Integer>(value);
}

Result<Value> filter_int(Call& call) {
  const Value otherwise = argument_or(call, 0, Value::integer(0));
  DOPPLER_ASSIGN(const std::int64_t base, index_argument(call, 1, 10));
  if (call.self.is_undefined()) DOPPLER_TRY(require_defined(call.self));
  if (call.self.is_integral()) return Value::integer(call.self.as_integer());
  std::optional<double> real;
  if (call.self.is(Kind::kFloat)) real = call.self.as_real();
  if (call.self.is_string()) {
    const bool usable = base == 0 || (base >= 2 && base <= 36);
    if (const auto value = usable ? parse_integer(call.self.text(), static_cast<int>(base)) : std::nullopt) {
      return Value::integer(*value);
    }
    real = parse_real(call.self.text());
  }
  const auto value = real ? truncated(*real) : std::nullopt;
  return value ? Value::integer(*value) : otherwise;
}

Result<Value> filter_float(Call& call) {
  const Value otherwise = argument_or(call, 0, Value::real(0));
  if (call.self.is_undefined()) DOPPLER_TRY(require_defined(call.self));
  if (call.self.is_number()) return Value::real(call.self.as_real());
  const auto value = call.self.is_string() ? parse_real(call.self.text()) : std::nullopt;
  return value ? Value::real(*value) : otherwise;
}

Result<Value> filter_abs(Call& call) {
  if (call.self.is(Kind::kFloat)) return Value::real(std::fabs(call.self.as_real()));
  if (!call.self.is_integral()) return type_error("bad operand type for abs(): '{}'", type_name(call.self));
  if (call.self.as_integer() < 0) return negate(call.rt, call.self, false);
  return Value::integer(call.self.as_integer());
}

// Python's round: to even among exact decimal values.
Result<Value> round_common(const Value& value, std::int64_t precision) {
  if (value.is_integral()) {
    if (precision >= 0) return Value::integer(value.as_integer());
    if (precision < -38) return Value::integer(0);
    Integer unit = 1;
    for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
    const Integer n = value.as_integer();
    constexpr Integer kMost = static_cast<Integer>(1) << 126;  // rounding away from zero still fits
    if (n > kMost || n < -kMost) return fail(ErrorCode::kLimit, "an integer grows beyond 126 bits");
    Integer low = n / unit * unit;
    if (low > n) low -= unit;
    const Integer rest = n - low;
    const bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
    return Value::integer(up ? low + unit : low);
  }
  const double real = value.as_real();
  if (!std::isfinite(real) || precision > 308) return value;
  if (precision < -308) return Value::real(std::copysign(0.0, real));
  if (precision >= 0)
    return Value::real(std::strtod(fixed_text(real, static_cast<int>(precision)).c_str(), nullptr));
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return Value::real(std::nearbyint(real / unit) * unit);
}

Result<Value> filter_round(Call& call) {
  DOPPLER_TRY(require_defined(call.self));
  DOPPLER_ASSIGN(const std::int64_t precision, index_argument(call, 0, 0));
  DOPPLER_ASSIGN(const std::string method, text_argument(call, 1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return type_error("method must be common, ceil or floor");
  }
  if (!call.self.is_number()) {
    return type_error("type {} doesn't define __round__ method", type_name(call.self));
  }
  if (method == "common") return round_common(call.self, precision);
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.self.as_real() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr Builtin kNumberFilters[] = {
    {"int", "default? base?", filter_int},
    {"float", "default?", filter_float},
    {"abs", "", filter_abs},
    {"round", "precision? method?", filter_round},
};

}  // namespace

std::span<const Builtin> number_filters() {
  return kNumberFilters;
}

}  // namespace doppler::chat::jinja
