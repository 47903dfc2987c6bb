#include "cli/chat/answer_view.h"

#include "cli/command.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

// ECMA-48, SGR: faint, and neither bold nor faint.
constexpr std::string_view kDim = "\033[2m", kNotDim = "\033[22m";

// A model's text may hold anything; a terminal would obey what begins with an escape character.
std::string without_controls(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    clean += control ? "\xef\xbf\xbd" : std::string(1, c);
  }
  return clean;
}

}  // namespace

ViewOptions usual_view() {
  const bool terminal = system::is_terminal(system::Stream::kOutput);
  return {.terminal = terminal, .dim = terminal && colours(), .wrap = terminal};
}

std::string AnswerLayout::flow(std::string_view text) {
  const std::string clean = without_controls(text);
  return options_.wrap ? wrapper_.feed(clean) : clean;
}

std::string AnswerLayout::feed(std::string_view raw, std::span<const AnswerPart> parts) {
  if (!options_.terminal) return std::string(raw);
  if (!options_.dim) return flow(raw);
  std::string out;
  for (const AnswerPart& part : parts) {
    if (part.thinking && !thinking_) out += wrapper_.flush().append(kDim);
    if (!part.thinking && thinking_) {
      // An empty line between the thinking and what is said.
      for (; !tail_.ends_with("\n\n"); tail_ += '\n') out += flow("\n");
      out += wrapper_.flush().append(kNotDim);
    }
    thinking_ = part.thinking;
    out += flow(part.text);
    if (thinking_)
      tail_ = (tail_ + part.text).substr(std::max<std::size_t>(tail_.size() + part.text.size(), 2) - 2);
  }
  return out;
}

std::string AnswerLayout::end() {
  if (!options_.terminal) return "\n";
  std::string out = wrapper_.flush();
  if (thinking_) out += kNotDim;
  return out + "\n";
}

AnswerView::AnswerView(const ViewOptions& options) : options_(options), layout_(options, table_columns) {}

Status AnswerView::show(std::string_view raw, std::span<const AnswerPart> parts) {
  return options_.silent ? Status() : print(layout_.feed(raw, parts));
}

Status AnswerView::end() {
  return options_.silent ? Status() : print(layout_.end());
}

}  // namespace doppler::cli
