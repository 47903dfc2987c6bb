#include "diagnosis/look/magnitudes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace doppler::diagnosis {
namespace {

// The largest logit and the sum of exp(x - largest); NaN are left out.
struct Mass {
  double largest = -INFINITY, sum = 0;
  double probability(float logit) const { return std::exp(static_cast<double>(logit) - largest) / sum; }
};

Mass mass_of(std::span<const float> logits) {
  Mass mass;
  for (const float x : logits) {
    if (!std::isnan(x)) mass.largest = std::max<double>(mass.largest, x);
  }
  for (const float x : logits) {
    if (!std::isnan(x)) mass.sum += std::exp(static_cast<double>(x) - mass.largest);
  }
  return mass;
}

}  // namespace

std::string describe_statistics(const Statistics& s, std::size_t width, std::int64_t first_token) {
  const std::size_t columns = std::max<std::size_t>(width, 1);
  std::string text =
      fmt::format("maxAbs={:.5g} at ({},{}) min={:.5g} max={:.5g} mean={:.4g} rms={:.4g}", s.max_abs,
                  first_token + static_cast<std::int64_t>(s.max_abs_index / columns),
                  s.max_abs_index % columns, s.min, s.max, s.mean, s.rms);
  if (s.nan > 0) text += fmt::format(" NaN={}", s.nan);
  if (s.inf > 0) text += fmt::format(" Inf={}", s.inf);
  if (s.zeros == s.count && s.count > 0)
    text += " ALL ZEROS";
  else if (s.zeros > 0)
    text += fmt::format(" zeros={}", s.zeros);
  return text;
}

Rank rank_of(std::span<const float> logits, std::int32_t id) {
  const float logit = logits[static_cast<std::size_t>(id)];
  const auto likelier = std::count_if(logits.begin(), logits.end(), [&](float x) { return x > logit; });
  return {id, logit, mass_of(logits).probability(logit), static_cast<std::size_t>(likelier) + 1};
}

double entropy(std::span<const float> logits) {
  const Mass mass = mass_of(logits);
  double sum = 0;
  for (const float x : logits) {
    const double p = std::isnan(x) ? 0 : mass.probability(x);
    if (p > 0) sum -= p * std::log(p);
  }
  return sum;
}

}  // namespace doppler::diagnosis
