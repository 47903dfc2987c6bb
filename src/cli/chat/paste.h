// Pasted text: taken from the terminal in one piece, and shown in the line as it is or, if it is long, as a
// mark that stands for it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace doppler::cli {

// Sources: xterm's "Bracketed Paste Mode".
inline constexpr std::string_view kPasteOn = "\033[?2004h", kPasteOff = "\033[?2004l";
inline constexpr std::string_view kPasteBegins = "\033[200~", kPasteEnds = "\033[201~";

// Takes bytes until the one that completes kPasteEnds.
class PasteCollector {
 public:
  // More than any context takes. What lies beyond is dropped, so that a terminal cannot fill the memory.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

  // True once the paste has ended.
  bool take(char byte);
  bool cut() const { return cut_; }  // whether something was dropped
  // The text: valid UTF-8, newlines as \n, without other controls than tabs.
  std::string text() const;

 private:
  std::string bytes_;
  bool cut_ = false;
};

// Long texts by the marks that stand for them: "[paste 1: 212 lines, 8.1 kB]".
class PasteMarks {
 public:
  // What the line shows: the text itself while it can be read and edited in a line, else a new mark. `what`:
  // the mark's first word; each has its own count.
  std::string shown(std::string text, std::string_view what);
  // A line with its marks replaced by what they stand for.
  std::string expand(std::string_view line) const;

 private:
  struct Mark {
    std::string mark, text;
  };
  std::vector<Mark> marks_;
  std::map<std::string, int, std::less<>> counts_;
};

}  // namespace doppler::cli
