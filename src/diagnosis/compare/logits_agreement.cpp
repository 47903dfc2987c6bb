#include "diagnosis/compare/logits_agreement.h"

#include <algorithm>
#include <cmath>

namespace doppler::diagnosis {
namespace {

// log of the sum of exponentials.
double log_sum(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

// Sum of p (log p - log q).
double divergence(std::span<const float> found, std::span<const float> expected) {
  const double found_sum = log_sum(found), expected_sum = log_sum(expected);
  double sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double log_p = expected[i] - expected_sum, log_q = found[i] - found_sum;
    if (const double p = std::exp(log_p); p > 0) sum += p * (log_p - log_q);
  }
  return std::isnan(sum) ? HUGE_VAL : std::max(sum, 0.0);  // rounding may leave it just below
}

// Between the largest two.
double margin(std::span<const float> row) {
  float first = -INFINITY, second = -INFINITY;
  for (const float x : row) {
    if (x > first)
      second = std::exchange(first, x);
    else if (x > second)
      second = x;
  }
  return static_cast<double>(first) - second;
}

}  // namespace

void LogitsMeter::add(std::span<const float> found, std::span<const float> expected) {
  if (found.empty()) return;
  LogitsAgreement& s = sums_;
  const double kl = divergence(found, expected), lead = margin(expected);
  double error = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - expected[i]);
    error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
  }
  if (argmax(found) == argmax(expected)) ++s.top1_equal;
  if (s.rows == 0 || lead < s.smallest_margin) s.smallest_margin = lead;
  if (kl > s.largest_kl) s.largest_kl = kl, s.largest_kl_row = s.rows;
  if (lead < error && !s.first_unsure) s.first_unsure = s.rows;
  s.mean_kl += (kl - s.mean_kl) / static_cast<double>(s.rows + 1);
  ++s.rows;
}

std::optional<LogitsAgreement> LogitsMeter::result() const {
  return sums_.rows == 0 ? std::nullopt : std::optional(sums_);
}

}  // namespace doppler::diagnosis
