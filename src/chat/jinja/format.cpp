#include "chat/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_form.h"
#include "chat/jinja/text_methods.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

// Wider fields or more digits than any template asks for.
constexpr std::int64_t kMaxFieldWidth = 10'000;
constexpr int kMaxPrecision = 300;
// The largest Integer. The lowest lies one beyond its negative and has no positive counterpart.
constexpr Integer kMostInteger = ((static_cast<Integer>(1) << 126) - 1) * 2 + 1;

// One conversion: %-08.3f, or {:<8.3f}.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '\0';   // + or space
  bool alternate = false;
  bool zero = false;
  char grouping = '\0';
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = '\0';
};

std::string printf_real(double value, int precision, char type, bool alternate) {
  char format[8] = {'%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type,
                    alternate ? type : '\0'};
  const int needed = std::snprintf(nullptr, 0, format, precision, value);
  std::string out(static_cast<std::size_t>(std::max(needed, 0)) + 1, '\0');
  std::snprintf(out.data(), out.size(), format, precision, value);
  out.pop_back();
  return out;
}

std::string in_base(Integer value, int base, bool upper) {
  if (value == 0) return "0";
  const std::string_view shapes = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  while (value > 0) {
    const Integer rest = value / base;
    digits += shapes[static_cast<std::size_t>(value - rest * base)];
    value = rest;
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

void group_digits(std::string& digits, char separator) {
  const std::size_t point = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = point; at > 3;) {
    at -= 3;
    digits.insert(at, 1, separator);
  }
}

// Sign, digits and filling put together; numbers go right unless told otherwise.
Result<std::string> laid_out(const Spec& spec, std::string sign, const std::string& body, bool number) {
  const auto size = static_cast<std::int64_t>(sign.size() + count_code_points(body));
  if (spec.width > kMaxFieldWidth) {
    return fail(ErrorCode::kLimit, "a format's width of {} is too large", spec.width);
  }
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - size);
  char align = spec.align;
  std::string fill = spec.fill;
  if (align == '\0') align = number ? (spec.zero ? '=' : '>') : '<';
  if (spec.zero && spec.align == '\0') fill = "0";
  const std::int64_t before = align == '^' ? missing / 2 : align == '<' ? 0 : missing;
  std::string left, right;
  for (std::int64_t i = 0; i < before; ++i) left += fill;
  for (std::int64_t i = before; i < missing; ++i) right += fill;
  if (align == '=') return sign + left + body;
  return left + sign + body + right;
}

std::string sign_text(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign != '\0' ? std::string(1, spec.sign) : "";
}

Result<std::string> format_integer(const Spec& spec, Integer value, char type) {
  const bool negative = value < 0;
  if (negative && value + 1 == -kMostInteger)
    return fail(ErrorCode::kLimit, "an integer grows beyond 127 bits");
  const Integer magnitude = negative ? -value : value;
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits = in_base(magnitude, base, type == 'X');
  if (spec.precision > kMaxPrecision) return fail(ErrorCode::kLimit, "a format's precision is too large");
  if (spec.precision > static_cast<std::int64_t>(digits.size())) {
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.grouping != '\0') group_digits(digits, spec.grouping);
  std::string sign = sign_text(spec, negative);
  if (spec.alternate && base != 10) sign += std::string("0") + type;
  return laid_out(spec, std::move(sign), digits, true);
}

Result<std::string> format_real(const Spec& spec, double value, char type) {
  if (spec.precision > kMaxPrecision) return fail(ErrorCode::kLimit, "a format's precision is too large");
  const bool percent = type == '%';
  if (percent) value *= 100;
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') digits = to_upper(digits);
  } else {
    digits = printf_real(std::fabs(value), precision, percent ? 'f' : type, spec.alternate);
  }
  if (spec.grouping != '\0') group_digits(digits, spec.grouping);
  if (percent) digits += '%';
  return laid_out(spec, sign_text(spec, negative), digits, true);
}

Result<std::string> format_string(const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<std::size_t>(spec.precision)));
  return laid_out(spec, "", std::string(text), false);
}

// "text %s": reads one format string against its values.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, std::string_view format, const Value& values, bool escape)
      : rt_(rt), format_(format), values_(values), escape_(escape) {}

  Result<std::string> run() {
    std::string out;
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      out += format_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ == format_.size()) break;
      ++at_;
      DOPPLER_ASSIGN(const std::string part, conversion());
      out += part;
      DOPPLER_TRY(Runtime::check_text_size(out.size()));
    }
    const bool all_used = values_.is(Kind::kTuple)
                              ? used_ >= values_.as<ListObject>().items.size()
                              : used_ > 0 || values_.is(Kind::kDict) || values_.is(Kind::kList);
    if (!all_used) return type_error("not all arguments converted during string formatting");
    return out;
  }

 private:
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  Result<Value> next_value() {
    if (values_.is(Kind::kTuple)) {
      const Values& items = values_.as<ListObject>().items;
      if (used_ >= items.size()) return type_error("not enough arguments for format string");
      return items[used_++];
    }
    if (used_++ > 0) return type_error("not enough arguments for format string");
    return values_;
  }

  Result<std::int64_t> number() {
    if (peek() == '*') {
      ++at_;
      DOPPLER_ASSIGN(const Value value, next_value());
      if (!value.is_integral()) return type_error("* wants int");
      return to_index(value);
    }
    std::int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      n = std::min<std::int64_t>(n * 10 + (peek() - '0'), kMaxFieldWidth + 1);
    return n;
  }

  Result<std::string> conversion() {
    Spec spec;
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) return type_error("incomplete format key");
      if (!values_.is(Kind::kDict)) return type_error("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
      const Value* found = values_.as<DictObject>().find(key);
      if (found == nullptr) return type_error("{}", quoted_text(key));
      named = *found;
      at_ = close + 1;
    }
    for (bool more = true; more; at_ += more ? 1 : 0) {
      switch (peek()) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          spec.sign = spec.sign == '+' ? '+' : ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          spec.zero = true;
          break;
        default:
          more = false;
      }
    }
    DOPPLER_ASSIGN(spec.width, number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      DOPPLER_ASSIGN(spec.precision, number());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    if (at_ >= format_.size()) return type_error("incomplete format");
    const char type = format_[at_++];
    if (type == '%') return std::string("%");
    Value value;
    if (named) {
      value = *named;
    } else {
      DOPPLER_ASSIGN(value, next_value());
    }
    return convert(spec, type, value);
  }

  Result<std::string> convert(Spec spec, char type, const Value& value) {
    const bool integer = type == 'd' || type == 'i' || type == 'u';
    const bool based = type == 'x' || type == 'X' || type == 'o';
    if (type == 's' || type == 'r' || type == 'a') {
      DOPPLER_ASSIGN(std::string text, type == 's' ? to_text(rt_, value) : to_repr(rt_, value));
      if (escape_ && !(type == 's' && is_markup(value))) text = escape_html(text);
      if (spec.align == '\0') spec.align = '>';
      return format_string(spec, text);
    }
    if (type == 'c') {
      std::string text;
      if (value.is_string() && value.as<StringObject>().characters == 1)
        text = value.text();
      else if (value.is_integral())
        append_code_point(text, static_cast<char32_t>(value.as_integer()));
      else
        return type_error("%c requires int or char");
      if (spec.align == '\0') spec.align = '>';
      return format_string(spec, text);
    }
    if (integer || based) {
      if (value.is_integral()) return format_integer(spec, value.as_integer(), type);
      if (integer && value.is(Kind::kFloat) && std::fabs(value.as_real()) < 1e38) {
        return format_integer(spec, static_cast<Integer>(value.as_real()), type);
      }
      return based ? type_error("%{} format: an integer is required, not {}", type, type_name(value))
                   : type_error("%{} format: a real number is required, not {}", type, type_name(value));
    }
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      DOPPLER_TRY(require_defined(value));
      if (!value.is_number()) return type_error("must be real number, not {}", type_name(value));
      return format_real(spec, value.as_real(), type);
    }
    return type_error("unsupported format character '{}' (0x{:x}) at index {}", type,
                      static_cast<int>(static_cast<unsigned char>(type)), at_ - 1);
  }

  Runtime& rt_;
  std::string_view format_;
  const Value& values_;
  bool escape_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
};

// The part behind the colon of a replacement field.
Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    std::size_t after = 0;
    next_code_point(text, after);
    if (after < text.size() && is_align(text[after])) {
      spec.fill = std::string(text.substr(0, after));
      spec.align = text[after];
      at = after + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto digits = [&] {
    std::int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at)
      n = std::min<std::int64_t>(n * 10 + (peek() - '0'), kMaxFieldWidth + 1);
    return n;
  };
  if (peek() == '+' || peek() == ' ' || peek() == '-') {
    if (peek() != '-') spec.sign = peek();
    ++at;
  }
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    spec.zero = spec.align == '\0';
    ++at;
  }
  spec.width = digits();
  if (peek() == ',' || peek() == '_') spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    spec.precision = digits();
  }
  if (peek() != '\0') spec.type = text[at++];
  if (at != text.size()) return type_error("Invalid format specifier");
  return spec;
}

Result<std::string> format_value(Runtime& rt, const Value& value, std::string_view spec_text) {
  DOPPLER_ASSIGN(const Spec spec, parse_spec(spec_text));
  const bool real_type =
      spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  const bool integer_type =
      spec.type != '\0' && std::string_view("dxXobn").find(spec.type) != std::string_view::npos;
  if (value.is_number() && real_type) return format_real(spec, value.as_real(), spec.type);
  if (value.is(Kind::kInt) && (spec.type == '\0' || integer_type)) {
    return format_integer(spec, value.as_integer(), spec.type == '\0' ? 'd' : spec.type);
  }
  if (value.is(Kind::kBool) && integer_type) return format_integer(spec, value.as_integer(), spec.type);
  if (value.is(Kind::kFloat) && spec.type == '\0') {
    if (spec.precision >= 0) return format_real(spec, value.as_real(), 'g');
    const bool negative = std::signbit(value.as_real());
    std::string digits = float_text(std::fabs(value.as_real()));
    if (spec.grouping != '\0') group_digits(digits, spec.grouping);
    return laid_out(spec, sign_text(spec, negative), digits, true);
  }
  DOPPLER_ASSIGN(const std::string text, to_text(rt, value));
  if (spec_text.empty()) return text;
  if (!value.is_string() && !value.is(Kind::kBool)) {
    return type_error("unsupported format string passed to {}.__format__", type_name(value));
  }
  if (spec.type != '\0' && spec.type != 's') {
    return type_error("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  }
  return format_string(spec, text);
}

// "text {}": reads one format string against the arguments of str.format.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, std::string_view format, const Arguments& arguments, bool escape)
      : rt_(rt), format_(format), arguments_(arguments), escape_(escape) {}

  Result<std::string> run() {
    std::string out;
    for (std::size_t at = 0; at < format_.size();) {
      const char c = format_[at];
      const bool doubled = at + 1 < format_.size() && format_[at + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        at += 2;
      } else if (c == '}') {
        return type_error("Single '}}' encountered in format string");
      } else if (c == '{') {
        const std::size_t close = matching_brace(at);
        if (close == std::string_view::npos) return type_error("expected '}}' before end of string");
        DOPPLER_ASSIGN(const std::string part, field(format_.substr(at + 1, close - at - 1)));
        out += part;
        at = close + 1;
      } else {
        out += c;
        ++at;
      }
      DOPPLER_TRY(Runtime::check_text_size(out.size()));
    }
    return out;
  }

 private:
  std::size_t matching_brace(std::size_t open) const {
    int depth = 0;
    for (std::size_t at = open; at < format_.size(); ++at) {
      if (format_[at] == '{') ++depth;
      if (format_[at] == '}' && --depth == 0) return at;
    }
    return std::string_view::npos;
  }

  Result<Value> positional(std::size_t i) {
    if (i >= arguments_.positional.size()) {
      return type_error("Replacement index {} out of range for positional args tuple", i);
    }
    return arguments_.positional[i];
  }

  // name, 0, name.attribute, name[key] and so on.
  Result<Value> lookup(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view head = path.substr(0, end);
    Value value;
    const auto index = parse_integer(head, 10);
    const bool numbered = index && head[0] >= '0' && head[0] <= '9';
    if (numbered || head.empty()) {
      if ((head.empty() && manual_) || (numbered && next_ > 0)) {
        return type_error("cannot switch from manual field specification to automatic field numbering");
      }
      manual_ = numbered;
    }
    if (head.empty()) {
      DOPPLER_ASSIGN(value, positional(next_++));
    } else if (numbered) {
      DOPPLER_ASSIGN(value, positional(static_cast<std::size_t>(std::min<Integer>(*index, 1 << 30))));
    } else {
      const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                      [&](const auto& argument) { return argument.first == head; });
      if (found == arguments_.named.end()) return type_error("{}", quoted_text(head));
      value = found->second;
    }
    for (std::size_t at = end; at < path.size();) {
      if (path[at] == '.') {
        const std::size_t stop = std::min(path.find_first_of(".[", at + 1), path.size());
        DOPPLER_ASSIGN(value, get_attribute(rt_, value, path.substr(at + 1, stop - at - 1)));
        at = stop;
      } else {
        const std::size_t stop = path.find(']', at);
        if (path[at] != '[' || stop == std::string_view::npos)
          return type_error("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, stop - at - 1);
        const auto element = parse_integer(key, 10);
        DOPPLER_ASSIGN(value,
                       get_item(rt_, value, element ? Value::integer(*element) : rt_.text(std::string(key))));
        at = stop + 1;
      }
      DOPPLER_TRY(require_defined(value));
    }
    return value;
  }

  Result<std::string> field(std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    std::string_view path = text.substr(0, colon);
    char conversion = '\0';
    if (path.size() >= 2 && path[path.size() - 2] == '!') {
      conversion = path.back();
      path.remove_suffix(2);
    }
    DOPPLER_ASSIGN(Value value, lookup(path));
    std::string spec(text.substr(std::min(colon + 1, text.size())));
    while (spec.find('{') != std::string::npos) {  // fields inside the spec: no deeper, as in Python
      const std::size_t open = spec.find('{'), close = spec.find('}', open);
      if (close == std::string::npos) return type_error("expected '}}' before end of string");
      DOPPLER_ASSIGN(const Value inner, lookup(std::string_view(spec).substr(open + 1, close - open - 1)));
      DOPPLER_ASSIGN(const std::string shown, to_text(rt_, inner));
      if (shown.find('{') != std::string::npos) return type_error("Invalid format specifier");
      spec.replace(open, close - open + 1, shown);
    }
    if (conversion != '\0') {
      DOPPLER_ASSIGN(std::string shown, conversion == 's' ? to_text(rt_, value) : to_repr(rt_, value));
      value = rt_.text(std::move(shown));
    }
    DOPPLER_ASSIGN(std::string out, format_value(rt_, value, spec));
    return escape_ && !is_markup(value) ? escape_html(out) : out;
  }

  Runtime& rt_;
  std::string_view format_;
  const Arguments& arguments_;
  bool escape_;
  std::size_t next_ = 0;
  bool manual_ = false;  // the fields carry numbers
};

}  // namespace

std::string fixed_text(double value, int precision) {
  return printf_real(value, precision, 'f', false);
}

Result<std::string> format_percent(Runtime& rt, std::string_view format, const Value& values, bool escape) {
  return PercentFormatter(rt, format, values, escape).run();
}

Result<std::string> format_braces(Runtime& rt, std::string_view format, const Arguments& arguments,
                                  bool escape) {
  return BraceFormatter(rt, format, arguments, escape).run();
}

}  // namespace doppler::chat::jinja
