#include "engine/token_source.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace doppler {

using Clock = std::chrono::steady_clock;

// A check takes as long as some steps of one token.
static constexpr std::size_t kLeastChecked = 4;

TokenId masked_pad(const ModelSpec& spec) {
  const bool ends = std::find(spec.eos_ids.begin(), spec.eos_ids.end(), spec.pad_id) != spec.eos_ids.end();
  return ends ? -1 : spec.pad_id;
}

TokenSource::TokenSource(Session& session, const GenerateOptions& options, const ModelSpec& spec,
                         std::span<const float> first)
    : session_(session),
      options_(options),
      pad_id_(masked_pad(spec)),
      stops_(options.ignore_eos ? std::span<const TokenId>() : spec.eos_ids),
      sampler_(options, pad_id_),
      logits_(first) {
  begin_speculation();
}

void TokenSource::begin_speculation() {
  if (options_.speculate == 0 || session_.checks_wrongly()) return;
  Backend& backend = session_.backend();
  const bool asked = options_.speculate > 0;
  if (const std::string_view why = session_.why_no_guesses(); !why.empty()) {
    if (asked) backend.note({"No tokens are guessed ahead.", std::string(why)});
    return;
  }
  // What a run says must not hang on what it guesses, unless somebody wants that.
  const bool agrees = backend.rows_that_agree() > 1;
  checks_ = agrees && options_.logprobs < 0 && backend.continuer() != nullptr &&
            backend.continuer()->can_check(options_);
  // Beside a backend that continues by itself, rows that the host draws from hardly pay.
  if (!asked && (!agrees || (backend.continuer() != nullptr && !checks_))) return;
  if (!agrees) {
    backend.note({"Tokens that are guessed ahead are computed in steps of several tokens.",
                  "These sum in another order than single ones, so that another token may come where two are "
                  "almost equally likely."});
  }
  speculation_.emplace(
      asked ? static_cast<std::size_t>(options_.speculate) : 0,
      static_cast<std::size_t>(std::min<std::uint64_t>(
          backend.options().context, std::uint64_t{session_.cached().size()} + options_.max_tokens)),
      checks_ ? std::span<const std::size_t>(Pace::kOneSize) : Pace::kSizes);
}

std::span<const float> TokenSource::logits() const {
  if (continues_) return session_.shown_logits();
  if (ready_.empty()) return logits_;
  const std::size_t width = rows_.size() / ready_.size();
  return std::span(rows_).subspan((given_ - 1) * width, width);
}

// Whether to leave the continuation. The kernels that the first checks take are worth it for longer answers.
bool TokenSource::guesses_convince(std::size_t drawn) {
  constexpr std::uint64_t kLeastLeft = 64;
  const bool may_prepare =
      !checks_ || prepared_ > 0 || speculation_->is_asked() || options_.max_tokens >= drawn + kLeastLeft;
  return may_prepare && speculation_->convinces();
}

// Where the backend cannot it goes on as it does.
bool TokenSource::prepare_checks() {
  if (!checks_ || prepared_ > 0) return true;
  const std::size_t size = speculation_->next_size();
  if (session_.prepare_check(size, options_)) {
    prepared_ = size;
  } else {
    speculation_.reset();
  }
  return prepared_ > 0;
}

// Whether a continuation by tokens is to give way to guesses, or one by guesses to tokens.
bool TokenSource::is_to_end(std::size_t drawn) {
  if (guessing_) return session_.more() == 0 && speculation_->tires();
  return speculation_ && session_.is_alone() && guesses_convince(drawn) && prepare_checks();
}

Status TokenSource::leave_continuation() {
  continues_ = ends_ = guessing_ = false;
  return session_.end_continuation();
}

// Whether the backend checks guesses rightly. Where it can, it then continues with guesses of its own, if
// nobody else wants to join.
Result<bool> TokenSource::begin_checks(std::span<const TokenId> history, std::size_t drawn) {
  DOPPLER_ASSIGN(const bool rightly, session_.checks_rightly(history, options_, drawn, pad_id_));
  if (!rightly) {
    speculation_.reset();
    return false;
  }
  const auto guesses = speculation_->draft(most_guesses(history, drawn));
  if (guesses.size() < kLeastChecked || guesses.size() + 1 != prepared_ ||
      !session_.backend().continuer()->can_guess(options_, guesses.size()))
    return true;
  DOPPLER_TRY(session_.begin_continuation(history, options_.max_tokens - drawn, options_, drawn, pad_id_,
                                          stops_, guesses));
  speculation_->begin_checks(1 + guesses.size());
  guessing_ = session_.is_guessing();
  return continues_ = true;
}

// Whether the backend generates the token after `history` by itself.
Result<bool> TokenSource::continues(std::span<const TokenId> history, std::size_t drawn) {
  bool goes_on = true;  // with guesses
  if (continues_) {
    if (guessing_ && !session_.is_guessing()) {  // there is company, or no room
      guessing_ = warm_ = false;
      count_anew();
    }
    if (!ends_ && is_to_end(drawn)) {
      ends_ = true;
      DOPPLER_TRY(session_.wind_down());
    }
    if (!ends_ || session_.more() > 0) return true;
    goes_on = !guessing_;
    DOPPLER_TRY(leave_continuation());
    if (goes_on) count_anew();
    if (goes_on && checks_) {
      DOPPLER_ASSIGN(goes_on, begin_checks(history, drawn));
      if (continues_) return true;
    }
  }
  const bool guesses = speculation_ && session_.is_alone();
  const bool begins =
      drawn == 1 || !goes_on || (speculation_ && drawn > 0 && (!guesses || speculation_->disappoints()));
  if (!begins || !session_.can_continue(options_)) return false;
  const Status begun =
      session_.begin_continuation(history, options_.max_tokens - drawn, options_, drawn, pad_id_, stops_);
  // A backend that cannot show the tap's stages while it generates by itself runs step by step instead.
  if (!begun && begun.error().code != ErrorCode::kUnsupported) return std::unexpected(begun.error());
  if (speculation_ && drawn > 1) speculation_->was_away(counted_, seconds_);
  warm_ = false;
  count_anew();
  return continues_ = begun.has_value();
}

// The next token of a continuation; what it costs is what guesses have to beat.
Result<TokenId> TokenSource::next_by_itself() {
  if (!speculation_ || ends_) return session_.next();
  if (guessing_) return next_guessed();
  constexpr std::size_t kCounted = 16;  // two submissions, since a submission's tokens come together
  const auto begin = Clock::now();
  DOPPLER_ASSIGN(const TokenId id, session_.next());
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (++counted_ == kCounted) {
    // The first ones wait for each other.
    if (std::exchange(warm_, true)) speculation_->took(1, seconds_ / kCounted, kCounted);
    count_anew();
  }
  return id;
}

// The next token of a continuation with guesses, of which a check gives some at once.
Result<TokenId> TokenSource::next_guessed() {
  ++counted_;
  if (session_.more() > 0) {
    ++guessed_right_;
    return session_.next();
  }
  const auto begin = Clock::now();
  DOPPLER_ASSIGN(const TokenId id, session_.next());
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  seconds_ += seconds;
  if (session_.is_guessing()) {
    guessed_ += prepared_ - 1;
    speculation_->brought(1 + session_.more(), seconds);
  }
  return id;
}

Result<TokenId> TokenSource::next(std::span<const TokenId> history, std::size_t drawn) {
  if (given_ < ready_.size()) return ready_[given_++];
  ready_.clear();
  rows_.clear();
  given_ = 0;
  if (speculation_) speculation_->follow(history);
  DOPPLER_ASSIGN(const bool by_itself, continues(history, drawn));
  if (by_itself) return next_by_itself();
  if (drawn > 0) return step(history, drawn);
  return sampler_.sample(logits_, history, drawn);
}

// Guesses that leave room for the token behind them: in the answer, in the context, and in a step.
std::size_t TokenSource::most_guesses(std::span<const TokenId> history, std::size_t drawn) const {
  const BackendOptions& backend = session_.backend().options();
  const std::size_t rows = session_.backend().rows_that_agree(), agreeing = rows > 1 ? rows - 1 : SIZE_MAX;
  return static_cast<std::size_t>(
      std::min<std::uint64_t>({options_.max_tokens - drawn - 1, backend.context - history.size(),
                               std::uint64_t{step_tokens(backend)} - 1, agreeing}));
}

Result<TokenId> TokenSource::step(std::span<const TokenId> history, std::size_t drawn) {
  std::span<const TokenId> guesses;
  if (speculation_ && session_.is_alone()) guesses = speculation_->draft(most_guesses(history, drawn));
  fed_.assign({history.back()});
  fed_.insert(fed_.end(), guesses.begin(), guesses.end());
  const bool by_backend = checks_ && guesses.size() >= kLeastChecked;
  return by_backend ? check_ahead(history, drawn, guesses) : step_ahead(history, drawn, guesses);
}

// Takes the tokens of a step that the backend has checked.
Result<TokenId> TokenSource::check_ahead(std::span<const TokenId> history, std::size_t drawn,
                                         std::span<const TokenId> guesses) {
  const auto begin = Clock::now();
  DOPPLER_ASSIGN(const std::span<const TokenId> chosen,
                 session_.check(fed_, history, options_, drawn, pad_id_));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    // Logits that are broken are met again by the step that comes to them.
    if (chosen[i] < 0 && i > 0) break;
    ready_.push_back(chosen[i]);
    const bool ends = std::ranges::find(stops_, chosen[i]) != stops_.end();
    if (ends || i == guesses.size() || chosen[i] != guesses[i]) break;
  }
  speculation_->took(fed_.size(), seconds);
  seconds_ += seconds;
  counted_ += ready_.size();
  if (ready_[0] < 0) {
    ready_.clear();
    return std::unexpected(no_token_error(history.size()));
  }
  return take_ready(history, guesses);
}

// Takes the tokens of a step whose rows the host draws from; without guesses the one that follows.
Result<TokenId> TokenSource::step_ahead(std::span<const TokenId> history, std::size_t drawn,
                                        std::span<const TokenId> guesses) {
  const auto begin = Clock::now();
  DOPPLER_ASSIGN(logits_, session_.append(fed_));
  // A backend that checks by itself is not asked for single tokens else.
  if (speculation_ && !checks_)
    speculation_->took(fed_.size(), std::chrono::duration<double>(Clock::now() - begin).count());
  if (guesses.empty()) return sampler_.sample(logits_, history, drawn);
  const Status sampled = draw_rows(logits_, history, drawn, guesses);
  DOPPLER_ASSIGN(const TokenId first, take_ready(history, guesses));
  if (!sampled) return std::unexpected(sampled.error());
  return first;
}

// The first of the tokens that a step with guesses has given. The cache then holds all of them but the last.
Result<TokenId> TokenSource::take_ready(std::span<const TokenId> history, std::span<const TokenId> guesses) {
  guessed_ += guesses.size();
  const std::size_t right = ready_.empty() ? 0 : ready_.size() - 1;
  guessed_right_ += right;
  if (!session_.cut(history.size() + right)) {
    return fail(ErrorCode::kInternal, "The {} backend's cache cannot be cut by {} tokens.",
                session_.backend().name(), guesses.size() - right);
  }
  return ready_.empty() ? kNoToken : ready_[given_++];
}

// Draws as steps of one token would: from row after row, as long as what is drawn was guessed. Logits that
// are broken are met again by the step that comes to them.
Status TokenSource::draw_rows(std::span<const float> rows, std::span<const TokenId> history,
                              std::size_t drawn, std::span<const TokenId> guesses) {
  const std::size_t width = rows.size() / (guesses.size() + 1);
  sequence_.assign(history.begin(), history.end());
  for (std::size_t i = 0; i <= guesses.size(); ++i) {
    const std::span<const float> row = rows.subspan(i * width, width);
    const Result<TokenId> id = sampler_.sample(row, sequence_, drawn + i);
    if (!id && i > 0) return {};
    DOPPLER_TRY(id);
    ready_.push_back(*id);
    if (options_.logprobs >= 0) rows_.insert(rows_.end(), row.begin(), row.end());
    const bool ends = std::ranges::find(stops_, *id) != stops_.end();
    if (ends || i == guesses.size() || *id != guesses[i]) return {};
    sequence_.push_back(*id);
  }
  return {};
}

void TokenSource::drop_ready() {
  const std::size_t left = ready_.size() - given_;
  if (left > 0) session_.cut(session_.cached().size() - left);
  given_ = ready_.size();
}

Status TokenSource::end() {
  drop_ready();
  return leave_continuation();
}

}  // namespace doppler
