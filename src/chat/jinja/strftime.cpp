#include "chat/jinja/strftime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace doppler::chat::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

template <std::size_t N>
std::string_view name_at(const std::array<std::string_view, N>& names, int i) {
  return i >= 0 && static_cast<std::size_t>(i) < N ? names[static_cast<std::size_t>(i)] : "?";
}

struct IsoWeek {
  int year, week;
};

// ISO 8601: weeks begin on Monday, and the first one holds January 4.
IsoWeek iso_week(const std::tm& t) {
  const auto weeks = [&](int y) {  // 53 if January 1 is a Thursday, or a Wednesday in a leap year
    const int p = (y + y / 4 - y / 100 + y / 400) % 7;
    const int before = (y - 1 + (y - 1) / 4 - (y - 1) / 100 + (y - 1) / 400) % 7;
    return p == 4 || before == 3 ? 53 : 52;
  };
  const int year = t.tm_year + 1900;
  const int weekday = (t.tm_wday + 6) % 7 + 1;
  const int week = (t.tm_yday + 1 - weekday + 10) / 7;
  if (week < 1) return {year - 1, weeks(year - 1)};
  if (week > weeks(year)) return {year + 1, 1};
  return {year, week};
}

int hour12(const std::tm& t) {
  return t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
}

// Codes that are numbers: value, width and the usual filling.
struct NumberCode {
  char code;
  int width;
  char fill;
  int (*value)(const std::tm&);
};
constexpr NumberCode kNumbers[] = {
    {'d', 2, '0', [](const std::tm& t) { return t.tm_mday; }},
    {'e', 2, ' ', [](const std::tm& t) { return t.tm_mday; }},
    {'m', 2, '0', [](const std::tm& t) { return t.tm_mon + 1; }},
    {'Y', 1, '0', [](const std::tm& t) { return t.tm_year + 1900; }},
    {'y', 2, '0', [](const std::tm& t) { return (t.tm_year + 1900) % 100; }},
    {'C', 2, '0', [](const std::tm& t) { return (t.tm_year + 1900) / 100; }},
    {'H', 2, '0', [](const std::tm& t) { return t.tm_hour; }},
    {'k', 2, ' ', [](const std::tm& t) { return t.tm_hour; }},
    {'I', 2, '0', hour12},
    {'l', 2, ' ', hour12},
    {'M', 2, '0', [](const std::tm& t) { return t.tm_min; }},
    {'S', 2, '0', [](const std::tm& t) { return t.tm_sec; }},
    {'f', 6, '0', [](const std::tm&) { return 0; }},
    {'j', 3, '0', [](const std::tm& t) { return t.tm_yday + 1; }},
    {'u', 1, '0', [](const std::tm& t) { return t.tm_wday == 0 ? 7 : t.tm_wday; }},
    {'w', 1, '0', [](const std::tm& t) { return t.tm_wday; }},
    {'U', 2, '0', [](const std::tm& t) { return (t.tm_yday + 7 - t.tm_wday) / 7; }},
    {'W', 2, '0', [](const std::tm& t) { return (t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7; }},
    {'V', 2, '0', [](const std::tm& t) { return iso_week(t).week; }},
    {'G', 1, '0', [](const std::tm& t) { return iso_week(t).year; }},
    {'g', 2, '0', [](const std::tm& t) { return iso_week(t).year % 100; }},
};

// Codes that stand for other formats.
struct Composite {
  char code;
  std::string_view format;
};
constexpr Composite kComposites[] = {{'c', "%a %b %e %H:%M:%S %Y"},
                                     {'D', "%m/%d/%y"},
                                     {'F', "%Y-%m-%d"},
                                     {'r', "%I:%M:%S %p"},
                                     {'R', "%H:%M"},
                                     {'T', "%H:%M:%S"},
                                     {'x', "%m/%d/%y"},
                                     {'X', "%H:%M:%S"},
                                     {'n', "\n"},
                                     {'t', "\t"},
                                     {'z', ""},
                                     {'Z', ""}};

std::string text_code(char code, const std::tm& t) {
  switch (code) {
    case 'a':
      return std::string(name_at(kDays, t.tm_wday).substr(0, 3));
    case 'A':
      return std::string(name_at(kDays, t.tm_wday));
    case 'b':
    case 'h':
      return std::string(name_at(kMonths, t.tm_mon).substr(0, 3));
    case 'B':
      return std::string(name_at(kMonths, t.tm_mon));
    case 'p':
      return t.tm_hour < 12 ? "AM" : "PM";
    case 'P':
      return t.tm_hour < 12 ? "am" : "pm";
    case '%':
      return "%";
    default:
      return {};
  }
}

std::string one_code(char flag, char code, const std::tm& time) {
  for (const NumberCode& row : kNumbers) {
    if (row.code != code) continue;
    const std::string digits = fmt::to_string(row.value(time));
    const char fill = flag == '_' ? ' ' : flag == '0' ? '0' : row.fill;
    const std::size_t width = flag == '-' ? 0 : static_cast<std::size_t>(row.width);
    return std::string(width > digits.size() ? width - digits.size() : 0, fill) + digits;
  }
  for (const Composite& row : kComposites) {
    if (row.code == code) return format_time(row.format, time);
  }
  std::string text = text_code(code, time);
  if (text.empty()) return std::string("%") + (flag != 0 ? std::string(1, flag) : "") + code;
  if (flag == '^')
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

}  // namespace

std::string format_time(std::string_view format, const std::tm& time) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const std::string_view flags = "-_0^";
    const bool flagged = flags.find(format[i + 1]) != std::string_view::npos && i + 2 < format.size();
    const char flag = flagged ? format[++i] : '\0';
    out += one_code(flag, format[++i], time);
  }
  return out;
}

}  // namespace doppler::chat::jinja
