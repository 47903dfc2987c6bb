// Statistics of repeated measurements: the median, and a confidence interval without an assumption about
// their distribution.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace doppler::bench {

struct Summary {
  std::size_t count = 0;
  double median = 0;
  double low = 0, high = 0;  // 95% confidence interval of the median; min and max below six values
  double min = 0, max = 0;
  std::vector<double> runs;  // the values, in the order in which they were measured
};

// The mean of the two middle values if their number is even; 0 for no values.
double median(std::span<const double> values);

Summary summarise(std::span<const double> values);

// What half and 99 of a hundred values do not exceed (the nearest ranks); 0 for no values.
struct Percentiles {
  double p50 = 0, p99 = 0;
};
Percentiles percentiles(std::span<const double> values);

// At most `most` values that stand for all: the largest of each of so many equal groups, in order.
std::vector<double> largest_of_groups(std::span<const double> values, std::size_t most);

// Summary of numerator[i] / denominator[i]: the two are measured in turns, so that a slow round slows both.
// As many ratios as the shorter has values.
Summary summarise_ratios(std::span<const double> numerator, std::span<const double> denominator);

// Which order statistics bound the 95% interval: the interval is [sorted[k - 1], sorted[count - k]]; 0 if
// even the extremes cover less than 95%.
std::size_t interval_rank(std::size_t count);

}  // namespace doppler::bench
