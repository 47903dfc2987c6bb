#include "quant/error.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace doppler {
namespace {

struct StorageError {
  DType type;
  double error;
};
// Measured with bench/quant_error on 128 rows of 4096 values, Gaussian and heavy-tailed (Student's t with 3
// degrees of freedom); trained weights lie between the two. Each row is the larger figure, with scales from
// the extremes alone, as simple converters do it, rounded up to two digits. The types that Doppler does not
// write (from IQ3_S on) were encoded by ggml (libggml-base of llama.cpp 3.22.1 for Node), all columns
// counting alike. TQ is for weights that are ternary already, of which it loses nothing.
constexpr StorageError kStorageErrors[] = {
    {DType::kF16, 0.00021}, {DType::kBF16, 0.0017}, {DType::kQ8_0, 0.0086}, {DType::kQ6_K, 0.027},
    {DType::kQ5_0, 0.067},  {DType::kQ5_1, 0.049},  {DType::kQ5_K, 0.05},   {DType::kQ4_0, 0.13},
    {DType::kQ4_1, 0.1},    {DType::kQ4_K, 0.11},   {DType::kIQ4_NL, 0.11}, {DType::kIQ4_XS, 0.11},
    {DType::kMXFP4, 0.15},  {DType::kQ3_K, 0.2},    {DType::kQ2_K, 0.39},   {DType::kIQ3_S, 0.23},
    {DType::kIQ3_XXS, 0.3}, {DType::kIQ2_S, 0.42},  {DType::kIQ2_XS, 0.41}, {DType::kIQ2_XXS, 0.52},
    {DType::kIQ1_M, 0.52},  {DType::kIQ1_S, 0.63},  {DType::kTQ2_0, 0.81},  {DType::kTQ1_0, 0.81},
};

double relative(double squared_error, double squared_values) {
  if (squared_values > 0) return std::sqrt(squared_error / squared_values);
  return squared_error > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace

double storage_error(DType type) {
  const auto* const row = std::ranges::find(kStorageErrors, type, &StorageError::type);
  return row == std::end(kStorageErrors) ? 0 : row->error;
}

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
