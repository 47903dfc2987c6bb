#include "shader_folder.h"

#include <utility>

#include "backend/gpu/embedded_shaders.h"
#include "base/files.h"

namespace doppler::gpu {
namespace {

constexpr std::size_t kMostShaderBytes = 1 << 20;  // of one file; the longest of ours has 19 KB

}  // namespace

Result<std::map<std::string, std::string>> replace_shaders(const std::filesystem::path& folder) {
  std::map<std::string, std::string> before;
  for (const EmbeddedShader& shader : embedded_shaders()) {
    const std::filesystem::path file = folder / shader.name;
    if (!std::filesystem::exists(file)) continue;
    DOPPLER_ASSIGN(std::string text, read_text_file(file, kMostShaderBytes));
    before.emplace(shader.name, shader.text);
    replace_shader(std::string(shader.name), std::move(text));
  }
  if (before.empty()) return fail(ErrorCode::kUsage, "{} has no shader of ours.", folder.string());
  return before;
}

}  // namespace doppler::gpu
