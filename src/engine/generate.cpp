#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/log.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "engine/stop_strings.h"
#include "engine/trace.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The stream of text to the caller: emits whole characters, holds back possible stop strings, and remembers
// whether the callback asked to end.
class TextStream {
 public:
  TextStream(const tokenizer::Tokenizer* tokenizer, const GenerateOptions& options, const OnText& on_text)
      : stops_(options.stop), on_text_(on_text) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }

  Status feed(TokenId id) {
    if (!decoder_) return {};
    DOPPLER_ASSIGN(const std::string text, decoder_->push(id));
    emit(stops_.feed(text));
    return {};
  }

  Status finish() {
    if (!decoder_ || stops_.found()) return {};
    DOPPLER_ASSIGN(const std::string rest, decoder_->flush());
    emit(stops_.feed(rest));
    if (!stops_.found()) emit(stops_.flush());
    return {};
  }

  bool stop_found() const { return stops_.found(); }
  bool declined() const { return declined_; }
  std::string take() { return std::move(text_); }

 private:
  void emit(const std::string& text) {
    if (text.empty()) return;
    text_ += text;
    if (on_text_ && !declined_ && !on_text_(text)) declined_ = true;
  }

  std::optional<tokenizer::StreamDecoder> decoder_;
  StopStrings stops_;
  const OnText& on_text_;
  std::string text_;
  bool declined_ = false;
};

// The source of tokens: the sampler on the host, step by step, or a backend that generates by itself.
class TokenSource {
 public:
  // `first`: the logits after the prompt.
  TokenSource(Session& session, const GenerateOptions& options, TokenId pad_id, std::span<const float> first)
      : session_(session), options_(options), pad_id_(pad_id), sampler_(options, pad_id), logits_(first) {}
  ~TokenSource() { (void)session_.end_continuation(); }
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  // The token after `history`; earlier calls gave the last `drawn` of it.
  Result<TokenId> next(std::span<const TokenId> history, std::size_t drawn) {
    if (continues_) return session_.next();
    if (drawn == 1 && session_.can_continue(options_)) {
      const Status begun =
          session_.begin_continuation(history, options_.max_tokens - drawn, options_, drawn, pad_id_);
      // A backend that cannot show the tap's stages while it generates by itself runs step by step instead.
      if (!begun && begun.error().code != ErrorCode::kUnsupported) return std::unexpected(begun.error());
      continues_ = begun.has_value();
      if (continues_) return session_.next();
    }
    if (drawn > 0) {
      DOPPLER_ASSIGN(logits_, session_.append(history.back()));
    }
    return sampler_.sample(logits_, history, drawn);
  }

  // The logits that next() chose from, if known.
  std::span<const float> logits() const { return continues_ ? session_.shown_logits() : logits_; }

  // After this the session's cache holds all tokens that next() was given or returned, except the last.
  Status end() { return session_.end_continuation(); }

 private:
  Session& session_;
  const GenerateOptions& options_;
  const TokenId pad_id_;
  Sampler sampler_;
  std::span<const float> logits_;
  bool continues_ = false;
};

}  // namespace

TokenId masked_pad(const ModelSpec& spec) {
  const bool ends = std::find(spec.eos_ids.begin(), spec.eos_ids.end(), spec.pad_id) != spec.eos_ids.end();
  return ends ? -1 : spec.pad_id;
}

Result<Generation> run_generation(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const OnText& on_text,
                                  const CancelToken* cancel) {
  Callbacks callbacks{.on_text = on_text};
  if (cancel != nullptr) callbacks.cancel = *cancel;
  return run_generation(session, spec, tokenizer, prompt, options, callbacks);
}

Result<Generation> run_generation(Session& session, const ModelSpec& spec,
                                  const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                  const GenerateOptions& options, const Callbacks& callbacks) {
  const CancelToken* const cancel = callbacks.cancel ? &*callbacks.cancel : nullptr;
  DOPPLER_TRY(check_generate_options(options, spec.vocab_size));
  if (tokenizer == nullptr && !options.stop.empty()) {
    return fail(ErrorCode::kUsage,
                "Stop strings need a tokenizer, and the model's folder has none. Leave them out.");
  }
  Generation result;
  result.prompt_ids.assign(prompt.begin(), prompt.end());
  result.timings.prompt_tokens = prompt.size();
  const auto finish = [&](StopReason reason) {
    result.stop_reason = reason;
    result.timings.generated_tokens = result.ids.size();
  };
  session.show_logits(options.logprobs >= 0);
  PerfTrace perf(session.backend());
  const Clock::time_point start = Clock::now();
  DOPPLER_ASSIGN(const std::span<const float> logits,
                 session.prompt(prompt, cancel, &result.timings.cached_tokens));
  if (logits.empty()) {
    finish(StopReason::kCancelled);
    result.timings.prompt_ms = milliseconds_since(start);
    return result;
  }
  TokenSource source(session, options, masked_pad(spec), logits);
  TextStream stream(tokenizer, options, callbacks.on_text);
  std::vector<TokenId> history(prompt.begin(), prompt.end());
  Clock::time_point first_token = Clock::now(), last_token = first_token;
  StopReason reason = StopReason::kMaxTokens;
  while (result.ids.size() < options.max_tokens) {
    if (cancel != nullptr && cancel->cancelled()) {
      reason = StopReason::kCancelled;
      break;
    }
    const std::size_t drawn = result.ids.size();
    DOPPLER_ASSIGN(const TokenId id, source.next(history, drawn));
    const auto step = static_cast<std::int64_t>(drawn);
    if (trace_wanted(Category::kSample, -1, step))
      trace_sample({.id = id, .logits = source.logits(), .step = step}, options, tokenizer);
    const Clock::time_point now = Clock::now();
    if (drawn == 0)
      first_token = now;
    else
      perf.token(std::chrono::duration<double, std::milli>(now - last_token).count());
    last_token = now;
    const bool eos = std::find(spec.eos_ids.begin(), spec.eos_ids.end(), id) != spec.eos_ids.end();
    if (eos && !options.ignore_eos) {
      reason = StopReason::kEos;
      break;
    }
    result.ids.push_back(id);
    history.push_back(id);
    if (options.logprobs >= 0) {
      if (source.logits().empty()) {
        return fail(ErrorCode::kInternal,
                    "The {} backend does not show the logits that it chose the token {} from.",
                    session.backend().name(), drawn);
      }
      result.logprobs.push_back(logprobs_of(source.logits(), id, static_cast<std::size_t>(options.logprobs)));
    }
    DOPPLER_TRY(stream.feed(id));
    const bool declined = callbacks.on_token &&
                          !callbacks.on_token(id, options.logprobs >= 0 ? &result.logprobs.back() : nullptr);
    if (stream.stop_found()) {
      reason = StopReason::kStopString;
      break;
    }
    if (stream.declined() || declined) {
      reason = StopReason::kCancelled;
      break;
    }
    if (result.ids.size() == options.max_tokens) break;
    if (session.full()) {
      reason = StopReason::kContextEnd;
      break;
    }
  }
  const double decode_ms = milliseconds_since(first_token);
  DOPPLER_TRY(source.end());
  DOPPLER_TRY(stream.finish());
  if (stream.stop_found()) reason = StopReason::kStopString;
  result.text = stream.take();
  finish(reason);
  result.timings.prompt_ms = std::chrono::duration<double, std::milli>(first_token - start).count();
  result.timings.decode_ms = decode_ms;
  perf.end(result.timings);
  return result;
}

}  // namespace doppler
