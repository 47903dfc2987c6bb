// An answer to a conversation: generated, shown as it comes, and made room for where the context is full.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/chat/answer_view.h"
#include "cli/chat/conversation.h"
#include "cli/chat/thinking.h"
#include "cli/looking.h"
#include "doppler/doppler.h"

namespace doppler::cli {

// What happens when the context is full.
enum class OnFull : std::uint8_t {
  kShift,  // the oldest turns are left out
  kStop,   // the answer ends
};

struct Answer {
  std::string text;  // without the thinking, which models are not to read again
  StopReason stop_reason = StopReason::kMaxTokens;
  Timings timings;                 // of all its parts
  std::size_t turns_left_out = 0;  // for this answer
  std::size_t context_used = 0;    // tokens
};

class Answerer {
 public:
  // The engine has a tokenizer and a chat template. Both must outlive this.
  Answerer(Engine& engine, Looking& looking);

  // Answers the last message of the conversation. Turns that are left out stay so. Errors: kLimit for a
  // message that is longer than the context; those of the template, of the engine and of standard output.
  Result<Answer> answer(Conversation& conversation, const GenerateOptions& options, OnFull on_full,
                        const ViewOptions& view, const CancelToken& cancel);

 private:
  struct Stream;
  Result<std::vector<TokenId>> prompt_of(const Conversation& conversation, std::string* text) const;
  Result<std::vector<TokenId>> fit(Conversation& conversation, std::size_t said, std::uint64_t room,
                                   Answer& answer, OnFull on_full, std::string* text) const;

  Status speak(Conversation& conversation, std::vector<TokenId> ids, const GenerateOptions& options,
               OnFull on_full, const CancelToken& cancel, Stream& stream, Answer& answer);

  Engine& engine_;
  Looking& looking_;
  const std::vector<ThinkingMarks> marks_;
};

}  // namespace doppler::cli
