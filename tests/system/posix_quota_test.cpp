// What control groups leave a process, from folders as Linux shows them.
#include "system/posix/quota.h"

#include <gtest/gtest.h>

#include "testing.h"

namespace doppler::system {
namespace {

class Quota : public ::testing::Test {
 protected:
  void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / file).parent_path());
    testing::write_file(folder_.path() / file, text);
  }
  std::optional<double> quota(std::string_view membership) const {
    return processor_quota(folder_.path(), membership);
  }
  testing::TempDir folder_;
};

TEST_F(Quota, OfTheSecondVersion) {
  write("user/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/user/me\n"), std::nullopt);
  write("user/me/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota("0::/user/me\n"), 1.5);
  write("user/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota("0::/user/me\n"), 0.5) << "the least of a group and those around it";
  EXPECT_EQ(quota("0::/\n"), std::nullopt);
}

TEST_F(Quota, OfTheFirstVersion) {
  write("cpu/docker/1f/cpu.cfs_quota_us", "-1\n");
  write("cpu/docker/1f/cpu.cfs_period_us", "100000\n");
  const std::string_view groups = "9:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n0::/system\n";
  EXPECT_EQ(quota(groups), std::nullopt);
  write("cpu/docker/1f/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota(groups), 3);
  EXPECT_EQ(quota("4:cpuset:/docker/1f\n"), std::nullopt);
}

// A container sees its own group at the root, but is told the machine's path of it.
TEST_F(Quota, OfAContainer) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(quota("0::/docker/1f3c\n"), 2);
  write("cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("4:cpu,cpuacct:/docker/1f3c\n"), 1);
}

TEST_F(Quota, OfTextsThatAreNone) {
  write("cpu.max", "lots of it\n");
  for (const char* text : {"", "\n\n", "0", "0:", "::", "0::", "x:cpu", "0::../../..\n", ":cpu,,:\n"})
    EXPECT_EQ(quota(text), std::nullopt) << text;
  write("cpu.max", "100000 0\n");
  EXPECT_EQ(quota("0::/\n"), std::nullopt);
}

}  // namespace
}  // namespace doppler::system
