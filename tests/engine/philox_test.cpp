// The generator gives the published numbers, so that a seed means the same everywhere.
#include "engine/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace doppler {
namespace {

using Counter = std::array<std::uint32_t, 4>;

// Known answers published with the Random123 library for philox4x32-10.
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The first digits of pi.
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, LiesInTheHalfOpenUnitIntervalAndFillsIt) {
  std::vector<int> bins(20);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = uniform(42, static_cast<std::uint64_t>(i));
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<std::size_t>(x * 20)];
  }
  double chi_square = 0;
  for (const int n : bins) chi_square += (n - kDraws / 20.0) * (n - kDraws / 20.0) / (kDraws / 20.0);
  EXPECT_LT(chi_square, 43.8);  // 19 degrees of freedom: exceeded once in a thousand seeds
}

TEST(Uniform, IsAFunctionOfSeedAndIndexAlone) {
  EXPECT_EQ(uniform(7, 3), uniform(7, 3));
  EXPECT_NE(uniform(7, 3), uniform(7, 4));
  EXPECT_NE(uniform(7, 3), uniform(8, 3));
  // All 64 bits of both count.
  EXPECT_NE(uniform(7, 3), uniform(7, 3 + (std::uint64_t{1} << 40)));
  EXPECT_NE(uniform(7, 3), uniform(7 + (std::uint64_t{1} << 40), 3));
}

}  // namespace
}  // namespace doppler
