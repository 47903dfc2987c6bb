#include "base/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace doppler {

double Statistics::deviation() const {
  return std::sqrt(std::max(0.0, rms * rms - mean * mean));
}

void Statistics::append(const Statistics& more) {
  const std::size_t own = count - nan - inf, other = more.count - more.nan - more.inf;
  if (finite() && !more.finite()) first_bad = count + more.first_bad;
  if (finite() && more.finite()) first_bad = count + more.count;
  if (other > 0) {
    min = own > 0 ? std::min(min, more.min) : more.min;
    max = own > 0 ? std::max(max, more.max) : more.max;
    if (own == 0 || more.max_abs > max_abs)
      max_abs = more.max_abs, max_abs_index = count + more.max_abs_index;
    const double n = static_cast<double>(own), m = static_cast<double>(other);
    mean = (mean * n + more.mean * m) / (n + m);
    rms = std::sqrt((rms * rms * n + more.rms * more.rms * m) / (n + m));
  }
  count += more.count, nan += more.nan, inf += more.inf;
  zeros += more.zeros, negatives += more.negatives;
}

Statistics measure(std::span<const float> values) {
  Statistics s{.count = values.size(), .first_bad = values.size()};
  // Four sums in turn: an addition waits for the one before it in its own sum only.
  constexpr std::size_t kSums = 4;
  std::array<double, kSums> sum{}, squares{};
  float low = std::numeric_limits<float>::infinity(), high = -low, largest = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i], magnitude = std::fabs(x);
    if (!(magnitude <= std::numeric_limits<float>::max())) {
      ++(std::isnan(x) ? s.nan : s.inf);
      s.first_bad = std::min(s.first_bad, i);
      continue;
    }
    low = std::min(low, x);
    high = std::max(high, x);
    if (magnitude > largest) largest = magnitude, s.max_abs_index = i;
    s.zeros += x == 0;
    s.negatives += x < 0;
    sum[i % kSums] += x;
    squares[i % kSums] += static_cast<double>(x) * x;
  }
  const std::size_t finite = s.count - s.nan - s.inf;
  if (finite == 0) return s;
  s.min = low, s.max = high, s.max_abs = largest;
  const auto n = static_cast<double>(finite);
  s.mean = ((sum[0] + sum[1]) + (sum[2] + sum[3])) / n;
  s.rms = std::sqrt(((squares[0] + squares[1]) + (squares[2] + squares[3])) / n);
  return s;
}

}  // namespace doppler
