#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace doppler::bench {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> out(values.begin(), values.end());
  std::sort(out.begin(), out.end());
  return out;
}

double middle(const std::vector<double>& values) {
  const std::size_t half = values.size() / 2;
  if (values.empty()) return 0;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double median(std::span<const double> values) {
  return middle(sorted(values));
}

std::size_t interval_rank(std::size_t count) {
  // Each value lies below the median with probability 1/2, so the number below is binomial: the k-th smallest
  // and the k-th largest fail to enclose it with probability 2 P(fewer than k below).
  constexpr double kMiss = 0.05;
  std::size_t rank = 0;
  double term = std::exp2(-static_cast<double>(count)), below = 0;
  for (std::size_t k = 1; 2 * k <= count + 1; ++k) {
    below += term;
    if (2 * below > kMiss) break;
    rank = k;
    term *= static_cast<double>(count - k + 1) / static_cast<double>(k);
  }
  return rank;
}

Summary summarise(std::span<const double> values) {
  Summary summary{.count = values.size()};
  if (values.empty()) return summary;
  const std::vector<double> ordered = sorted(values);
  const std::size_t rank = std::max<std::size_t>(interval_rank(ordered.size()), 1);
  summary.median = middle(ordered);
  summary.low = ordered[rank - 1];
  summary.high = ordered[ordered.size() - rank];
  summary.min = ordered.front();
  summary.max = ordered.back();
  summary.runs.assign(values.begin(), values.end());
  return summary;
}

Percentiles percentiles(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> ordered = sorted(values);
  const auto rank = [&](std::size_t hundredths) {
    return ordered[(ordered.size() * hundredths + 99) / 100 - 1];
  };
  return {.p50 = rank(50), .p99 = rank(99)};
}

std::vector<double> largest_of_groups(std::span<const double> values, std::size_t most) {
  std::vector<double> out;
  if (most == 0) return out;
  const std::size_t group = std::max<std::size_t>(1, (values.size() + most - 1) / most);
  for (; !values.empty(); values = values.subspan(std::min(group, values.size())))
    out.push_back(std::ranges::max(values.first(std::min(group, values.size()))));
  return out;
}

Summary summarise_ratios(std::span<const double> numerator, std::span<const double> denominator) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(numerator.size(), denominator.size()); ++i)
    ratios.push_back(numerator[i] / denominator[i]);
  return summarise(ratios);
}

}  // namespace doppler::bench
