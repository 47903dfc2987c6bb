#pragma once
#include <span>
#include <string>
#include <string_view>

namespace doppler::gpu {

/// One file of src/backend/gpu/shaders as it lay there when the program was built.
struct EmbeddedShader {
  std::string_view name;  // with its ending, e.g. "copy.wgsl"
  std::string_view text;  // before the template step
};

/// Every shader of the program, sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const EmbeddedShader> embedded_shaders();

/// Has the template step read another text under this name from now on: how tests see that they would notice
/// a broken shader. Not for programs, and not while another thread expands shaders.
void replace_shader(std::string name, std::string text);

}  // namespace doppler::gpu
