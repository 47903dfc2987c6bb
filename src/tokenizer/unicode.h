// The Unicode facts tokenizers rest on: code points, character classes, normalisation forms.
// Classes follow the Unicode Character Database as utf8proc ships it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace doppler::tokenizer {

struct CodePoint {
  char32_t value = 0;
  std::size_t length = 1;  // bytes in UTF-8
};

// The code point at the start of `text`, which is not empty; an invalid byte reads as U+FFFD of length 1.
CodePoint first_code_point(std::string_view text);
CodePoint last_code_point(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
// `bytes` itself if it is valid UTF-8, else with U+FFFD for every maximal invalid part.
std::string to_valid_utf8(std::string&& bytes);

bool is_white_space(char32_t c);      // property White_Space
bool is_mark(char32_t c);             // category M
bool is_nonspacing_mark(char32_t c);  // category Mn
bool is_numeric(char32_t c);          // category N
bool is_punctuation(char32_t c);      // category P, and all of ASCII's punctuation (P and S)
bool is_other(char32_t c);            // control, format, private use
bool is_word(char32_t c);             // what \w means: letters, marks, decimal digits, connectors, joiners
bool is_chinese(char32_t c);          // the ideograph blocks that BERT surrounds with spaces
void append_lowercase(std::string& out, char32_t c);  // full, context-free lower case

// The length of the grapheme cluster (UAX 29, extended) at the start of `text`, which is not empty.
std::size_t grapheme_length(std::string_view text);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// O(n log n) also for long runs of combining marks. `text` is valid UTF-8.
Result<std::string> normalize_unicode(std::string_view text, UnicodeForm form);

}  // namespace doppler::tokenizer
