#pragma once
#include <span>
#include <string_view>

namespace doppler::gpu {

/// One file of src/backend/gpu/shaders as it lay there when the program was built.
struct EmbeddedShader {
  std::string_view name;  // with its ending, e.g. "copy.wgsl"
  std::string_view text;  // before the template step
};

/// Every shader of the program, sorted by name. cmake/embed_shaders.cmake writes the table.
std::span<const EmbeddedShader> embedded_shaders();

}  // namespace doppler::gpu
