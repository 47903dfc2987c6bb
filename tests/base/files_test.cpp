#include "base/files.h"

#include "testing.h"

namespace doppler {
namespace {

using testing::read_file;
using testing::TempDir;
using testing::write_file;

std::size_t entries_of(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytesAsLongAsACopyLives) {
  TempDir dir;
  write_file(dir / "model", "seven bytes\n");
  MappedFile copy;
  {
    ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::open(dir / "model"));
    copy = file;
  }
  EXPECT_EQ(text_of(copy), "seven bytes\n");
  EXPECT_EQ(copy.path(), dir / "model");
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  TempDir dir;
  write_file(dir / "empty", "");
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::open(dir / "empty"));
  EXPECT_TRUE(file.bytes().empty());
}

TEST(MappedFile, MissingFilesAndFoldersAreErrors) {
  TempDir dir;
  const auto missing = MappedFile::open(dir / "missing");
  EXPECT_ERROR(missing, "missing", "cannot be opened", "Check the path");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  write_file(dir / "file", "x");
  EXPECT_EQ(MappedFile::open(dir / "file" / "below").error().code, ErrorCode::kNotFound);
  EXPECT_ERROR(MappedFile::open(dir.path()), "not a regular file");
}

TEST(ReadTextFile, ReadsUpToTheBoundAndNotBeyond) {
  TempDir dir;
  write_file(dir / "text", "12345");
  EXPECT_EQ(read_text_file(dir / "text", 5), std::string("12345"));
  const auto refused = read_text_file(dir / "text", 4);
  EXPECT_ERROR(refused, "holds 5 bytes", "the 4 allowed");
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_EQ(read_text_file(dir / "none", 4).error().code, ErrorCode::kNotFound);
}

TEST(OutputFile, AppearsOnlyWhenComplete) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::create(dir / "out"));
  ASSERT_OK(file.write(std::string_view("one ")));
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  ASSERT_OK(file.write(std::string_view("two")));
  ASSERT_OK(file.commit());
  EXPECT_EQ(read_file(dir / "out"), "one two");
  EXPECT_EQ(entries_of(dir.path()), 1u);
  EXPECT_ERROR(file.write(std::string_view("three")), "already complete");
  EXPECT_ERROR(file.commit(), "already complete");
}

TEST(OutputFile, LeavesNothingBehindWhenDropped) {
  TempDir dir;
  write_file(dir / "out", "before");
  {
    ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::create(dir / "out"));
    OutputFile moved = std::move(file);
    ASSERT_OK(moved.write(std::string(100'000, 'x')));
    EXPECT_EQ(entries_of(dir.path()), 2u);
  }
  EXPECT_EQ(entries_of(dir.path()), 1u);
  EXPECT_EQ(read_file(dir / "out"), "before");
}

TEST(OutputFile, PlacesThatCannotHoldAFileAreRefusedAtOnce) {
  TempDir dir;
  const auto missing = OutputFile::create(dir / "none" / "out");
  EXPECT_ERROR(missing, "cannot be created", "Check the path");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_ERROR(OutputFile::create(dir.path()), "not a regular file", "another name");
}

}  // namespace
}  // namespace doppler
