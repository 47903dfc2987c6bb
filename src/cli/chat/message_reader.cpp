#include "cli/chat/message_reader.h"

#include "base/screen.h"
#include "cli/command.h"

namespace doppler::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::size_t kMostBytes = 64 << 20;  // of a message: far beyond any context

}  // namespace

std::optional<std::string> MessageLines::take(const std::string& line) {
  std::string_view rest = line;
  if (!open_) {
    quoted_ = rest.starts_with(kQuotes);
    text_.clear();
    if (!quoted_) return line;
    rest.remove_prefix(kQuotes.size());
    open_ = true;
    if (rest.empty()) return std::nullopt;  // the newline after the quotes is no part of the message
  }
  std::string_view body = rest;
  while (body.ends_with(' ') || body.ends_with('\r')) body.remove_suffix(1);
  if (!body.ends_with(kQuotes)) {
    text_.append(rest) += '\n';
    return std::nullopt;
  }
  text_ += body.substr(0, body.size() - kQuotes.size());
  if (text_.ends_with('\n')) text_.pop_back();
  open_ = false;
  return std::move(text_);
}

MessageReader::MessageReader(bool prompts, Completer completer)
    : prompts_(prompts), editor_(prompts ? LineEditor::open(std::move(completer)) : nullptr) {}

Result<Typed> MessageReader::next_line(const std::string& prompt, int& signalled) {
  // A request to end is taken here and not by the system, so that the terminal is left as it was.
  const CancelToken ended;
  const InterruptGuard guard(ended);
  Typed typed;
  if (editor_) {
    typed = editor_->read(prompt, [&] { return ended.cancelled(); });
  } else {
    if (prompts_) DOPPLER_TRY(print(prompt));
    DOPPLER_ASSIGN(std::optional<std::string> line, read_line(kMostBytes));
    if (line) {
      typed = {Typed::Kind::kLine, std::move(*line)};
      if (prompts_) screen_after_output("\n");  // the terminal has shown the newline that was typed
    }
  }
  signalled = guard.status(0);
  return typed;
}

Result<TypedMessage> MessageReader::next() {
  MessageLines lines;
  for (std::size_t bytes = 0;;) {
    int signalled = 0;
    DOPPLER_ASSIGN(const Typed typed, next_line(lines.open() ? "… " : "> ", signalled));
    if (typed.kind != Typed::Kind::kLine)
      return TypedMessage{.kind = typed.kind, .text = typed.text, .signalled = signalled};
    bytes += typed.text.size() + 1;
    if (bytes > kMostBytes) {
      return fail(
          ErrorCode::kLimit,
          "A message between \"\"\" holds more than {} bytes. Give a shorter one, or end it with \"\"\".",
          kMostBytes);
    }
    if (std::optional<std::string> text = lines.take(typed.text))
      return TypedMessage{.kind = typed.kind, .text = std::move(*text), .quoted = lines.quoted()};
  }
}

void MessageReader::remember(const std::string& message) {
  if (editor_) editor_->remember(message);
}

}  // namespace doppler::cli
