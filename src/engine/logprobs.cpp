#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace doppler {
namespace {

// The logarithm of the sum of all exponentials, without overflow.
double log_sum(std::span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) largest = std::max(largest, logit);  // NaN is never larger
  double sum = 0;
  for (const float logit : logits)
    if (!std::isnan(logit)) sum += std::exp(double{logit} - largest);
  return largest + std::log(sum);
}

// With logits in place of log probabilities.
std::vector<LikelyToken> largest_of(std::span<const float> logits, std::size_t most) {
  const auto better = [](const LikelyToken& a, const LikelyToken& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
  };
  std::vector<LikelyToken> best;
  for (std::size_t i = 0; i < logits.size() && most > 0; ++i) {
    if (std::isnan(logits[i])) continue;
    const LikelyToken token{static_cast<TokenId>(i), logits[i]};
    if (best.size() == most && !better(token, best.back())) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), token, better), token);
    if (best.size() > most) best.pop_back();
  }
  return best;
}

std::vector<LikelyToken> likeliest_of(std::span<const float> logits, std::size_t most, double total) {
  std::vector<LikelyToken> best = largest_of(logits, most);
  for (LikelyToken& token : best) token.logprob = static_cast<float>(double{token.logprob} - total);
  return best;
}

}  // namespace

std::vector<LikelyToken> likeliest_tokens(std::span<const float> logits, std::size_t most) {
  return likeliest_of(logits, most, log_sum(logits));
}

TokenLogprobs logprobs_of(std::span<const float> logits, TokenId id, std::size_t top) {
  const double total = log_sum(logits);
  return {.id = id,
          .logprob = static_cast<float>(double{logits[static_cast<std::size_t>(id)]} - total),
          .top = likeliest_of(logits, top, total)};
}

}  // namespace doppler
