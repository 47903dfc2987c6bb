// The .wgsl files that are built into the program.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace doppler::gpu {

/// One file of src/backend/gpu/shaders as it lay there when the program was built.
struct EmbeddedShader {
  std::string_view name;  // with its ending, e.g. "norm.wgsl"
  std::string_view text;  // before the template step
};

/// Every shader of the program, sorted by name. cmake/embed_texts.cmake writes the table.
std::span<const EmbeddedShader> embedded_shaders();

/// Replaces the text that the template step reads under this name, so that tests can check that they notice
/// a broken shader. For tests only, and not while another thread expands shaders.
void replace_shader(std::string name, std::string text);

}  // namespace doppler::gpu
