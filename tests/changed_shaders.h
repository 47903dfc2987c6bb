// Replaces the program's shaders in every test of a test program that includes this, so that
// tests/backend/mutate_shaders.py can break them; and one of them in a single test.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "backend/gpu/embedded_shaders.h"
#include "testing.h"

namespace doppler::gpu::testing {

// Loads every .wgsl file of the folder named by DOPPLER_TEST_SHADERS, if that is set, before the first test.
class ChangedShaders : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* folder = std::getenv("DOPPLER_TEST_SHADERS");
    if (folder == nullptr) return;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".wgsl")
        replace_shader(entry.path().filename().string(), doppler::testing::read_file(entry.path()));
    }
  }
};
inline const ::testing::Environment* const kChangedShaders =
    ::testing::AddGlobalTestEnvironment(new ChangedShaders);

// A shader with a mistake, as long as this lives.
class Broken {
 public:
  Broken(std::string file, std::string_view before, std::string_view after) : file_(std::move(file)) {
    for (const EmbeddedShader& shader : embedded_shaders()) {
      if (shader.name == file_) text_ = shader.text;
    }
    std::string changed = text_;
    const std::size_t at = changed.find(before);
    EXPECT_NE(at, std::string::npos) << before;
    if (at != std::string::npos) changed.replace(at, before.size(), after);
    replace_shader(file_, changed);
  }
  ~Broken() { replace_shader(file_, text_); }

 private:
  std::string file_, text_;
};

}  // namespace doppler::gpu::testing
