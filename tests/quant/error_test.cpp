// The table of storage errors against our encoders: its figures are those of bench/quant_error.
#include "quant/error.h"

#include <cmath>
#include <random>

#include "quant/encode.h"
#include "quant/tensor.h"
#include "testing.h"

namespace doppler {
namespace {

constexpr std::size_t kRow = 4096, kRows = 16;

// Gaussian, or Student's t with 3 degrees of freedom, of the size of weights.
std::vector<float> rows_of(bool heavy) {
  std::mt19937 random(7);
  std::normal_distribution<double> gaussian;
  std::vector<float> values(kRow * kRows);
  for (float& value : values) {
    double x = gaussian(random);
    if (heavy) {
      double squares = 0;
      for (int i = 0; i < 3; ++i) squares += std::pow(gaussian(random), 2);
      x /= std::sqrt(squares / 3);
    }
    value = static_cast<float>(0.02 * x);
  }
  return values;
}

double measured(DType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(*byte_size(type, {kRows, kRow}));
  std::vector<float> decoded(values.size());
  EXPECT_TRUE(encode(type, values, blocks, EncodeSearch::kNearest).has_value());
  EXPECT_TRUE(decode_f32({"rows", type, {kRows, kRow}, blocks}, 0, decoded).has_value());
  EncodingErrorSum sum;
  sum.add_row(0, values, decoded);
  return sum.get().relative_rms;
}

TEST(StorageError, IsTheLargerOfWhatIsMeasured) {
  const std::vector<float> gaussian = rows_of(false), heavy = rows_of(true);
  for (const DTypeInfo& info : all_dtypes()) {
    if (!can_encode(info.type) || info.type == DType::kF32) continue;
    const double larger = std::max(measured(info.type, gaussian), measured(info.type, heavy));
    // Rounding up to two digits adds up to a tenth; a smaller sample differs by as much.
    EXPECT_LE(larger, 1.1 * storage_error(info.type)) << info.name;
    EXPECT_GE(larger, 0.8 * storage_error(info.type)) << info.name;
  }
}

TEST(StorageError, IsKnownForEveryTypeOfWeights) {
  for (const DTypeInfo& info : all_dtypes())
    EXPECT_EQ(storage_error(info.type) > 0, info.computable && info.type != DType::kF32) << info.name;
}

}  // namespace
}  // namespace doppler
