// The shaders travel inside the program, byte for byte.
#include "backend/gpu/embedded_shaders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "testing.h"

namespace doppler::gpu {
namespace {

TEST(EmbeddedShaders, AreTheFilesOfTheFolderSortedByName) {
  const std::filesystem::path folder = doppler::testing::source_path("src/backend/gpu/shaders");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files += entry.path().extension() == ".wgsl" ? 1 : 0;
  }
  ASSERT_GT(files, 0u);
  EXPECT_EQ(embedded_shaders().size(), files);
  EXPECT_TRUE(std::ranges::is_sorted(embedded_shaders(), {}, &EmbeddedShader::name));
  for (const EmbeddedShader& shader : embedded_shaders()) {
    std::ifstream stream(folder / std::string(shader.name), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_TRUE(shader.text == text) << shader.name << " differs from its file";
  }
}

}  // namespace
}  // namespace doppler::gpu
