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

// The largest, best first; of equals the lower id. Without probabilities.
std::vector<Likely> largest_of(std::span<const float> logits, std::size_t most) {
  const auto better = [](const Likely& a, const Likely& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  std::vector<Likely> best;
  for (std::size_t i = 0; i < logits.size() && most > 0; ++i) {
    if (std::isnan(logits[i])) continue;
    const Likely token{static_cast<TokenId>(i), logits[i], 0};
    if (best.size() == most && !better(token, best.back())) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), token, better), token);
    if (best.size() > most) best.pop_back();
  }
  return best;
}

}  // namespace

std::vector<Likely> likeliest(std::span<const float> logits, std::size_t most, double temperature) {
  std::vector<Likely> best = largest_of(logits, most);
  if (best.empty()) return best;
  const double scale = temperature > 0 ? 1 / temperature : 1;
  const auto weight = [&](float logit) { return std::exp((double{logit} - best[0].logit) * scale); };
  double sum = 0;
  for (const float logit : logits)
    if (!std::isnan(logit)) sum += weight(logit);
  for (Likely& token : best) token.probability = weight(token.logit) / sum;
  return best;
}

TokenLogprobs logprobs_of(std::span<const float> logits, TokenId id, std::size_t top) {
  const double total = log_sum(logits);
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - total); };
  TokenLogprobs made{.id = id, .logprob = logprob(logits[static_cast<std::size_t>(id)])};
  for (const Likely& token : largest_of(logits, top)) made.top.push_back({token.id, logprob(token.logit)});
  return made;
}

double token_loss(std::span<const float> logits, TokenId target) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return std::log(sum) + top - static_cast<double>(logits[static_cast<std::size_t>(target)]);
}

}  // namespace doppler
