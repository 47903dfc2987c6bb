// Statistics look at every value, and at nothing else.
#include "base/statistics.h"

#include <cmath>
#include <vector>

#include "testing.h"

namespace doppler::diagnosis {
namespace {

TEST(Statistics, OfKnownValues) {
  const Statistics s = measure(std::vector<float>{1, -4, 0, 3, 4});
  EXPECT_EQ(s.count, 5u);
  EXPECT_EQ(s.min, -4);
  EXPECT_EQ(s.max, 4);
  EXPECT_EQ(s.max_abs, 4);
  EXPECT_EQ(s.max_abs_index, 1u) << "the first that is so large";
  EXPECT_DOUBLE_EQ(s.mean, 0.8);
  EXPECT_DOUBLE_EQ(s.rms, std::sqrt(42.0 / 5));
  EXPECT_DOUBLE_EQ(s.deviation(), std::sqrt(42.0 / 5 - 0.64));
  EXPECT_EQ(s.zeros, 1u);
  EXPECT_EQ(s.negatives, 1u);
  EXPECT_TRUE(s.finite());
  EXPECT_EQ(s.first_bad, 5u);
}

// Two teams searched for weeks after looking at the first values only.
TEST(Statistics, SeeTheVeryLastValue) {
  for (const std::size_t size : {1u, 2u, 3u, 7u, 64u, 1153u, 262145u}) {
    std::vector<float> values(size, 0.5f);
    values.back() = -1000;
    const Statistics s = measure(values);
    EXPECT_EQ(s.max_abs, 1000) << size;
    EXPECT_EQ(s.max_abs_index, size - 1);
    EXPECT_EQ(s.min, -1000);
    EXPECT_NEAR(s.mean, (0.5 * static_cast<double>(size - 1) - 1000) / static_cast<double>(size), 1e-9);
  }
}

TEST(Statistics, SeeNothingBeyondTheirSpan) {
  std::vector<float> values(130, 1e30f);
  std::fill(values.begin() + 1, values.begin() + 129, 2.0f);
  const Statistics s = measure(std::span(values).subspan(1, 128));
  EXPECT_EQ(s.max_abs, 2);
  EXPECT_EQ(s.mean, 2);
  EXPECT_EQ(s.count, 128u);
}

TEST(Statistics, NanAndInfinityAreCountedAndHideNothing) {
  std::vector<float> values = {1, 2, INFINITY, -3, NAN, -INFINITY, NAN, 0};
  const Statistics s = measure(values);
  EXPECT_EQ(s.nan, 2u);
  EXPECT_EQ(s.inf, 2u);
  EXPECT_EQ(s.first_bad, 2u);
  EXPECT_FALSE(s.finite());
  EXPECT_EQ(s.max_abs, 3);
  EXPECT_EQ(s.max_abs_index, 3u);
  EXPECT_EQ(s.min, -3);
  EXPECT_EQ(s.max, 2);
  EXPECT_EQ(s.mean, 0) << "of the four that are finite";
  EXPECT_DOUBLE_EQ(s.rms, std::sqrt(14.0 / 4));
}

TEST(Statistics, OfNothingAndOfNothingFinite) {
  EXPECT_EQ(measure({}).count, 0u);
  EXPECT_EQ(measure({}).max_abs, 0);
  const Statistics s = measure(std::vector<float>{NAN, INFINITY});
  EXPECT_EQ(s.nan + s.inf, 2u);
  EXPECT_EQ(s.max_abs, 0);
  EXPECT_EQ(s.rms, 0);
}

TEST(Statistics, LargeValuesDoNotOverflow) {
  const Statistics s = measure(std::vector<float>(1000, 3e38f));
  EXPECT_NEAR(s.rms / 3e38, 1, 1e-6);
  EXPECT_NEAR(s.mean / 3e38, 1, 1e-6);
}

}  // namespace
}  // namespace doppler::diagnosis
