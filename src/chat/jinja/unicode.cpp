#include "chat/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace doppler::chat::jinja {
namespace {

bool continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

utf8proc_category_t category(std::uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// Upper and lower case of one character can be several (ß is SS); utf8proc maps one to one, so the
// unconditional entries of Unicode's SpecialCasing that occur in running text are listed here.
struct SpecialCase {
  std::uint32_t code;
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

const SpecialCase* special_case(std::uint32_t code) {
  for (const SpecialCase& entry : kSpecialCases) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

void append_upper(std::string& out, std::uint32_t code) {
  if (const SpecialCase* entry = special_case(code))
    out += entry->upper;
  else
    append_code_point(out, static_cast<std::uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}

void append_title(std::string& out, std::uint32_t code) {
  if (const SpecialCase* entry = special_case(code))
    out += entry->title;
  else
    append_code_point(out, static_cast<std::uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
}

bool is_cased(std::uint32_t code) {
  return is_upper(code) || is_lower(code) || is_title(code);
}

// Capital sigma is ς at the end of a word (Unicode's Final_Sigma), else σ.
void append_lower(std::string& out, const std::vector<std::uint32_t>& codes, std::size_t i) {
  const std::uint32_t code = codes[i];
  if (code == 0x0130) {  // İ
    out += "i\u0307";
  } else if (code == 0x03a3) {
    const auto ignorable = [](std::uint32_t c) {
      const auto kind = category(c);
      return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
             kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
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
    append_code_point(out, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

}  // namespace

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continuation(c); }));
}

std::size_t byte_offset(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  while (at < text.size() && character > 0) {
    ++at;
    while (at < text.size() && continuation(text[at])) ++at;
    --character;
  }
  return at;
}

std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  utf8proc_int32_t code = 0xfffd;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  at += length > 0 ? static_cast<std::size_t>(length) : 1;
  return length > 0 ? static_cast<std::uint32_t>(code) : 0xfffdu;
}

void append_code_point(std::string& out, std::uint32_t code) {
  // A surrogate is not a character of UTF-8.
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) code = 0xfffd;
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
}

std::vector<std::uint32_t> code_points(std::string_view text) {
  std::vector<std::uint32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) codes.push_back(next_code_point(text, at));
  return codes;
}

bool is_space(std::uint32_t code) {
  // The characters of bidirectional type WS, B or S, or of category Zs.
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_line_break(std::uint32_t code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool is_alphabetic(std::uint32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(std::uint32_t code) {
  // Beyond decimals: superscripts, subscripts and circled digits.
  return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247c) ||
         (code >= 0x2488 && code <= 0x2490);
}

bool is_numeric(std::uint32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || code == 0xaa || code == 0xba;
}
bool is_title(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(std::uint32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_word(std::uint32_t code) {
  return code == '_' || is_alphabetic(code) || is_numeric(code);
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
  std::vector<std::uint32_t> chosen;
  if (set != nullptr) {
    chosen = code_points(*set);
    std::sort(chosen.begin(), chosen.end());
  }
  const auto goes = [&](std::uint32_t code) {
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
    while (at > begin && continuation(text[at])) --at;
    std::size_t after = at;
    if (!goes(next_code_point(text, after))) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

}  // namespace doppler::chat::jinja
