// AnswerText: the text of an answer from its tokens, across the parts in which it may be generated.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/chat/thinking.h"
#include "engine/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace doppler::cli {

class AnswerText {
 public:
  AnswerText(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops,
             std::vector<ThinkingMarks> marks)
      : tokenizer_(tokenizer), decoder_(tokenizer), stops_(std::move(stops)), marks_(std::move(marks)) {}

  // The text that is now certain. Special tokens give none, but those that mark the thinking do.
  Result<std::string> push(TokenId id);
  // The rest, once no more tokens come.
  Result<std::string> flush();
  bool stopped() const { return stops_.found(); }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  tokenizer::StreamDecoder decoder_;
  StopStrings stops_;
  std::vector<ThinkingMarks> marks_;
};

}  // namespace doppler::cli
