#include "cli/chat/answer_text.h"

#include <algorithm>

namespace doppler::cli {

Result<std::string> AnswerText::push(TokenId id) {
  DOPPLER_ASSIGN(std::string text, decoder_.push(id));
  if (!marks_.empty() && tokenizer_.is_special(id)) {
    DOPPLER_ASSIGN(const std::string piece, tokenizer_.piece(id));
    const auto is_mark = [&](const ThinkingMarks& marks) {
      return piece == marks.begin || piece == marks.end;
    };
    if (std::any_of(marks_.begin(), marks_.end(), is_mark)) text += piece;
  }
  return stops_.feed(text);
}

Result<std::string> AnswerText::flush() {
  if (stops_.found()) return std::string();
  DOPPLER_ASSIGN(const std::string rest, decoder_.flush());
  std::string text = stops_.feed(rest);
  if (!stops_.found()) text += stops_.flush();
  return text;
}

}  // namespace doppler::cli
