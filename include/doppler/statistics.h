// Statistics of a span of activations: over every value, never a sample.
#pragma once

#include <cstddef>

#include "doppler/export.h"

namespace doppler {

// Smallest, largest, mean and rms are those of the finite values; NaN and infinity are counted beside them,
// so that one bad value does not hide the others. All zero for an empty span.
struct DOPPLER_API Statistics {
  std::size_t count = 0;  // all values, NaN and infinity included
  float min = 0, max = 0;
  float max_abs = 0;
  std::size_t max_abs_index = 0;  // the first value with that magnitude
  double mean = 0, rms = 0;
  std::size_t nan = 0, inf = 0, zeros = 0, negatives = 0;
  std::size_t first_bad = 0;  // the first NaN or infinity; `count` if there is none

  bool finite() const { return nan + inf == 0; }
  // As if `more` had been measured right behind these values.
  void append(const Statistics& more);
  double deviation() const;  // standard deviation: root mean square distance from the mean
};

}  // namespace doppler
