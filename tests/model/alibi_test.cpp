// The lines through the positions that heads add to their scores.
#include "model/alibi.h"

#include <cmath>

#include "testing.h"

namespace doppler {
namespace {

TEST(Alibi, HeadsHavePowersOfOneBase) {
  const std::vector<double> slopes = alibi_slopes({.max_bias = 8}, 8);
  ASSERT_EQ(slopes.size(), 8u);
  for (int head = 0; head < 8; ++head)
    EXPECT_DOUBLE_EQ(slopes[static_cast<std::size_t>(head)], std::ldexp(1, -1 - head));
}

// Those beyond a power of two have the odd powers of the finer base: 2^-0.5, 2^-1.5.
TEST(Alibi, HeadsBeyondAPowerOfTwoLieBetween) {
  const std::vector<double> slopes = alibi_slopes({.max_bias = 8}, 10);
  EXPECT_DOUBLE_EQ(slopes[7], 1.0 / 256);
  EXPECT_DOUBLE_EQ(slopes[8], std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(slopes[9], std::sqrt(0.5) / 2);
  EXPECT_EQ(alibi_slopes({.max_bias = 4}, 1), std::vector<double>{1.0 / 16});
}

TEST(Alibi, CountsTheDistanceBack) {
  const AlibiSpec alibi = {.max_bias = 8, .scale = 0.5};
  EXPECT_DOUBLE_EQ(alibi_bias(alibi, 0.25, 7, 7), 0);
  EXPECT_DOUBLE_EQ(alibi_bias(alibi, 0.25, 3, 7), -0.5);
}

// bfloat16 has 8 bits of a number: 257 is none of its, nor is 0.70703125 x 5.
TEST(Alibi, RoundsAsBfloat16WhereTheModelDoes) {
  const AlibiSpec alibi = {.max_bias = 8, .scale = 2, .rounded = true};
  EXPECT_EQ(alibi_slopes(alibi, 10)[8], 0.70703125);
  EXPECT_EQ(alibi_bias(alibi, 0.70703125, 5, 9), 2 * 3.53125);
  EXPECT_EQ(alibi_bias(alibi, 0.5, 257, 300), 2 * 128.0);
}

}  // namespace
}  // namespace doppler
