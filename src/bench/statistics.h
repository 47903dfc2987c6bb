// What repeated measurements say: the median, and an interval that makes no assumption about their
// distribution.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace doppler::bench {

struct Summary {
  std::size_t count = 0;
  double median = 0;
  double low = 0, high = 0;  // a 95% confidence interval of the median; all values, below six of them
  double min = 0, max = 0;
};

// The mean of the two middle values where their number is even; 0 of none.
double median(std::span<const double> values);

Summary summarise(std::span<const double> values);

// Of numerator[i] / denominator[i]: measurements that were taken in turns, so that what slowed one round
// slowed both. As many as the shorter has.
Summary summarise_ratios(std::span<const double> numerator, std::span<const double> denominator);

// Which order statistics bound the 95% interval: the interval is [sorted[k - 1], sorted[count - k]]; 0 where
// even the extremes cover less.
std::size_t interval_rank(std::size_t count);

}  // namespace doppler::bench
