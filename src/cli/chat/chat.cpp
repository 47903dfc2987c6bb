#include "cli/chat/chat.h"

#include <fmt/core.h>

#include <utility>

#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/seed.h"

namespace doppler::cli {

Chat::Chat(Engine& with, Looking& looking, Parameters drawn, const ChatArguments& arguments)
    : engine(with),
      model(arguments.model),
      parameters(std::move(drawn)),
      on_full(arguments.on_full == "stop" ? OnFull::kStop : OnFull::kShift),
      answerer_(with, looking) {
  conversation.system = arguments.system;
}

void Chat::add_message(const std::string& text) {
  std::string content = text;
  sent_along_ = std::exchange(attached, {});
  if (!sent_along_.empty()) content += (text.empty() ? "" : "\n\n") + sent_along_;
  conversation.add({"user", std::move(content)});
  draws_ = 0;
}

Status Chat::answer() {
  const CancelToken cancel;
  const InterruptGuard guard(cancel);
  GenerateOptions options = parameters.options();
  options.seed += draws_;
  Result<Answer> given = answerer_.answer(conversation, options, on_full, view, cancel);
  signalled_ = guard.status(0);
  if (!given) {
    take_back_message();
    return std::unexpected(std::move(given).error());
  }
  add_to_total(*given);
  last_seed_ = options.seed;
  last_ = std::move(*given);
  tell_about(*last_);
  if (last_->text.empty() && last_->stop_reason == StopReason::kCancelled) {
    take_back_message();
    say(Said::kNote, "The answer had not begun; the message is taken back.");
  } else {
    conversation.add({"assistant", last_->text});
    sent_along_.clear();
  }
  return {};
}

void Chat::take_back_message() {
  conversation.take_back_turn();
  if (sent_along_.empty()) return;
  attached = std::exchange(sent_along_, {});
  say(Said::kNote, "What /file attached goes with the next message; /file none drops it.");
}

void Chat::add_to_total(const Answer& answer) {
  const Timings& t = answer.timings;
  ++answers_;
  total_.prompt_tokens += t.prompt_tokens;
  total_.cached_tokens += t.cached_tokens;
  total_.generated_tokens += t.generated_tokens;
  total_.guessed_tokens += t.guessed_tokens;
  total_.guessed_right += t.guessed_right;
  total_.prompt_ms += t.prompt_ms;
  total_.decode_ms += t.decode_ms;
}

// What the person must know about an answer besides its text.
void Chat::tell_about(const Answer& answer) const {
  if (answer.turns_left_out > 0) {
    const bool one = answer.turns_left_out == 1;
    say(Said::kWarning,
        "The context of {} tokens was full: the oldest {} {} left out. The system text stays.",
        engine.context(), one ? "turn" : fmt::format("{} turns", answer.turns_left_out), one ? "is" : "are");
  }
  if (answer.stop_reason == StopReason::kContextEnd) {
    say(Said::kWarning, "The answer ends here because the context of {} tokens is full. {}", engine.context(),
        on_full == OnFull::kStop ? "Use /clear, or /set on-full shift, or a longer --context."
                                 : "Raise --context for longer answers.");
  }
  if (shows_stats) tell(last_figures());
}

std::string Chat::last_figures() const {
  if (!last_) return "There is no answer yet.";
  const Timings& t = last_->timings;
  const std::string seed =
      parameters.options().temperature > 0 ? fmt::format("; seed {}", last_seed_) : std::string();
  return fmt::format(
      "{}: {} prompt tokens, {} of them cached, in {:.0f} ms; {} generated at {:.1f}/s{}; context {} of "
      "{}{}; "
      "stopped by {}",
      engine.backend_name(), t.prompt_tokens, t.cached_tokens, t.prompt_ms, t.generated_tokens,
      t.decode_tokens_per_second(), guesses_text(t), last_->context_used, engine.context(), seed,
      stop_reason_name(last_->stop_reason));
}

std::string Chat::total_figures() const {
  const double seconds = (total_.prompt_ms + total_.decode_ms) / 1000;
  return fmt::format("{}: {} prompt tokens, {} of them cached, and {} generated, in {:.1f} s{}",
                     counted(answers_, "answer"), total_.prompt_tokens, total_.cached_tokens,
                     total_.generated_tokens, seconds, guesses_text(total_));
}

}  // namespace doppler::cli
