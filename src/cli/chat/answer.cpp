#include "cli/chat/answer.h"

#include <algorithm>

#include "cli/chat/answer_text.h"
#include "engine/access.h"

namespace doppler::cli {
namespace {

// Room for an answer, as shares of the context: with less than the first left, turns are left out until the
// second is free, so that the next answers need not do it again at once.
constexpr std::uint64_t kLeastRoom = 16, kRoomMade = 4;

void add(const Timings& part, Timings& sum) {
  // The first part alone reads what the user said; later ones read the shortened conversation again.
  if (sum.prompt_tokens == 0) {
    sum.prompt_tokens = part.prompt_tokens;
    sum.cached_tokens = part.cached_tokens;
    sum.load_ms = part.load_ms;
    sum.prompt_ms = part.prompt_ms;
  } else {
    sum.decode_ms += part.prompt_ms;
  }
  sum.decode_ms += part.decode_ms;
  sum.generated_tokens += part.generated_tokens;
  sum.guessed_tokens += part.guessed_tokens;
  sum.guessed_right += part.guessed_right;
}

}  // namespace

// The answer's text on its way: from tokens to the screen, and what is kept of it.
struct Answerer::Stream {
  Stream(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& stops,
         const std::vector<ThinkingMarks>& marks, std::string_view prompt, const ViewOptions& options)
      : text(tokenizer, stops, marks), splitter(marks, prompt), view(options) {}

  Status take(const std::string& raw, std::span<const AnswerPart> parts) {
    for (const AnswerPart& part : parts)
      if (!part.thinking) kept += part.text;
    return view.show(raw, parts);
  }
  Status push(TokenId id) {
    DOPPLER_ASSIGN(const std::string raw, text.push(id));
    return take(raw, splitter.feed(raw));
  }
  Status finish() {
    DOPPLER_ASSIGN(const std::string raw, text.flush());
    DOPPLER_TRY(take(raw, splitter.feed(raw)));
    DOPPLER_TRY(take("", splitter.flush()));
    return view.end();
  }

  AnswerText text;
  ThinkingSplitter splitter;
  AnswerView view;
  std::string kept;
};

Answerer::Answerer(Engine& engine, Looking& looking)
    : engine_(engine),
      looking_(looking),
      marks_(thinking_marks_of(EngineAccess::loaded(engine).chat->source(),
                               *EngineAccess::loaded(engine).tokenizer)) {
  EngineAccess::look(engine, looking.tap());
}

Result<std::vector<TokenId>> Answerer::prompt_of(const Conversation& conversation, std::string* text) const {
  DOPPLER_ASSIGN(*text, engine_.render_chat(conversation.sent()));
  return engine_.tokenize(*text, false);
}

// The prompt, with the oldest turns left out as far as it takes. `said`: tokens of the answer so far; `room`:
// how many may still come.
Result<std::vector<TokenId>> Answerer::fit(Conversation& conversation, std::size_t said, std::uint64_t room,
                                           Answer& answer, OnFull on_full, std::string* text) const {
  const std::uint64_t context = engine_.context();
  DOPPLER_ASSIGN(std::vector<TokenId> ids, prompt_of(conversation, text));
  const auto fits = [&](std::uint64_t share) {
    return ids.size() + said + std::max<std::uint64_t>(std::min(room, context / share), 1) <= context;
  };
  if (on_full == OnFull::kStop || fits(kLeastRoom)) return ids;
  while (!fits(kRoomMade) && conversation.leave_out_oldest_turn()) {
    ++answer.turns_left_out;
    DOPPLER_ASSIGN(ids, prompt_of(conversation, text));
  }
  return ids;
}

Result<Answer> Answerer::answer(Conversation& conversation, const GenerateOptions& options, OnFull on_full,
                                const ViewOptions& view, const CancelToken& cancel) {
  Answer answer;
  std::string prompt;
  DOPPLER_ASSIGN(std::vector<TokenId> ids,
                 fit(conversation, 0, options.max_tokens, answer, on_full, &prompt));
  if (ids.size() > engine_.context()) {
    return fail(ErrorCode::kLimit, "The {} has {} tokens, but the context holds {}. {}",
                on_full == OnFull::kStop && conversation.turns() > 1 ? "conversation" : "message", ids.size(),
                engine_.context(),
                on_full == OnFull::kStop && conversation.turns() > 1
                    ? "Use /clear, or /set on-full shift, or a longer --context."
                    : "Shorten it or raise --context.");
  }
  Stream stream(*EngineAccess::loaded(engine_).tokenizer, options.stop, marks_, prompt, view);
  const Status spoken = speak(conversation, std::move(ids), options, on_full, cancel, stream, answer);
  const Status finished = stream.finish();  // also after an error, so that the terminal is left as it was
  DOPPLER_TRY(spoken);
  DOPPLER_TRY(finished);
  answer.text = std::move(stream.kept);
  return answer;
}

// Generates the answer in one part, or in several where turns are left out on the way.
Status Answerer::speak(Conversation& conversation, std::vector<TokenId> ids, const GenerateOptions& options,
                       OnFull on_full, const CancelToken& cancel, Stream& stream, Answer& answer) {
  GenerateOptions part = options;
  part.stop.clear();  // the stream watches for them, also where one begins in one part and ends in the next
  std::vector<TokenId> said;
  for (;;) {
    (void)looking_.begin(ids.size(), false);  // a probe that cannot fire on this turn may fire on the next
    Status streamed;
    Callbacks callbacks;
    callbacks.cancel = cancel;
    callbacks.on_token = [&](TokenId id, const TokenLogprobs*) {
      streamed = stream.push(id);
      return streamed.has_value() && !stream.text.stopped();
    };
    DOPPLER_ASSIGN(const Generation generated, engine_.generate(ids, part, callbacks));
    DOPPLER_TRY(streamed);
    add(generated.timings, answer.timings);
    said.insert(said.end(), generated.ids.begin(), generated.ids.end());
    answer.context_used = ids.size() + generated.ids.size();
    answer.stop_reason = stream.text.stopped() ? StopReason::kStopString : generated.stop_reason;
    if (answer.stop_reason != StopReason::kContextEnd || on_full == OnFull::kStop) return {};
    const std::size_t before = answer.turns_left_out;
    part.max_tokens = options.max_tokens - static_cast<std::uint32_t>(said.size());
    part.seed = options.seed + said.size();  // not the same draws once more
    std::string prompt;
    DOPPLER_ASSIGN(ids, fit(conversation, said.size(), part.max_tokens, answer, on_full, &prompt));
    if (answer.turns_left_out == before || ids.size() + said.size() >= engine_.context()) return {};
    ids.insert(ids.end(), said.begin(), said.end());
  }
}

}  // namespace doppler::cli
