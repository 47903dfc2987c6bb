// Unicode for tokenizers and chat templates: code points in UTF-8, categories, case, normalisation forms. The
// data are those of the Unicode Character Database as utf8proc ships it; no other file uses that library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace doppler {

struct CodePoint {
  char32_t value = 0;
  std::size_t length = 1;  // bytes in UTF-8
};
// The code point at the start of `text`, which is not empty; an invalid byte reads as U+FFFD of length 1.
CodePoint first_code_point(std::string_view text);
CodePoint last_code_point(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);
// Whether a byte continues a character of UTF-8 instead of beginning one.
constexpr bool is_utf8_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}
// Of valid UTF-8.
std::size_t count_code_points(std::string_view text);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
// `bytes` itself if it is valid UTF-8, else with U+FFFD for every maximal invalid part.
std::string to_valid_utf8(std::string&& bytes);

// General_Category, by Unicode's own abbreviations: letters, marks, numbers, punctuation, symbols,
// separators, others. In utf8proc's order.
enum class UnicodeCategory : std::uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo
};
UnicodeCategory category_of(char32_t c);
bool is_letter(char32_t c);       // category L
bool is_mark(char32_t c);         // category M
bool is_numeric(char32_t c);      // category N
bool is_white_space(char32_t c);  // property White_Space

// Simple case mappings: one character to one.
char32_t to_upper(char32_t c);
char32_t to_title(char32_t c);
void append_lowercase(std::string& out, char32_t c);  // full, context-free lower case

// The length of the grapheme cluster (UAX 29, extended) at the start of `text`, which is not empty.
std::size_t grapheme_length(std::string_view text);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
// O(n log n) also for long runs of combining marks. `text` is valid UTF-8.
Result<std::string> normalize_unicode(std::string_view text, UnicodeForm form);

}  // namespace doppler
