// MessageReader: messages from a terminal or a pipe, a line each, or many lines between """ and """.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/chat/line_editor.h"

namespace doppler::cli {

// The lines of one message, put together. Pure: the reader below feeds it.
class MessageLines {
 public:
  // Takes a line. The message, once it is whole; newlines inside a line stay.
  std::optional<std::string> take(const std::string& line);
  bool open() const { return open_; }  // between """ and """
  // Whether the message stood between """: it is then no command, whatever it begins with.
  bool quoted() const { return quoted_; }

 private:
  bool open_ = false, quoted_ = false;
  std::string text_;
};

struct TypedMessage {
  Typed::Kind kind = Typed::Kind::kEnd;
  std::string text = {};
  bool quoted = false;
  int signalled = 0;  // of kEnd: the exit status after the signal that asked for it; 0: none did
};

class MessageReader {
 public:
  // `prompts`: whether a person is to be asked for each line, who may complete it with Tab.
  MessageReader(bool prompts, Completer completer);

  // Errors: kIo of standard output.
  Result<TypedMessage> next();
  // A message that arrow up brings back.
  void remember(const std::string& message);

 private:
  Result<Typed> next_line(const std::string& prompt, int& signalled);
  const bool prompts_;
  std::unique_ptr<LineEditor> editor_;
};

}  // namespace doppler::cli
