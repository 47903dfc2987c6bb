#include "chat/jinja/unicode.h"

#include <algorithm>

namespace doppler::chat::jinja {
namespace {

// Upper and lower case of one character can be several (ß is SS); to_upper and to_title map one to one, so
// the unconditional entries of Unicode's SpecialCasing that occur in running text are listed here.
struct SpecialCase {
  char32_t code;
  const char* upper;
  const char* title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0x00df, "SS", "Ss"},
    {0x0149, "\u02bcN", "\u02bcN"},
    {0x01f0, "J\u030c", "J\u030c"},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
    {0x1e96, "H\u0331", "H\u0331"},
    {0x1e97, "T\u0308", "T\u0308"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
};

const SpecialCase* special_case(char32_t code) {
  for (const SpecialCase& entry : kSpecialCases) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

void append_upper(std::string& out, char32_t code) {
  if (const SpecialCase* entry = special_case(code))
    out += entry->upper;
  else
    append_code_point(out, doppler::to_upper(code));
}

void append_title(std::string& out, char32_t code) {
  if (const SpecialCase* entry = special_case(code))
    out += entry->title;
  else
    append_code_point(out, doppler::to_title(code));
}

bool is_cased(char32_t code) {
  return is_upper(code) || is_lower(code) || is_title(code);
}

// Capital sigma is ς at the end of a word (Unicode's Final_Sigma), else σ.
void append_lower(std::string& out, const std::vector<char32_t>& codes, std::size_t i) {
  const char32_t code = codes[i];
  if (code == 0x03a3) {
    const auto ignorable = [](char32_t c) {
      const UnicodeCategory kind = category_of(c);
      return kind == UnicodeCategory::kMn || kind == UnicodeCategory::kMe || kind == UnicodeCategory::kCf ||
             kind == UnicodeCategory::kLm || kind == UnicodeCategory::kSk || c == '\'' || c == '.' ||
             c == ':' || c == 0xb7 || c == 0x2019;
    };
    std::size_t before = i;
    while (before > 0 && ignorable(codes[before - 1])) --before;
    std::size_t after = i + 1;
    while (after < codes.size() && ignorable(codes[after])) ++after;
    const bool final_sigma =
        before > 0 && is_cased(codes[before - 1]) && !(after < codes.size() && is_cased(codes[after]));
    out += final_sigma ? "\u03c2" : "\u03c3";
  } else {
    append_lowercase(out, code);
  }
}

}  // namespace

std::size_t byte_offset(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  while (at < text.size() && character > 0) {
    ++at;
    while (at < text.size() && is_utf8_continuation(text[at])) ++at;
    --character;
  }
  return at;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const CodePoint c = first_code_point(text.substr(at));
  at += c.length;
  return c.value;
}

void append_code_point(std::string& out, char32_t code) {
  // A surrogate is not a character of UTF-8.
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) code = 0xfffd;
  append_utf8(out, code);
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) codes.push_back(next_code_point(text, at));
  return codes;
}

bool is_space(char32_t code) {
  // Bidirectional types WS, B and S: white space, and the four separators of ASCII.
  return is_white_space(code) || (code >= 28 && code <= 31);
}

bool is_line_break(char32_t code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool is_decimal(char32_t code) {
  return category_of(code) == UnicodeCategory::kNd;
}

bool is_digit(char32_t code) {
  // Beyond decimals: superscripts, subscripts and circled digits.
  return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247c) ||
         (code >= 0x2488 && code <= 0x2490);
}

bool is_upper(char32_t code) {
  return category_of(code) == UnicodeCategory::kLu;
}
bool is_lower(char32_t code) {
  return category_of(code) == UnicodeCategory::kLl || code == 0xaa || code == 0xba;
}
bool is_title(char32_t code) {
  return category_of(code) == UnicodeCategory::kLt;
}

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  switch (category_of(code)) {
    case UnicodeCategory::kCc:
    case UnicodeCategory::kCf:
    case UnicodeCategory::kCs:
    case UnicodeCategory::kCo:
    case UnicodeCategory::kCn:
    case UnicodeCategory::kZl:
    case UnicodeCategory::kZp:
    case UnicodeCategory::kZs:
      return false;
    default:
      return true;
  }
}

bool is_word(char32_t code) {
  return code == '_' || is_letter(code) || is_numeric(code);
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  const auto codes = code_points(text);
  for (std::size_t i = 0; i < codes.size(); ++i) append_lower(out, codes, i);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  const auto codes = code_points(text);
  bool after_cased = false;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (after_cased)
      append_lower(out, codes, i);
    else
      append_title(out, codes[i]);
    after_cased = is_cased(codes[i]);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  const auto codes = code_points(text);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (i == 0)
      append_title(out, codes[i]);
    else
      append_lower(out, codes, i);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const auto codes = code_points(text);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (is_upper(codes[i]))
      append_lower(out, codes, i);
    else if (is_lower(codes[i]))
      append_upper(out, codes[i]);
    else
      append_code_point(out, codes[i]);
  }
  return out;
}

std::string_view strip(std::string_view text, const std::string_view* set, bool left, bool right) {
  std::vector<char32_t> chosen;
  if (set != nullptr) {
    chosen = code_points(*set);
    std::sort(chosen.begin(), chosen.end());
  }
  const auto goes = [&](char32_t code) {
    return set == nullptr ? is_space(code) : std::binary_search(chosen.begin(), chosen.end(), code);
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    std::size_t at = begin;
    if (!goes(next_code_point(text, at))) break;
    begin = at;
  }
  while (right && end > begin) {
    std::size_t at = end - 1;
    while (at > begin && is_utf8_continuation(text[at])) --at;
    std::size_t after = at;
    if (!goes(next_code_point(text, after))) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

}  // namespace doppler::chat::jinja
