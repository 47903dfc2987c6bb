#include "chat/jinja/text_methods.h"

#include <algorithm>
#include <limits>

#include "chat/jinja/unicode.h"
#include "system/numbers.h"

namespace doppler::chat::jinja {

Result<Value> replace_text(Runtime& rt, std::string_view text, std::string_view from, std::string_view to,
                           std::int64_t count) {
  if (count < 0) count = std::numeric_limits<std::int64_t>::max();
  std::string out;
  std::size_t at = 0;
  DOPPLER_TRY(rt.spend(text.size() / 64));
  if (from.empty()) {
    while (count-- > 0) {
      out += to;
      DOPPLER_TRY(Runtime::check_text_size(out.size()));
      if (at >= text.size()) return rt.text(std::move(out));
      const std::size_t begin = at;
      next_code_point(text, at);
      out.append(text, begin, at - begin);
    }
    return rt.text(out + std::string(text.substr(at)));
  }
  while (count-- > 0) {
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found - at);
    out += to;
    DOPPLER_TRY(Runtime::check_text_size(out.size()));
    at = found + from.size();
  }
  out += text.substr(at);
  return rt.text(std::move(out));
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t code = next_code_point(text, at);
    if (!is_line_break(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Result<Value> pad_text(Runtime& rt, std::string_view text, std::int64_t width, std::string_view fill,
                       Alignment alignment) {
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  if (width <= size) return rt.text(std::string(text));
  const std::int64_t missing = width - size;
  DOPPLER_TRY(Runtime::check_text_size(static_cast<std::uint64_t>(missing) * fill.size() + text.size()));
  std::int64_t before = 0;
  if (alignment == Alignment::kRight) before = missing;
  // As CPython rounds: the odd one goes left if the width is odd too.
  if (alignment == Alignment::kCenter) before = missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (std::int64_t i = before; i < missing; ++i) out += fill;
  return rt.text(std::move(out));
}

std::optional<Integer> parse_integer(std::string_view text, int base) {
  text = strip(text, nullptr, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefixed = [&](char letter) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
  };
  if ((base == 16 || base == 0) && prefixed('x')) {
    base = 16;
    text.remove_prefix(2);
  } else if ((base == 8 || base == 0) && prefixed('o')) {
    base = 8;
    text.remove_prefix(2);
  } else if ((base == 2 || base == 0) && prefixed('b')) {
    base = 2;
    text.remove_prefix(2);
  }
  if (base == 0) base = 10;
  Integer value = 0;
  bool digit = false;
  for (const char c : text) {
    if (c == '_' && digit) {
      digit = false;
      continue;
    }
    int d = 99;
    if (c >= '0' && c <= '9')
      d = c - '0';
    else if (c >= 'a' && c <= 'z')
      d = c - 'a' + 10;
    else if (c >= 'A' && c <= 'Z')
      d = c - 'A' + 10;
    if (d >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Integer>(d), &value)) {
      return std::nullopt;
    }
    digit = true;
  }
  if (!digit) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip(text, nullptr, true, true);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t k) { return k < text.size() && text[k] >= '0' && text[k] <= '9'; };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    digits += text[i];
  }
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest.starts_with('+') || (rest.starts_with('-') && digits.starts_with('+')))
    return std::nullopt;
  double value = 0;
  const auto result = system::read_double(rest.data(), rest.data() + rest.size(), value);
  if (result.ptr != rest.data() + rest.size() || rest.find('(') != std::string_view::npos)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(std::string(rest).c_str(), nullptr);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace doppler::chat::jinja
