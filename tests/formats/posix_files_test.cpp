// Permissions and full disks, as POSIX systems have them.
#include <unistd.h>

#include "file_size_limit.h"
#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "tensors.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::TempDir;
using testing::write_file;

TEST(ModelFiles, UnreadableFilesSayWhy) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  TempDir dir;
  write_file(dir / "config.json", "{}");
  write_file(dir / "model.safetensors", "any bytes");
  std::filesystem::permissions(dir / "model.safetensors", std::filesystem::perms::none);
  EXPECT_ERROR(open_model_files(dir.path()), "model.safetensors", "Permission denied");
}

TEST(SafetensorsWriter, AFullDiskLeavesNoFile) {
  TempDir dir;
  const std::string data(100'000, 'x');
  const std::vector<TensorView> tensors = {
      {"a", DType::kU8, {data.size()}, std::as_bytes(std::span(data.data(), data.size()))}};
  {
    const testing::FileSizeLimit limit(10'000);
    EXPECT_ERROR(testing::write_tensors(dir / "a", tensors), "cannot be written", "File too large");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace doppler
