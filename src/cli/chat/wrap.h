// Wrapper: breaks streamed prose between words at the terminal's width.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace doppler::cli {

// Newlines of the text stay, and so do code between fences (``` or ~~~) and rows of tables (a line that
// begins with |), whatever their length. A word is held back until its end is known.
class Wrapper {
 public:
  // `columns`: the terminal's width, asked for at each word, so that a terminal may be resized at any time.
  explicit Wrapper(std::function<std::size_t()> columns) : columns_(std::move(columns)) {}

  // What can be printed now.
  std::string feed(std::string_view text);
  // What was held back, when the text ends or something else is to be printed.
  std::string flush();

 private:
  enum class Line { kBegins, kProse, kAsItIs };

  void take(std::string_view character, std::string& out);
  void end_line(std::string& out);
  void end_word(std::string& out);
  void begin_line_with_word();
  void put(std::string_view text, std::size_t columns, std::string& out);

  std::function<std::size_t()> columns_;
  std::string spaces_, word_;  // held back: the spaces before a word, and the word
  Line line_ = Line::kBegins;  // what the present line is
  bool in_code_ = false;       // between fences
  std::size_t column_ = 0;     // where the cursor stands
};

}  // namespace doppler::cli
