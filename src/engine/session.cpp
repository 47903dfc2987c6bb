#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/step_trace.h"
#include "base/log.h"
#include "engine/fallbacks.h"

namespace doppler {

Error no_token_error(std::size_t tokens) {
  return {
      ErrorCode::kMismatch,
      fmt::format("A logit is NaN or infinite after {} tokens, or no token is left to choose, so the weights "
                  "or the computation are broken. Run doppler compare with a recording to find the first "
                  "wrong stage.",
                  tokens)};
}

StepInput Session::input_of(std::span<const TokenId> ids, std::size_t wanted) const {
  StepInput input;
  input.trace_step = trace_step_;
  input.guesses = ids.size() > 1 && wanted == ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    input.add(ids[i], cached_.size() + i, slot_, i + wanted >= ids.size());
  }
  return input;
}

Result<std::span<const float>> Session::feed(std::span<const TokenId> ids, std::size_t wanted) {
  DOPPLER_ASSIGN(const auto logits, backend_.step(input_of(ids, wanted), tap_));
  cached_.insert(cached_.end(), ids.begin(), ids.end());
  tell_new_fallbacks();
  return logits;
}

// `again`: tokens at the end that are computed in any case.
Status Session::begin(std::span<const TokenId> ids, std::size_t again) {
  if (ids.empty()) return fail(ErrorCode::kUsage, "The prompt has no tokens. Give at least one.");
  const std::uint64_t context = backend_.options().context;
  if (ids.size() > context) {
    return fail(ErrorCode::kLimit,
                "The prompt has {} tokens, but the context holds {}. Shorten it or raise --context.",
                ids.size(), context);
  }
  // Keys and values depend on nothing but the tokens up to theirs, so whatever ids and cache begin with is
  // kept.
  const auto common = static_cast<std::size_t>(std::ranges::mismatch(cached_, ids).in1 - cached_.begin());
  cut(std::min(common, ids.size() - again));
  prompt_length_ = ids.size();
  trace_step_ = 0;
  return {};
}

Result<std::span<const float>> Session::prompt(std::span<const TokenId> ids, const CancelToken* cancel,
                                               std::size_t* reused) {
  DOPPLER_TRY(begin(ids, 1));  // the last token's logits are wanted
  if (reused != nullptr) *reused = cached_.size();
  std::span<const float> logits;
  while (cached_.size() < ids.size()) {
    if (cancel != nullptr && cancel->cancelled()) return std::span<const float>();
    const std::size_t count = chunk_of(ids.size() - cached_.size());
    DOPPLER_ASSIGN(logits,
                   feed(ids.subspan(cached_.size(), count), cached_.size() + count == ids.size() ? 1 : 0));
    DOPPLER_TRY(keep_border(ids.size()));
  }
  return logits;
}

// Borders that are kept: the newest, and some at distances that hold what conversations share.
static constexpr std::size_t kMostBorders = 4, kBorderDistance = 512;

// Tokens of the next step of a prompt of which so many are left. The last token of a recurrent model's prompt
// comes alone, because the same prompt again, or another answer to it, begins in front of it.
std::size_t Session::chunk_of(std::size_t left) const {
  const std::size_t most = step_tokens(backend_.options());
  const bool ends = left <= most && left > 1 && is_recurrent(backend_.plan().kv_layers);
  return ends ? left - 1 : std::min(most, left);
}

Status Session::keep_border(std::size_t prompt) {
  CacheAccess* const cache = backend_.cache();
  if (cache == nullptr || !is_recurrent(backend_.plan().kv_layers) || cached_.size() == prompt) return {};
  const bool far = borders_.empty() || cached_.size() >= borders_.back().length + kBorderDistance;
  if (!far && cached_.size() + 1 != prompt) return {};
  if (!borders_.empty() && borders_.back().length >= cached_.size()) return {};
  DOPPLER_ASSIGN(std::vector<std::byte> states, cache->read_states(slot_));
  // The first is what all prompts of a program share, if anything is.
  if (borders_.size() == kMostBorders) borders_.erase(borders_.begin() + 1);
  borders_.push_back({cached_.size(), std::move(states)});
  return {};
}

Status Session::extend(std::span<const TokenId> ids, const CancelToken* cancel) {
  if (ids.size() <= cached_.size() && std::equal(ids.begin(), ids.end(), cached_.begin())) return {};
  DOPPLER_TRY(begin(ids, 0));
  while (cached_.size() < ids.size() && (cancel == nullptr || !cancel->cancelled())) {
    DOPPLER_TRY(feed(ids.subspan(cached_.size(), chunk_of(ids.size() - cached_.size())), 0));
    DOPPLER_TRY(keep_border(ids.size()));
  }
  return {};
}

bool Session::cut(std::size_t length) {
  if (length >= cached_.size()) return true;
  std::erase_if(borders_, [&](const Border& border) { return border.length > length; });
  CacheAccess* const cache = backend_.cache();
  std::size_t kept = 0;
  if (length > 0 && cache != nullptr && cache->can_cut(slot_, length)) {
    kept = cache->cut(slot_, length) ? length : 0;
  } else if (cache != nullptr && !borders_.empty()) {
    const Border& border = borders_.back();
    kept = cache->cut_with_states(slot_, border.length, border.states) ? border.length : 0;
  }
  if (kept == 0)
    clear();
  else
    cached_.resize(kept);
  return kept == length;
}

void Session::clear() {
  backend_.clear(slot_);
  cached_.clear();
  borders_.clear();
}

Status Session::share_cache_of(const Session& other) {
  clear();
  if (other.cached_.empty()) return {};
  CacheAccess* const cache = backend_.cache();
  if (cache == nullptr)
    return fail(ErrorCode::kUnsupported, "The {} backend does not give its cache away.", backend_.name());
  DOPPLER_TRY(cache->share(other.slot_, slot_));
  cached_ = other.cached_;
  return {};
}

Result<std::span<const float>> Session::append(std::span<const TokenId> ids) {
  begin_trace_step();
  return feed(ids, ids.size());
}

bool Session::prepare_check(std::size_t tokens, const GenerateOptions& sampling) {
  const Status prepared = backend_.continuer()->prepare_check(tokens, sampling);
  if (!prepared) backend_.note({"No tokens are guessed ahead.", prepared.error().message});
  // What the device is refused stays so.
  if (!prepared && prepared.error().code == ErrorCode::kUnsupported) checks_rightly_ = false;
  tell_new_fallbacks();
  return prepared.has_value();
}

Result<std::span<const TokenId>> Session::check(std::span<const TokenId> ids,
                                                std::span<const TokenId> history,
                                                const GenerateOptions& sampling, std::uint64_t draw,
                                                TokenId pad_id) {
  begin_trace_step();
  const Continuation first = {
      .slot = slot_, .id = ids[0], .sampling = &sampling, .history = history, .draw = draw, .pad_id = pad_id};
  DOPPLER_ASSIGN(const auto chosen, backend_.continuer()->check(input_of(ids, ids.size()), first));
  cached_.insert(cached_.end(), ids.begin(), ids.end());
  tell_new_fallbacks();
  return chosen;
}

Result<bool> Session::checks_rightly(std::span<const TokenId> history, const GenerateOptions& sampling,
                                     std::uint64_t drawn, TokenId pad_id) {
  if (checks_rightly_) return *checks_rightly_;
  constexpr std::uint64_t kMost = 16;
  const std::size_t count = std::min(kMost, drawn), begin = history.size() - 1 - count;
  if (!cut(begin)) return fail(ErrorCode::kInternal, "The cache cannot be cut by {} tokens.", count);
  DOPPLER_ASSIGN(const auto chosen, check(history.subspan(begin, count), history.first(begin + 1), sampling,
                                          drawn - count, pad_id));
  checks_rightly_ = std::ranges::equal(chosen, history.last(count));
  if (*checks_rightly_) return true;
  backend_.note({"No tokens are guessed ahead.",
                 "The device computes several tokens at once otherwise than one by one, and chose others."});
  tell_new_fallbacks();
  cut(begin);
  DOPPLER_TRY(extend(history.first(history.size() - 1), nullptr));
  return false;
}

Status Session::wind_down() {
  if (together_ || !backend_.continuer()->wind_down()) return {};
  coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = 0;
  for (;;) {
    DOPPLER_ASSIGN(const auto tokens, backend_.continuer()->next_tokens());
    if (tokens.empty()) return {};
    coming_.insert(coming_.end(), tokens.begin(), tokens.end());
  }
}

std::string_view Session::why_no_guesses() const {
  if (is_recurrent(backend_.plan().kv_layers))
    return "The states of the model's recurrent layers go on with each token and cannot go back.";
  if (backend_.cache() == nullptr) return "The backend's cache cannot be cut.";
  if (tap_ != nullptr || traced_categories() != 0)
    return "Somebody looks inside, and would see tokens that are not kept.";
  if (backend_.options().fault != nullptr) return "A fault that was put in acts on steps of single tokens.";
  return {};
}

void Session::tell_new_fallbacks() {
  const std::vector<Fallback>& all = backend_.fallbacks();
  tell_fallbacks(std::span(all).subspan(told_));
  told_ = all.size();
}

// The step that feeds the next token.
void Session::begin_trace_step() {
  trace_step_ = static_cast<std::int64_t>(cached_.size() - prompt_length_) + 1;
}

std::span<const float> Session::shown_logits() const {
  return logits_tap_ ? logits_tap_->newest() : std::span<const float>();
}

bool Session::can_continue(const GenerateOptions& sampling) {
  for (std::size_t layer = 0; tap_ != nullptr && layer < backend_.plan().kv_layers.size(); ++layer) {
    // No backend shows attention scores while it generates by itself.
    if (tap_->wants(Stage::kAttnScores, static_cast<int>(layer))) return false;
  }
  // Beside others that continue together, one that cannot join them runs step by step.
  const bool blocked = company_ != nullptr && company_->size() > 0 && !may_share();
  const bool can = !blocked && backend_.can_continue(sampling);
  tell_new_fallbacks();
  return can;
}

// Whether there is company, room in it, and nobody who looks at the tokens as they are made.
bool Session::may_share() const {
  return company_ != nullptr && tap_ == nullptr && !shows_logits_ && !trace_wanted(Category::kSample) &&
         backend_.continuer() != nullptr && company_->size() < backend_.continuer()->most_together();
}

Status Session::begin_continuation(std::span<const TokenId> history, std::uint64_t most,
                                   const GenerateOptions& sampling, std::uint64_t draw, TokenId pad_id,
                                   std::span<const TokenId> stops, std::span<const TokenId> guesses) {
  held_.reset();
  logits_tap_.reset();
  if (shows_logits_ || trace_wanted(Category::kSample))
    logits_tap_.emplace(backend_.plan().values[backend_.plan().logits].stage);
  taps_ = TapList();
  taps_.add(logits_tap_ ? &*logits_tap_ : nullptr).add(tap_);
  if (Tap* const tap = taps_.get(); tap != nullptr) held_.emplace(*tap);
  newest_ = history.back();
  wish_ = {std::min(most, backend_.options().context - cached_.size()), draw, &sampling, pad_id, stops};
  Status begun = continue_from(company_ != nullptr && company_->is_wanted() && may_share(), guesses);
  if (!begun) newest_.reset();
  return begun;
}

// Continues after the newest token: in company, or alone, where guesses may be checked.
Status Session::continue_from(bool together, std::span<const TokenId> guesses) {
  std::vector<TokenId> history = cached_;
  history.push_back(*newest_);
  const Continuation continuation = {.slot = slot_,
                                     .id = *newest_,
                                     .most = wish_.most,
                                     .sampling = wish_.sampling,
                                     .history = history,
                                     .draw = wish_.draw,
                                     .pad_id = wish_.pad_id,
                                     .stops = wish_.stops,
                                     .tap = held_ ? &*held_ : nullptr,
                                     .guesses = guesses};
  DOPPLER_TRY(together ? company_->join(backend_, continuation)
                       : backend_.continuer()->continue_sequence(continuation));
  together_ = together;
  guessing_ = !together && !guesses.empty();
  coming_.clear();
  given_ = 0;
  return {};
}

// The cache then holds what cached_ says.
Status Session::stop() {
  return together_ ? company_->leave(backend_, slot_, cached_.size())
                   : backend_.continuer()->stop_sequence(cached_.size());
}

// The cache's contents after a failed continuation are unknown, so they are dropped.
void Session::forget_continuation() {
  newest_.reset();
  clear();
}

Status Session::fetch() {
  // Company comes and goes; alone, a sequence has faster kernels.
  const bool changes =
      together_ ? company_->is_lonely() : company_ != nullptr && company_->is_wanted() && may_share();
  if (changes) {
    DOPPLER_TRY(stop());
    DOPPLER_TRY(continue_from(!together_));
  }
  std::vector<TokenId> more;
  if (together_) {
    DOPPLER_ASSIGN(more, company_->next(backend_, slot_));
  } else {
    auto tokens = backend_.continuer()->next_tokens();
    const bool wrong = !tokens && tokens.error().code == ErrorCode::kMismatch;
    if (guessing_ && (wrong || (tokens && tokens->empty()))) {
      DOPPLER_TRY(wrong ? forget_guesses() : stop());
      DOPPLER_TRY(continue_from(false));
      tokens = backend_.continuer()->next_tokens();
    }
    DOPPLER_TRY(tokens);
    more.assign(tokens->begin(), tokens->end());
  }
  if (more.empty()) {
    return fail(ErrorCode::kInternal, "The {} backend stops after {} tokens, though the context holds {}.",
                backend_.name(), cached_.size(), backend_.options().context);
  }
  coming_ = std::move(more);
  given_ = 0;
  return {};
}

// After a device went on with other tokens than it gave, nobody knows what its cache holds.
Status Session::forget_guesses() {
  backend_.note({"No tokens are guessed ahead.",
                 "The device went on with other tokens than its check of guesses had given."});
  tell_new_fallbacks();
  checks_rightly_ = false;
  (void)backend_.continuer()->stop_sequence(cached_.size());
  backend_.clear(slot_);
  return feed_lost();
}

Result<TokenId> Session::next() {
  if (given_ == coming_.size()) {
    if (Status fetched = fetch(); !fetched) {
      if (together_)
        (void)company_->leave(backend_, slot_, cached_.size());
      else
        (void)backend_.continuer()->stop_sequence(cached_.size() + 1);
      forget_continuation();
      return std::unexpected(std::move(fetched).error());
    }
  }
  const TokenId id = coming_[given_++];
  if (id == kNoRoom) return std::unexpected(backend_.cache()->no_room(slot_));
  begin_trace_step();
  if (trace_wanted(Category::kKv, -1, trace_step_))
    trace_kv(backend_.plan(), backend_.options(), {slot_, cached_.size(), 1, trace_step_});
  if (held_) held_->release(static_cast<std::int64_t>(cached_.size()));
  cached_.push_back(*newest_);
  newest_ = id;
  ++wish_.draw;
  --wish_.most;
  if (id >= 0) return id;
  return std::unexpected(no_token_error(cached_.size()));
}

Status Session::end_continuation() {
  if (!newest_) return {};
  newest_.reset();
  Status ended = stop();
  held_.reset();
  logits_tap_.reset();
  if (ended) ended = feed_lost();
  if (!ended) forget_continuation();
  return ended;
}

// Feeds the tokens that a continuation's end has lost: the states of recurrent layers go back to certain
// places only, and what wrong guesses have spoilt is dropped. They have been seen, so that no tap sees them
// again.
Status Session::feed_lost() {
  const auto kept = static_cast<std::size_t>(backend_.length(slot_));
  if (kept >= cached_.size()) return {};
  const std::vector<TokenId> lost(cached_.begin() + static_cast<std::ptrdiff_t>(kept), cached_.end());
  cached_.resize(kept);
  Tap* const tap = std::exchange(tap_, nullptr);
  Status fed;
  for (std::size_t begin = 0; fed && begin < lost.size();) {
    const std::size_t count = std::min<std::size_t>(step_tokens(backend_.options()), lost.size() - begin);
    if (const auto logits = feed(std::span(lost).subspan(begin, count), 0); !logits)
      fed = std::unexpected(logits.error());
    begin += count;
  }
  tap_ = tap;
  return fed;
}

}  // namespace doppler
