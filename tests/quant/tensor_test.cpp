// Shapes of every number of dimensions: rows, matrices side by side, and slices that share the bytes.
#include "quant/tensor.h"

#include <cstring>
#include <numeric>

#include "quant/encode.h"
#include "quant/error.h"
#include "testing.h"

namespace doppler {
namespace {

TEST(Tensor, RowsAndMatricesOfAnyNumberOfDimensions) {
  struct Case {
    Shape shape;
    std::uint64_t rows, cols, matrices;
  };
  const Case cases[] = {{{}, 1, 1, 1},
                        {{7}, 1, 7, 1},
                        {{3, 7}, 3, 7, 1},
                        {{4, 3, 7}, 12, 7, 4},
                        {{2, 4, 3, 7}, 24, 7, 8},
                        {{0, 3, 7}, 0, 7, 0},
                        {{4, 0, 7}, 0, 7, 4},
                        {{4, 3, 0}, 12, 0, 4},
                        // Sizes of a file that has no elements at all.
                        {{1ull << 40, 1ull << 40, 0}, 0, 0, 1ull << 40}};
  for (const Case& c : cases) {
    const TensorView tensor{"t", DType::kF32, c.shape, {}};
    EXPECT_EQ(tensor.rows(), c.rows) << describe_shape(c.shape);
    EXPECT_EQ(tensor.cols(), c.cols) << describe_shape(c.shape);
    EXPECT_EQ(tensor.matrices(), c.matrices) << describe_shape(c.shape);
  }
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(Tensor, MatricesAreTakenOutOfThreeAndMoreDimensions) {
  const std::vector<float> values = counted(2 * 4 * 3 * 32);
  std::vector<std::byte> blocks(*byte_size(DType::kQ8_0, {2, 4, 3, 32}));
  ASSERT_OK(encode(DType::kQ8_0, values, blocks, EncodeSearch::kNearest));
  const TensorView four{"t", DType::kQ8_0, {2, 4, 3, 32}, blocks};
  const TensorView three{"t", DType::kQ8_0, {8, 3, 32}, blocks};
  std::vector<float> all(values.size()), part(3 * 32);
  ASSERT_OK(decode_f32(four, 0, all));
  for (const TensorView& tensor : {four, three}) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      ASSERT_OK_AND_ASSIGN(const TensorView matrix, take_matrix(tensor, i));
      EXPECT_EQ(matrix.shape, (Shape{3, 32}));
      EXPECT_EQ(matrix.name, fmt::format("t[{}]", i));
      ASSERT_OK(decode_f32(matrix, 0, part));
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(i * 3 * 32)));
    }
    EXPECT_ERROR(take_matrix(tensor, 8), "t", "no rows 8 to 9");
  }
  const TensorView two{"t", DType::kQ8_0, {24, 32}, blocks};
  ASSERT_OK_AND_ASSIGN(const TensorView itself, take_matrix(two, 0));
  EXPECT_EQ(itself.shape, two.shape);
  EXPECT_EQ(itself.name, "t");
}

}  // namespace
}  // namespace doppler
