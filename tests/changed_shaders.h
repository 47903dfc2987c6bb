// Shaders that stand in for the program's own, so that backend/mutate_shaders.py can break them.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "backend/gpu/embedded_shaders.h"
#include "testing.h"

namespace doppler::gpu::testing {

// Every .wgsl file of the folder named by DOPPLER_TEST_SHADERS, if that is set.
inline void use_shaders_of_the_environment() {
  const char* folder = std::getenv("DOPPLER_TEST_SHADERS");
  if (folder == nullptr) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".wgsl")
      replace_shader(entry.path().filename().string(), doppler::testing::read_file(entry.path()));
  }
}

}  // namespace doppler::gpu::testing
