#include "engine/token_source.h"

#include <algorithm>
#include <chrono>

namespace doppler {

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
  if (options_.speculate == 0) return;
  Backend& backend = session_.backend();
  const bool asked = options_.speculate > 0;
  if (const std::string_view why = session_.why_no_guesses(); !why.empty()) {
    if (asked) backend.note({"No tokens are guessed ahead.", std::string(why)});
    return;
  }
  // What a run says must not hang on what it guesses, unless somebody wants that. And what a token costs that
  // comes from a continuation is not known, so that nobody could say what pays.
  if (!asked && (!backend.rows_agree() || backend.continuer() != nullptr)) return;
  if (!backend.rows_agree()) {
    backend.note({"Tokens that are guessed ahead are computed in steps of several tokens.",
                  "These sum in another order than single ones, so that another token may come where two are "
                  "almost equally likely."});
  }
  speculation_.emplace(
      asked ? static_cast<std::size_t>(options_.speculate) : 0,
      static_cast<std::size_t>(std::min<std::uint64_t>(
          backend.options().context, std::uint64_t{session_.cached().size()} + options_.max_tokens)));
}

std::span<const float> TokenSource::logits() const {
  if (continues_) return session_.shown_logits();
  if (ready_.empty()) return logits_;
  const std::size_t width = rows_.size() / ready_.size();
  return std::span(rows_).subspan((given_ - 1) * width, width);
}

// Whether the backend generates the token after `history` by itself.
Result<bool> TokenSource::continues(std::span<const TokenId> history, std::size_t drawn) {
  const bool guesses = speculation_ && session_.is_alone();
  if (continues_) {
    if (!guesses || !speculation_->convinces()) return true;
    DOPPLER_TRY(session_.end_continuation());
    return continues_ = false;
  }
  const bool begins = drawn == 1 || (speculation_ && drawn > 0 && (!guesses || speculation_->disappoints()));
  if (!begins || !session_.can_continue(options_)) return false;
  const Status begun =
      session_.begin_continuation(history, options_.max_tokens - drawn, options_, drawn, pad_id_, stops_);
  // A backend that cannot show the tap's stages while it generates by itself runs step by step instead.
  if (!begun && begun.error().code != ErrorCode::kUnsupported) return std::unexpected(begun.error());
  return continues_ = begun.has_value();
}

Result<TokenId> TokenSource::next(std::span<const TokenId> history, std::size_t drawn) {
  if (given_ < ready_.size()) return ready_[given_++];
  ready_.clear();
  rows_.clear();
  given_ = 0;
  if (speculation_) speculation_->follow(history);
  DOPPLER_ASSIGN(const bool by_itself, continues(history, drawn));
  if (by_itself) return session_.next();
  if (drawn > 0) return step(history, drawn);
  return sampler_.sample(logits_, history, drawn);
}

// Guesses that leave room for the token behind them: in the answer, in the context, and in a step.
std::size_t TokenSource::most_guesses(std::span<const TokenId> history, std::size_t drawn) const {
  const BackendOptions& backend = session_.backend().options();
  return static_cast<std::size_t>(
      std::min<std::uint64_t>({options_.max_tokens - drawn - 1, backend.context - history.size(),
                               std::uint64_t{step_tokens(backend)} - 1}));
}

Result<TokenId> TokenSource::step(std::span<const TokenId> history, std::size_t drawn) {
  using Clock = std::chrono::steady_clock;
  std::span<const TokenId> guesses;
  if (speculation_ && session_.is_alone()) guesses = speculation_->draft(most_guesses(history, drawn));
  fed_.assign({history.back()});
  fed_.insert(fed_.end(), guesses.begin(), guesses.end());
  const auto begin = speculation_ ? Clock::now() : Clock::time_point();
  DOPPLER_ASSIGN(logits_, session_.append(fed_));
  if (speculation_)
    speculation_->took(fed_.size(), std::chrono::duration<double>(Clock::now() - begin).count());
  if (guesses.empty()) return sampler_.sample(logits_, history, drawn);
  return step_ahead(history, drawn, guesses);
}

// Takes the tokens of a step with guesses. The cache then holds all of them but the last.
Result<TokenId> TokenSource::step_ahead(std::span<const TokenId> history, std::size_t drawn,
                                        std::span<const TokenId> guesses) {
  const Status sampled = draw_rows(logits_, history, drawn, guesses);
  guessed_ += guesses.size();
  const std::size_t right = ready_.empty() ? 0 : ready_.size() - 1;
  guessed_right_ += right;
  if (!session_.cut(history.size() + right)) {
    return fail(ErrorCode::kInternal, "The {} backend's cache cannot be cut by {} tokens.",
                session_.backend().name(), guesses.size() - right);
  }
  if (!sampled) return std::unexpected(sampled.error());
  return ready_[given_++];
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
  return session_.end_continuation();
}

}  // namespace doppler
