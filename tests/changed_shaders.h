// Replaces the program's shaders in every test of a test program that includes this, so that
// tests/backend/mutate_shaders.py can break them.
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

}  // namespace doppler::gpu::testing
