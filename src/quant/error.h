// How far stored values lie from those that they stand for: measured for a tensor, known for a type.
#pragma once

#include <cstdint>
#include <span>

#include "quant/dtype.h"

namespace doppler {

// How far weights of that type lie from the floats that were stored, as a share of their root mean square; an
// upper estimate for trained weights, 0 for F32 and types that weights do not have. Comparisons allow for it,
// and the doctor looks for a cause beyond it.
double storage_error(DType type);

struct EncodingError {
  double relative_rms = 0;  // root of (sum of squared errors / sum of squared values)
  double max_abs = 0;
  std::uint64_t worst_row = 0;  // of the largest relative_rms; the first of equals
};

// Sums rows up, in any order; parts that threads summed can be merged.
class EncodingErrorSum {
 public:
  // `decoded` are the values that the encoded row holds; both spans have the row's length.
  void add_row(std::uint64_t row, std::span<const float> values, std::span<const float> decoded);
  void merge(const EncodingErrorSum& other);
  EncodingError get() const;

 private:
  void consider_worst(std::uint64_t row, double relative);

  double squared_error_ = 0, squared_values_ = 0, max_abs_ = 0, worst_ = -1;
  std::uint64_t worst_row_ = 0;
};

}  // namespace doppler
