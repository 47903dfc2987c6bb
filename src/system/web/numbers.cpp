// The compiler's library has std::from_chars for whole numbers alone, and strtod, which here knows no locale
// but C's, accepts more.
#include "system/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

namespace doppler::system {
namespace {

const char* skip_digits(const char* at, const char* end) {
  return std::find_if(at, end, [](char c) { return c < '0' || c > '9'; });
}

// Where a number that begins here ends: [-] digits [. digits] [e [+-] digits], with a digit before or after
// the point; `begin` if there is none.
const char* number_end(const char* begin, const char* end) {
  const char* const whole = begin != end && *begin == '-' ? begin + 1 : begin;
  const char* at = skip_digits(whole, end);
  std::ptrdiff_t digits = at - whole;
  if (at != end && *at == '.') {
    const char* const after = skip_digits(at + 1, end);
    digits += after - (at + 1);
    at = after;
  }
  if (digits == 0) return begin;
  if (at == end || (*at != 'e' && *at != 'E')) return at;
  const char* const power = at + 1 != end && (at[1] == '-' || at[1] == '+') ? at + 2 : at + 1;
  const char* const last = skip_digits(power, end);
  return last == power ? at : last;
}

// The length of "inf", "infinity" or "nan" in any case, after a sign; 0: none of them.
std::size_t word_length(std::string_view text) {
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  for (const std::string_view word : {"infinity", "inf", "nan"}) {
    const std::string_view here = text.substr(sign, word.size());
    if (std::ranges::equal(here, word, {}, [](char c) { return static_cast<char>(c | 0x20); }))
      return sign + word.size();
  }
  return 0;
}

}  // namespace

std::from_chars_result read_double(const char* begin, const char* end, double& value) {
  const char* stop = number_end(begin, end);
  if (stop == begin) stop = begin + word_length({begin, end});
  if (stop == begin) return {begin, std::errc::invalid_argument};
  const std::string text(begin, stop);
  const double read = std::strtod(text.c_str(), nullptr);
  const std::size_t digit = text.find_first_of("123456789");
  const bool zero = digit == std::string::npos || digit > text.find_first_of("eE");
  const bool word = text.find_first_of("nN") != std::string::npos;
  // Beyond what a double holds, which std::from_chars says and leaves the value alone.
  if ((std::isinf(read) && !word) || (read == 0 && !zero)) return {stop, std::errc::result_out_of_range};
  value = read;
  return {stop, std::errc()};
}

}  // namespace doppler::system
