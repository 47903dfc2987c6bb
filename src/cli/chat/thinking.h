// Thinking: the part of an answer in which a model reasons before it speaks, between marks that differ by
// model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace doppler::cli {

struct ThinkingMarks {
  std::string_view begin, end;
};

// The marks that models use, whichever they are.
std::span<const ThinkingMarks> all_thinking_marks();

// Those that this model knows: its chat template writes them, or its vocabulary has a token for them. In the
// answers of any other model they are ordinary text.
std::vector<ThinkingMarks> thinking_marks_of(std::string_view chat_template,
                                             const tokenizer::Tokenizer& tokenizer);

struct AnswerPart {
  bool thinking = false;
  std::string text;
};

// Divides a streamed answer at the marks, which are left out, as are newlines right behind one.
class ThinkingSplitter {
 public:
  // `prompt`: what the model was given. Some templates end with the first mark, and the answer begins inside.
  ThinkingSplitter(std::vector<ThinkingMarks> marks, std::string_view prompt);
  ThinkingSplitter(const ThinkingSplitter&) = delete;
  ThinkingSplitter& operator=(const ThinkingSplitter&) = delete;

  // The parts that are certain: text that may become a mark is held back.
  std::vector<AnswerPart> feed(std::string_view text);
  // What was held back, when the answer ends.
  std::vector<AnswerPart> flush();

 private:
  struct Found {
    std::size_t at;              // where the mark begins, or what may become one
    const ThinkingMarks* marks;  // null: it is not complete
  };
  Found find() const;
  void give(std::string text, std::vector<AnswerPart>& parts);

  std::vector<ThinkingMarks> marks_;
  const ThinkingMarks* open_ = nullptr;  // those that the text stands between
  bool after_mark_ = false;
  std::string held_;
};

}  // namespace doppler::cli
