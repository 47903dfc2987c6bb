#include "quant/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace doppler {
namespace {

double relative(double squared_error, double squared_values) {
  if (squared_values > 0) return std::sqrt(squared_error / squared_values);
  return squared_error > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace

void EncodingErrorSum::add_row(std::uint64_t row, std::span<const float> values,
                               std::span<const float> decoded) {
  double squared_error = 0, squared_values = 0;
  for (std::size_t i = 0; i < std::min(values.size(), decoded.size()); ++i) {
    const double error = double{values[i]} - double{decoded[i]};
    squared_error += error * error;
    squared_values += double{values[i]} * double{values[i]};
    max_abs_ = std::max(max_abs_, std::fabs(error));
  }
  squared_error_ += squared_error;
  squared_values_ += squared_values;
  consider_worst(row, relative(squared_error, squared_values));
}

void EncodingErrorSum::merge(const EncodingErrorSum& other) {
  squared_error_ += other.squared_error_;
  squared_values_ += other.squared_values_;
  max_abs_ = std::max(max_abs_, other.max_abs_);
  if (other.worst_ >= 0) consider_worst(other.worst_row_, other.worst_);
}

void EncodingErrorSum::consider_worst(std::uint64_t row, double relative_rms) {
  if (relative_rms < worst_ || (relative_rms == worst_ && row > worst_row_)) return;
  worst_ = relative_rms;
  worst_row_ = row;
}

EncodingError EncodingErrorSum::get() const {
  return {relative(squared_error_, squared_values_), max_abs_, worst_row_};
}

}  // namespace doppler
