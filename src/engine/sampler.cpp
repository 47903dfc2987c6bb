#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/philox.h"

namespace doppler {

Status check_generate_options(const GenerateOptions& o, std::uint32_t vocab_size) {
  struct Bound {
    const char* name;
    double value, low, high;
    const char* range;
  };
  // Far beyond any use, and small enough that no sum or product of them leaves the range of a double.
  constexpr double kMost = 1e30;
  const Bound bounds[] = {
      {"temperature", o.temperature, 0, kMost, "0 (greedy) or more"},
      {"top-p", o.top_p, 0, 1, "between 0 and 1"},
      {"min-p", o.min_p, 0, 1, "between 0 and 1"},
      {"repeat-penalty", o.repeat_penalty, 1e-6, kMost, "above 0; 1 is off"},
      {"presence-penalty", o.presence_penalty, -kMost, kMost, "a number, 0 is off"},
      {"frequency-penalty", o.frequency_penalty, -kMost, kMost, "a number, 0 is off"},
  };
  for (const Bound& b : bounds) {
    if (b.value >= b.low && b.value <= b.high) continue;  // NaN fails both
    return fail(ErrorCode::kUsage, "The {} {} is out of range; it must be {}.", b.name, b.value, b.range);
  }
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab_size) {
      return fail(ErrorCode::kUsage, "The logit bias {}={} names no token; ids go from 0 to {}.", id, bias,
                  vocab_size - 1);
    }
    // Minus infinity rules a token out; plus infinity would leave no probabilities.
    if (std::isnan(bias) || bias > kMost) {
      return fail(ErrorCode::kUsage,
                  "The logit bias {}={} is out of range; it must be a number, or -inf to rule "
                  "the token out.",
                  id, bias);
    }
  }
  for (const std::string& stop : o.stop) {
    if (stop.empty())
      return fail(ErrorCode::kUsage, "A stop string is empty, which would stop at once. Leave it out.");
  }
  return {};
}

// Likelier first; of equals the lower id, so that the order is the same everywhere.
static constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
};

void Sampler::penalise(std::span<const TokenId> history) {
  const bool off =
      options_.repeat_penalty == 1 && options_.presence_penalty == 0 && options_.frequency_penalty == 0;
  if (!off) {
    if (options_.penalty_window != 0 && history.size() > options_.penalty_window)
      history = history.last(options_.penalty_window);
    std::map<TokenId, double> counts;
    for (const TokenId id : history) ++counts[id];
    for (const auto& [id, count] : counts) {
      double& score = candidates_[static_cast<std::size_t>(id)].score;
      score = score > 0 ? score / options_.repeat_penalty : score * options_.repeat_penalty;
      score -= options_.presence_penalty + options_.frequency_penalty * count;
    }
  }
  for (const auto& [id, bias] : options_.logit_bias) candidates_[static_cast<std::size_t>(id)].score += bias;
  if (pad_id_ >= 0)
    candidates_[static_cast<std::size_t>(pad_id_)].score = -std::numeric_limits<double>::infinity();
}

void Sampler::keep_top_k() {
  if (options_.top_k == 0 || options_.top_k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), kLikelier);
  candidates_.resize(options_.top_k);
}

// Candidates are sorted; cuts them where top-p and min-p say, and the probabilities with them.
void Sampler::keep_probable(std::vector<double>& probabilities) {
  double sum = 0;
  std::size_t keep = 0;
  while (keep < probabilities.size()) {
    // What is ruled out never wins, not even by rounding.
    const double p = probabilities[keep];
    if (keep > 0 && (sum >= options_.top_p || p < options_.min_p * probabilities[0] || p == 0)) break;
    sum += probabilities[keep++];
  }
  probabilities.resize(keep);
  candidates_.resize(keep);
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                                std::uint64_t draw) {
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      return fail(ErrorCode::kMismatch,
                  "The logit of token {} is {} after {} tokens, so the weights or the computation are "
                  "broken. Run doppler compare with a recording to find the first wrong stage.",
                  i, logits[i], history.size());
    }
    candidates_[i] = {logits[i], static_cast<TokenId>(i)};
  }
  penalise(history);
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), kLikelier);
  if (best == candidates_.end() || best->score == -std::numeric_limits<double>::infinity()) {
    return fail(ErrorCode::kMismatch, "Every token is ruled out after {} tokens. Loosen the logit biases.",
                history.size());
  }
  if (options_.temperature == 0) return best->id;

  const double largest = best->score;
  keep_top_k();
  std::sort(candidates_.begin(), candidates_.end(), kLikelier);
  std::vector<double> probabilities(candidates_.size());
  double total = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    total += probabilities[i] = std::exp((candidates_[i].score - largest) / options_.temperature);
  }
  for (double& p : probabilities) p /= total;
  keep_probable(probabilities);
  double left = 0;
  for (const double p : probabilities) left += p;
  const double target = uniform(options_.seed, draw) * left;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < probabilities.size(); ++i) {
    sum += probabilities[i];
    if (target < sum) return candidates_[i].id;
  }
  return candidates_.back().id;
}

}  // namespace doppler
