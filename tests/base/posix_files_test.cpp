// Pipes, devices, links, permissions and full disks, as POSIX systems have them.
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "file_size_limit.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::FileSizeLimit;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

std::size_t entries_in(const TempDir& dir) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(dir.path()), {}));
}

TEST(MappedFile, TheSystemsReasonIsSaid) {
  TempDir dir;
  EXPECT_ERROR(MappedFile::open(dir / "missing"), "No such file");
}

TEST(MappedFile, PipesAreErrors) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(MappedFile::open(dir / "pipe"), "not a regular file");
}

TEST(MappedFile, AFileWithoutPermissionIsUnreadable) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  TempDir dir;
  write_file(dir / "secret", "x");
  std::filesystem::permissions(dir / "secret", std::filesystem::perms::none);
  const auto file = MappedFile::open(dir / "secret");
  EXPECT_ERROR(file, "secret", "Permission denied", "Check its permissions");
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
}

TEST(OutputFile, DevicesAreRefusedAtOnce) {
  EXPECT_ERROR(OutputFile::create("/dev/null"), "not a regular file");
}

TEST(OutputFile, AFullDiskIsAnErrorAndLeavesTheOldFile) {
  TempDir dir;
  write_file(dir / "out", "before");
  {
    FileSizeLimit limit(4096);
    ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::create(dir / "out"));
    const Status written = file.write(std::string(100'000, 'x'));
    EXPECT_ERROR(written, "out", "cannot be written", "File too large");
    EXPECT_EQ(written.error().code, ErrorCode::kIo);
    EXPECT_ERROR(file.commit(), "cannot be completed");
  }
  EXPECT_EQ(entries_in(dir), 1u);
  EXPECT_EQ(read_file(dir / "out"), "before");
}

TEST(OutputFile, ADiskThatFillsUpAtTheEndIsAnErrorToo) {
  TempDir dir;
  {
    FileSizeLimit limit(8);
    ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::create(dir / "out"));
    ASSERT_OK(file.write(std::string_view("more than eight bytes")));  // still in the buffer
    EXPECT_ERROR(file.commit(), "cannot be written");
  }
  EXPECT_EQ(entries_in(dir), 0u);
}

TEST(OutputFile, LeftoversOfACrashDoNotStopIt) {
  TempDir dir;
  write_file(dir / ("out.partial-" + std::to_string(::getpid())), "leftover");
  ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::create(dir / "out"));
  ASSERT_OK(file.write(std::string_view("new")));
  ASSERT_OK(file.commit());
  EXPECT_EQ(read_file(dir / "out"), "new");
}

TEST(OutputFile, ReplacesTheTargetOfALink) {
  TempDir dir;
  write_file(dir / "target", "before");
  std::filesystem::create_symlink("target", dir / "link");
  ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::create(dir / "link"));
  ASSERT_OK(file.write(std::string_view("after")));
  ASSERT_OK(file.commit());
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "target"), "after");
}

}  // namespace
}  // namespace doppler
