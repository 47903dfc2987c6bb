// Rotary tables against the published formulas, written out here once more and plainly.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace doppler {
namespace {

RopeSpec rope(double theta, std::uint32_t dim, RopeScaling scaling = {}) {
  return {.theta = theta, .rotary_dim = dim, .scaling = std::move(scaling)};
}

double plain(double theta, double dim, std::size_t pair) {
  return 1 / std::pow(theta, 2.0 * static_cast<double>(pair) / dim);
}

TEST(Rope, Plain) {
  const RopeTable table = make_rope_table(rope(10000, 8), 100);
  ASSERT_EQ(table.inverse_frequency.size(), 4u);
  EXPECT_DOUBLE_EQ(table.inverse_frequency[0], 1);
  EXPECT_DOUBLE_EQ(table.inverse_frequency[1], 0.1);
  EXPECT_DOUBLE_EQ(table.inverse_frequency[2], 0.01);
  EXPECT_DOUBLE_EQ(table.inverse_frequency[3], 0.001);
  EXPECT_EQ(table.magnitude, 1);
}

TEST(Rope,
     PartialCountsTheRotatedDimsOnly) {  // dims of 32 rotate in a head of 128: exponents are shares of 32
  const RopeTable table = make_rope_table(rope(10000, 32), 100);
  ASSERT_EQ(table.inverse_frequency.size(), 16u);
  EXPECT_DOUBLE_EQ(table.inverse_frequency[8], 0.01);
}

TEST(Rope, LinearDividesEveryFrequency) {
  const RopeTable table =
      make_rope_table(rope(10000, 16, {.kind = RopeScalingKind::kLinear, .factor = 8}), 100);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_DOUBLE_EQ(table.inverse_frequency[i], plain(10000, 16, i) / 8);
}

TEST(Rope, Llama3KeepsBlendsAndStretches) {
  const RopeTable table = make_rope_table(rope(500000, 64,
                                               {.kind = RopeScalingKind::kLlama3,
                                                .factor = 32,
                                                .low_freq_factor = 1,
                                                .high_freq_factor = 4,
                                                .original_context = 8192}),
                                          100);
  int kept = 0, blended = 0, stretched = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    const double f = plain(500000, 64, i), turns = 8192 * f / (2 * std::numbers::pi);
    double expected = f;
    if (turns < 1) {
      expected = f / 32;
      ++stretched;
    } else if (turns <= 4) {
      const double smooth = (turns - 1) / (4 - 1);
      expected = (1 - smooth) * (f / 32) + smooth * f;
      ++blended;
    } else {
      ++kept;
    }
    EXPECT_NEAR(table.inverse_frequency[i] / expected, 1, 1e-12) << i;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(blended, 0);
  EXPECT_GT(stretched, 0);
}

// The pair at which a wave turns `turns` times in the original context, as a real number.
double pair_at(double turns, double dim, double theta, double context) {
  return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

TEST(Rope, YarnRampsOverThePairs) {
  for (const bool truncate : {true, false}) {
    const RopeTable table = make_rope_table(rope(150000, 64,
                                                 {.kind = RopeScalingKind::kYarn,
                                                  .factor = 32,
                                                  .original_context = 4096,
                                                  .truncate = truncate,
                                                  .attention_factor = 1.25}),
                                            100);
    double low = pair_at(32, 64, 150000, 4096), high = pair_at(1, 64, 150000, 4096);
    if (truncate) low = std::floor(low), high = std::ceil(high);
    ASSERT_GT(low, 0);
    ASSERT_LT(high, 32);
    for (std::size_t i = 0; i < 32; ++i) {
      const double share = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
      const double f = plain(150000, 64, i);
      EXPECT_NEAR(table.inverse_frequency[i] / (f * (1 - share) + f / 32 * share), 1, 1e-12) << i;
    }
    EXPECT_EQ(table.magnitude, 1.25);
  }
}

TEST(Rope, YarnRangeStaysInsideTheHead) {  // a context so short that the range would begin below pair 0
  const RopeTable table = make_rope_table(
      rope(10000, 16, {.kind = RopeScalingKind::kYarn, .factor = 4, .original_context = 64}), 100);
  EXPECT_DOUBLE_EQ(table.inverse_frequency[0], 1);  // low = 0: pair 0 is kept
  EXPECT_NEAR(table.inverse_frequency[7], plain(10000, 16, 7) / 4, 1e-15);
}

TEST(Rope, LongRopeChoosesByTheContext) {
  const RopeSpec spec = rope(10000, 8,
                             {.kind = RopeScalingKind::kLongRope,
                              .original_context = 4096,
                              .attention_factor = 1.19,
                              .long_attention_factor = 1.3,
                              .short_factor = {1, 1.5, 2, 3},
                              .long_factor = {1, 5, 20, 60}});
  const RopeTable inside = make_rope_table(spec, 4096), beyond = make_rope_table(spec, 4097);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(inside.inverse_frequency[i], plain(10000, 8, i) / spec.scaling.short_factor[i]);
    EXPECT_DOUBLE_EQ(beyond.inverse_frequency[i], plain(10000, 8, i) / spec.scaling.long_factor[i]);
  }
  EXPECT_EQ(inside.magnitude, 1.19);
  EXPECT_EQ(beyond.magnitude, 1.3);
}

}  // namespace
}  // namespace doppler
