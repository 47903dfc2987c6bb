// Text helpers for messages and reports.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

// "1.2 MB", "637.0 kB": decimal units, one digit.
std::string human_bytes(std::uint64_t bytes);

// Untrusted text made fit to print inside a sentence: control bytes and invalid UTF-8 escaped as \xNN,
// cut with "…" after max_bytes.
std::string printable(std::string_view text, std::size_t max_bytes = 80);

// The candidate with the smallest edit distance to `name`, or empty if none is near (more than a third
// differs).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// Length in bytes of the UTF-8 sequence at the start of `text` (RFC 3629: no overlong forms, no surrogates,
// at most U+10FFFF), or 0 if it is invalid or incomplete.
std::size_t utf8_sequence_length(std::string_view text);

// The number of bytes at the end of `text` that begin a character but do not complete it (0 to 3).
std::size_t incomplete_utf8_suffix(std::string_view text);

// Every invalid byte replaced by U+FFFD, one per maximal invalid part (as Unicode recommends and Python
// does).
std::string utf8_lossy(std::string_view bytes);

// "The file x" as it reads inside a sentence: "the file x". Other texts stay as they are.
std::string inside_sentence(std::string_view subject);

// ASCII letters alone, whatever the locale; other bytes stay as they are.
constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
std::string ascii_lower(std::string_view text);
std::string ascii_upper(std::string_view text);

// Without spaces, tabs, carriage returns and newlines at its ends.
std::string_view trimmed(std::string_view text);

// "1 file", "12 files".
std::string counted(std::uint64_t count, std::string_view noun);

std::string join(std::span<const std::string> parts, std::string_view separator);

}  // namespace doppler
