#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/log.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "engine/stop_strings.h"
#include "engine/token_source.h"
#include "engine/trace.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

// Named in Generating::Inner, so it has linkage: of an unnamed type g++ warns where files are compiled
// together.

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

struct Generating::Inner {
  Session& session;
  const ModelSpec& spec;
  const tokenizer::Tokenizer* tokenizer;
  const GenerateOptions& options;
  const Callbacks& callbacks;
  PerfTrace perf;
  TextStream stream;
  Clock::time_point start = Clock::now();
  Clock::time_point first_token = start, last_token = start;
  std::optional<TokenSource> source = {};  // none if the prompt was cancelled
  std::vector<TokenId> history = {};
  StopReason reason = StopReason::kMaxTokens;
  Generation result = {};

  Status compute_prompt(std::span<const TokenId> prompt);
  Status accept(TokenId id);
  // Why the generation ends before another token is drawn, and after one was accepted.
  std::optional<StopReason> ends_before() const;
  Result<std::optional<StopReason>> draw();
  bool cancelled() const { return callbacks.cancel && callbacks.cancel->cancelled(); }
};

Status Generating::Inner::compute_prompt(std::span<const TokenId> prompt) {
  result.prompt_ids.assign(prompt.begin(), prompt.end());
  result.timings.prompt_tokens = prompt.size();
  session.show_logits(options.logprobs >= 0);
  const CancelToken* const cancel = callbacks.cancel ? &*callbacks.cancel : nullptr;
  DOPPLER_ASSIGN(const std::span<const float> logits,
                 session.prompt(prompt, cancel, &result.timings.cached_tokens));
  first_token = last_token = Clock::now();
  if (logits.empty()) return {};
  source.emplace(session, options, spec, logits);
  history = result.prompt_ids;
  return {};
}

std::optional<StopReason> Generating::Inner::ends_before() const {
  if (!source) return StopReason::kCancelled;
  if (result.ids.size() >= options.max_tokens) return StopReason::kMaxTokens;
  // The newest token has no place in the cache.
  if (history.size() > session.backend().options().context) return StopReason::kContextEnd;
  if (cancelled()) return StopReason::kCancelled;
  return std::nullopt;
}

// Takes a token into the result and the text.
Status Generating::Inner::accept(TokenId id) {
  result.ids.push_back(id);
  history.push_back(id);
  if (options.logprobs >= 0) {
    if (source->logits().empty()) {
      return fail(ErrorCode::kInternal,
                  "The {} backend does not show the logits that it chose the token {} from.",
                  session.backend().name(), result.ids.size() - 1);
    }
    result.logprobs.push_back(logprobs_of(source->logits(), id, static_cast<std::size_t>(options.logprobs)));
  }
  return stream.feed(id);
}

Result<std::optional<StopReason>> Generating::Inner::draw() {
  const std::size_t drawn = result.ids.size();
  DOPPLER_ASSIGN(const TokenId id, source->next(history, drawn));
  const auto step = static_cast<std::int64_t>(drawn);
  if (trace_wanted(Category::kSample, -1, step))
    trace_sample({.id = id, .logits = source->logits(), .step = step}, options, tokenizer);
  const Clock::time_point now = Clock::now();
  if (drawn == 0)
    first_token = now;
  else
    perf.token(std::chrono::duration<double, std::milli>(now - last_token).count());
  last_token = now;
  const bool eos = std::find(spec.eos_ids.begin(), spec.eos_ids.end(), id) != spec.eos_ids.end();
  if (eos && !options.ignore_eos) return StopReason::kEos;
  DOPPLER_TRY(accept(id));
  const bool declined = callbacks.on_token &&
                        !callbacks.on_token(id, options.logprobs >= 0 ? &result.logprobs.back() : nullptr);
  if (stream.stop_found()) return StopReason::kStopString;
  if (stream.declined() || declined) return StopReason::kCancelled;
  return std::nullopt;
}

Generating::Generating(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}
Generating::Generating(Generating&&) noexcept = default;
Generating::~Generating() = default;

Result<Generating> Generating::begin(Session& session, const ModelSpec& spec,
                                     const tokenizer::Tokenizer* tokenizer, std::span<const TokenId> prompt,
                                     const GenerateOptions& options, const Callbacks& callbacks) {
  DOPPLER_TRY(check_generate_options(options, spec.vocab_size));
  if (tokenizer == nullptr && !options.stop.empty()) {
    return fail(ErrorCode::kUsage,
                "Stop strings need a tokenizer, and the model's folder has none. Leave them out.");
  }
  // On the heap, because its parts refer to each other.
  std::unique_ptr<Inner> inner(new Inner{.session = session,
                                         .spec = spec,
                                         .tokenizer = tokenizer,
                                         .options = options,
                                         .callbacks = callbacks,
                                         .perf = PerfTrace(session.backend()),
                                         .stream = TextStream(tokenizer, options, callbacks.on_text)});
  DOPPLER_TRY(inner->compute_prompt(prompt));
  return Generating(std::move(inner));
}

Result<bool> Generating::next() {
  std::optional<StopReason> ended = inner_->ends_before();
  if (!ended) {
    DOPPLER_ASSIGN(ended, inner_->draw());
  }
  if (ended) inner_->reason = *ended;
  return !ended.has_value();
}

Result<Generation> Generating::end() {
  Inner& inner = *inner_;
  Generation& result = inner.result;
  result.timings.prompt_ms =
      std::chrono::duration<double, std::milli>(inner.first_token - inner.start).count();
  if (inner.source) {
    result.timings.decode_ms = milliseconds_since(inner.first_token);
    DOPPLER_TRY(inner.source->end());
    result.timings.guessed_tokens = inner.source->guessed();
    result.timings.guessed_right = inner.source->guessed_right();
    DOPPLER_TRY(inner.stream.finish());
    if (inner.stream.stop_found()) inner.reason = StopReason::kStopString;
  }
  result.text = inner.stream.take();
  result.stop_reason = inner.reason;
  result.timings.generated_tokens = result.ids.size();
  if (inner.source) inner.perf.end(result.timings);
  return std::move(result);
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
  DOPPLER_ASSIGN(Generating generating,
                 Generating::begin(session, spec, tokenizer, prompt, options, callbacks));
  for (;;) {
    DOPPLER_ASSIGN(const bool more, generating.next());
    if (!more) return generating.end();
  }
}

}  // namespace doppler
