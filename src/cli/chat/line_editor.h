// LineEditor: a line typed at a terminal, with arrows, history and pastes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace doppler::cli {

// What came from the keyboard, or from a pipe in its place.
struct Typed {
  enum class Kind : std::uint8_t {
    kLine,
    kInterrupt,  // Ctrl-C: the line is dropped
    kEnd,        // Ctrl-D, the end of a pipe, or a request from outside to end
  };
  Kind kind = Kind::kEnd;
  std::string text =
      {};  // without the newline at its end, inside it may have some; of kInterrupt: what is dropped
};

// What Tab may put in place of the end of what is typed.
struct Completion {
  std::size_t begin = 0;           // in bytes: where the part begins that the words replace
  std::vector<std::string> words;  // they begin with that part
};
using Completer = std::function<Completion(std::string_view typed)>;

class LineEditor {
 public:
  // Null where standard input or output is no terminal, or one that only prints (TERM=dumb), and where this
  // build has no editor: lines are then read as the system gives them. One at a time.
  static std::unique_ptr<LineEditor> open(Completer completer);
  virtual ~LineEditor() = default;

  // Waits for a line. `ended`: whether a signal asked to end, which interrupts the waiting.
  virtual Typed read(const std::string& prompt, const std::function<bool()>& ended) = 0;
  // A line that arrow up brings back.
  virtual void remember(const std::string& line) = 0;
};

}  // namespace doppler::cli
