#include "base/checked.h"

#include <gtest/gtest.h>

namespace doppler {
namespace {

TEST(Checked, OverflowIsSticky) {
  const Checked huge = Checked(UINT64_MAX) + Checked(1);
  EXPECT_FALSE(huge.valid());
  EXPECT_FALSE((huge * Checked(0)).valid());
  EXPECT_FALSE((Checked(1) - Checked(2)).valid());
  EXPECT_FALSE((Checked(1ull << 33) * Checked(1ull << 33)).valid());
}

TEST(Checked, ValuesThatFitStayExact) {
  EXPECT_EQ((Checked(6) * Checked(7) - Checked(2) + Checked(1)).get(), 41u);
  EXPECT_TRUE(Checked(5).at_most(5));
  EXPECT_FALSE(Checked(6).at_most(5));
}

}  // namespace
}  // namespace doppler
