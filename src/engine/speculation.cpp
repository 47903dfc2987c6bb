#include "engine/speculation.h"

#include <algorithm>

namespace doppler {
namespace {

// Of running means: the last dozen guesses, and the last few steps or checks, decide.
constexpr double kGuessWeight = 1.0 / 8, kStepWeight = 1.0 / 4, kCheckWeight = 1.0 / 2;
// Steps of several tokens must promise so much more than single ones, so that noise does not choose them.
constexpr double kWorthIt = 1.05;
// The first step of several tokens has four, or the next size: with fewer little is learnt, and more cost
// more if they fail.
constexpr std::size_t kTrialRows = 4;
// What a trial needs: guesses that would have been right lately, and single steps since the last, of which a
// trial that fails altogether costs 2 %, if each of its rows costs as much as they do.
constexpr double kTrialOdds = 0.5;
constexpr std::size_t kTrialAgrees = 8, kTrialDistance = 150;

std::size_t class_of(std::size_t agreed) {
  return agreed < 4 ? 0 : agreed < 8 ? 1 : 2;
}

void approach(double& mean, double value, double weight) {
  mean += (value - mean) * weight;
}

// Tokens that a step of so many brings: the guesses up to the first wrong one, and the one that is drawn in
// its place.
double expected_tokens(double odds, std::size_t rows) {
  double tokens = 0, reaches = 1;
  for (std::size_t i = 0; i < rows; ++i, reaches *= odds) tokens += reaches;
  return tokens;
}

}  // namespace

void Pace::judge(std::size_t agreed, bool right) {
  approach(right_[class_of(agreed)], right ? 1 : 0, kGuessWeight);
}

// What agrees for longer is no worse than what agrees for less.
double Pace::odds(std::size_t agreed) const {
  return *std::max_element(right_.begin(),
                           right_.begin() + static_cast<std::ptrdiff_t>(class_of(agreed)) + 1);
}

void Pace::took(std::size_t rows, double seconds, std::size_t times) {
  since_trial_ = rows > 1 ? 0 : since_trial_ + times;
  const auto at = std::ranges::find(sizes_, rows);
  if (at == sizes_.end()) return;
  double& mean = seconds_[static_cast<std::size_t>(at - sizes_.begin())];
  if (mean == 0)
    mean = seconds;
  else
    approach(mean, std::min(seconds, 2 * mean), kStepWeight);  // an interruption counts little
}

// Of a size that was not measured: in proportion to the next smaller one that was, or else to a larger one.
double Pace::seconds(std::size_t size) const {
  if (seconds_[size] > 0) return seconds_[size];
  std::size_t known = size;
  while (known > 1 && seconds_[known] == 0) --known;
  if (seconds_[known] == 0 || known == 0) {
    known = size;
    while (known + 1 < sizes_.size() && seconds_[known] == 0) ++known;
  }
  const double share = static_cast<double>(sizes_[size] - 1) / static_cast<double>(sizes_[known] - 1);
  return seconds_[0] + std::max(0.0, seconds_[known] - seconds_[0]) * share;
}

double Pace::of(std::size_t rows) const {
  const auto at = std::ranges::find(sizes_, rows);
  return at == sizes_.end() ? 0 : seconds(static_cast<std::size_t>(at - sizes_.begin()));
}

std::size_t Pace::guesses(std::size_t agreed) {
  if (seconds_[0] == 0) return 0;
  const double likely = odds(agreed);
  const bool measured = std::any_of(seconds_.begin() + 1, seconds_.end(), [](double s) { return s > 0; });
  const bool may_try = agreed >= kTrialAgrees && likely >= kTrialOdds;
  const std::size_t trial = *std::ranges::lower_bound(sizes_, kTrialRows) - 1;
  if (!measured) return may_try ? trial : 0;
  std::size_t best = 0;
  double most = kWorthIt / seconds_[0];
  for (std::size_t size = 1; size < sizes_.size(); ++size) {
    const double rate = expected_tokens(likely, sizes_[size]) / seconds(size);
    if (rate > most) most = rate, best = size;
  }
  // What was measured once may have been an interruption.
  if (best == 0 && may_try && since_trial_ >= kTrialDistance) return trial;
  return sizes_[best] - 1;
}

void Speculation::follow(std::span<const TokenId> history) {
  const bool is_prompt = drafter_.tokens().empty();
  for (const TokenId id : history.subspan(drafter_.tokens().size())) {
    if (!is_prompt) {
      const bool guessed = drafter_.agreed() > 0, right = guessed && drafter_.guess() == id;
      if (guessed) pace_.judge(drafter_.agreed(), right);
      in_a_row_ = right ? in_a_row_ + 1 : 0;
      approach(lately_, right ? 1 : 0, kGuessWeight);
    }
    drafter_.push(id);
  }
}

bool Speculation::convinces() {
  return in_a_row_ >= convincing_ && (is_asked() || pace_.guesses(drafter_.agreed()) > 0);
}

bool Speculation::disappoints() {
  if (is_asked()) return lately_ < 0.5;
  return drafter_.agreed() == 0 || pace_.guesses(drafter_.agreed()) == 0;
}

void Speculation::brought(std::size_t tokens, double seconds) {
  pace_.took(rows_, seconds);
  approach(brought_, static_cast<double>(tokens), kCheckWeight);
}

bool Speculation::tires() const {
  return is_asked() ? brought_ < 2 : brought_ * pace_.of_one() < pace_.of(rows_);
}

void Speculation::was_away(std::size_t tokens, double seconds) {
  if (is_asked()) return;
  // What beginning anew costs, in tokens (H100): the first wait for each other.
  constexpr double kBegin = 8;
  const bool paid = seconds < (static_cast<double>(tokens) - kBegin) * pace_.of_one();
  convincing_ = paid ? kConvincing : std::min(2 * convincing_, kMostConvincing);
}

std::span<const TokenId> Speculation::draft(std::size_t most) {
  const std::size_t count = drafter_.agreed() == 0 ? 0
                            : asked_ > 0           ? asked_
                                                   : pace_.guesses(drafter_.agreed());
  drafter_.draft(std::min(count, most), guesses_);
  return guesses_;
}

}  // namespace doppler
