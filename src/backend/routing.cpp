#include "backend/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace doppler {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

// exp(x - largest) / their sum, in place.
void softmax(std::span<double> values) {
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (double& v : values) sum += v = std::exp(v - largest);
  for (double& v : values) v /= sum;
}

// What experts are chosen by, before any correction.
std::vector<double> scores_of(const RouterSpec& router, std::span<const float> logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (router.score == RouterScore::kSoftmax) softmax(scores);
  if (router.score == RouterScore::kSigmoid) {
    for (double& s : scores) s = logistic(s);
  }
  return scores;
}

// The largest of those that are not taken, the first of equals.
std::size_t best_of(std::span<const double> values, const std::vector<bool>& taken) {
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!taken[i] && (best == values.size() || values[i] > values[best])) best = i;
  }
  return best;
}

// The experts outside of the best groups can not be chosen.
std::vector<bool> shut_out(const RouterSpec& router, std::span<const double> scores) {
  std::vector<bool> out(scores.size());
  if (router.kept_groups >= router.groups) return out;
  const std::size_t size = scores.size() / router.groups;
  std::vector<double> of_group;
  for (std::size_t g = 0; g < router.groups; ++g) {
    std::vector<double> own(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                            scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(own, std::greater());
    double sum = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(router.group_best, size); ++i) sum += own[i];
    of_group.push_back(sum);
  }
  std::vector<bool> kept(router.groups);
  for (std::uint32_t i = 0; i < router.kept_groups; ++i) kept[best_of(of_group, kept)] = true;
  for (std::size_t e = 0; e < scores.size(); ++e) out[e] = !kept[e / size];
  return out;
}

// The first expert's weight is its share of those whose logits lie within the band below the best, the
// second's the same without the first.
void sparse_mix(const RouterSpec& router, std::span<const float> logits, std::span<const float> ids,
                std::span<double> weights) {
  const auto first = static_cast<std::size_t>(ids[0]);
  for (std::size_t i = 0; i < 2; ++i) {
    const double best = logits[static_cast<std::size_t>(ids[i])];
    double sum = 0;
    for (std::size_t e = 0; e < logits.size(); ++e) {
      if (i == 1 && e == first) continue;
      const double l = logits[e], reach = std::max(std::abs(l), best);
      if ((best - l) / reach <= 2 * router.jitter) sum += std::exp(l - best);
    }
    weights[i] = 1 / sum;
  }
}

bool is_expert(float id, std::span<const float> logits) {
  return id >= 0 && id < static_cast<float>(logits.size());
}

}  // namespace

std::vector<double> choice_scores(const RouterSpec& router, std::span<const float> logits,
                                  std::span<const float> correction) {
  std::vector<double> scores = scores_of(router, logits);
  for (std::size_t e = 0; e < correction.size(); ++e) scores[e] += correction[e];
  const std::vector<bool> out = shut_out(router, scores);
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (out[e]) scores[e] = kNever;
  }
  return scores;
}

void choose_experts(const RouterSpec& router, std::span<const float> logits,
                    std::span<const float> correction, std::span<float> ids) {
  std::vector<double> scores = scores_of(router, logits);
  for (std::size_t e = 0; e < correction.size(); ++e) scores[e] += correction[e];
  std::vector<bool> taken = shut_out(router, scores);
  for (float& id : ids) {
    const std::size_t best = best_of(scores, taken);
    taken[best] = true;
    id = static_cast<float>(best);
  }
}

void weigh_experts(const RouterSpec& router, std::span<const float> logits, std::span<const float> ids,
                   std::span<const float> scales, std::span<float> weights) {
  std::vector<double> own(ids.size());
  const bool exist = std::ranges::all_of(ids, [&](float id) { return is_expert(id, logits); });
  if (exist && router.score == RouterScore::kSparseMixer) {
    sparse_mix(router, logits, ids, own);
  } else {
    const std::vector<double> scores = scores_of(router, logits);
    for (std::size_t i = 0; i < ids.size(); ++i)
      own[i] = is_expert(ids[i], logits) ? scores[static_cast<std::size_t>(ids[i])] : kNever;
    if (router.score == RouterScore::kSoftmaxOfChosen) softmax(own);
  }
  double sum = 0;
  for (const double w : own) sum += w;
  const double divisor = router.normalise ? std::max(sum + router.norm_eps, router.norm_floor) : 1;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool there = is_expert(ids[i], logits);
    const double scale = scales.empty() || !there ? 1 : scales[static_cast<std::size_t>(ids[i])];
    weights[i] = there ? static_cast<float>(own[i] / divisor * router.scale * scale) : 0;
  }
}

}  // namespace doppler
