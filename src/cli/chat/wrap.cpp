#include "cli/chat/wrap.h"

#include <algorithm>

#include "base/layout.h"
#include "base/unicode.h"

namespace doppler::cli {
namespace {

constexpr std::size_t kTab = 8;  // columns between the tab stops of terminals

bool is_wide(std::string_view word) {
  return !word.empty() && columns_of(last_code_point(word).value) == 2;
}

// What closes a phrase and must not begin a line: the full-width forms, and closing quotes and brackets.
bool clings_to_the_left(char32_t c) {
  return c == 0x3001 || c == 0x3002 || c == 0xff0c || c == 0xff0e || c == 0xff01 || c == 0xff1f ||
         c == 0xff1a || c == 0xff1b || c == 0x30fc || category_of(c) == UnicodeCategory::kPe ||
         category_of(c) == UnicodeCategory::kPf;
}

}  // namespace

std::string Wrapper::feed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = std::min(first_code_point(text).length, text.size());
    take(text.substr(0, length), out);
    text.remove_prefix(length);
  }
  return out;
}

std::string Wrapper::flush() {
  std::string out;
  end_word(out);
  put(spaces_, spaces_.size(), out);
  spaces_.clear();
  return out;
}

void Wrapper::take(std::string_view character, std::string& out) {
  if (character == "\n") return end_line(out);
  if (character == " " || character == "\t") {
    end_word(out);
    if (character == " ")
      spaces_ += ' ';
    else
      spaces_.append(kTab - (column_ + spaces_.size()) % kTab, ' ');
    return;
  }
  // Wide characters make lines that may be broken anywhere, except before what closes a phrase.
  const char32_t c = first_code_point(character).value;
  const bool wide = columns_of(c) == 2;
  const bool joined = columns_of(c) == 0 || clings_to_the_left(c);
  if ((wide || is_wide(word_)) && !joined) end_word(out);
  word_ += character;
}

void Wrapper::end_line(std::string& out) {
  out += flush();
  out += '\n';
  column_ = 0;
  line_ = Line::kBegins;
}

// The first word of a line says what the line is.
void Wrapper::begin_line_with_word() {
  const bool fence = word_.starts_with("```") || word_.starts_with("~~~");
  line_ = fence || in_code_ || word_.starts_with('|') ? Line::kAsItIs : Line::kProse;
  if (fence) in_code_ = !in_code_;
}

void Wrapper::end_word(std::string& out) {
  if (word_.empty()) return;
  if (line_ == Line::kBegins) begin_line_with_word();
  const std::size_t columns = text_columns(word_);
  if (line_ == Line::kProse && column_ > 0 && column_ + spaces_.size() + columns > columns_()) {
    out += '\n';
    column_ = 0;
    spaces_.clear();
  }
  put(spaces_, spaces_.size(), out);
  put(word_, columns, out);
  spaces_.clear();
  word_.clear();
}

void Wrapper::put(std::string_view text, std::size_t columns, std::string& out) {
  out += text;
  column_ += columns;
  // What is longer than a line goes on in the next one, where the terminal breaks it.
  const std::size_t width = std::max<std::size_t>(columns_(), 1);
  if (column_ > width) column_ %= width;
}

}  // namespace doppler::cli
