// Strings by code point, as Python sees them. All text here is valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unicode.h"

namespace doppler::chat::jinja {

// The byte offset of the character with this index (the text's size if there are fewer).
std::size_t byte_offset(std::string_view text, std::size_t character);

// The code point at byte offset `at`, which moves behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_code_point(std::string& out, char32_t code);
std::vector<char32_t> code_points(std::string_view text);

bool is_space(char32_t code);       // str.isspace
bool is_line_break(char32_t code);  // where str.splitlines splits
bool is_decimal(char32_t code);
bool is_digit(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);
bool is_title(char32_t code);
bool is_printable(char32_t code);
bool is_word(char32_t code);  // \w of Python's re

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// str.title: a letter after something uncased is title case, others are lower case.
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string swap_case(std::string_view text);

// The text without the characters of `set` (whitespace if null) at the chosen ends.
std::string_view strip(std::string_view text, const std::string_view* set, bool left, bool right);

}  // namespace doppler::chat::jinja
