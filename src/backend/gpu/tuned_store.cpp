// Tuned shapes on disk: {"shapes": {"qkv 4 1 1536 18": [16, 18, 1, 0], ...}}, rows, lanes, units and a head's
// workgroups. The name holds adapter, driver and the shaders' hash, so that a file never speaks of another
// machine or of other kernels.
#include <cstdlib>
#include <filesystem>

#include "backend/gpu/embedded_shaders.h"
#include "backend/gpu/tune.h"
#include "base/files.h"
#include "base/json.h"

namespace doppler::gpu {
namespace {

constexpr std::uint64_t kMostBytes = 1 << 20;  // some hundred shapes of 50 bytes each are usual

// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::filesystem::path cache_file(const Device& device) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache == '/') {
    folder = cache;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const EmbeddedShader& shader : embedded_shaders())
    hash = hash_of(shader.text, hash_of(shader.name, hash));
  hash = hash_of(device.adapter().driver, hash_of(device.adapter().name, hash));
  return folder / "doppler" / fmt::format("gpu-{:016x}.json", hash);
}

// A shape that could be run at all: whatever a file says, kernels stay within the device's limits.
bool is_possible(const Device& device, const TunedShape& tuned) {
  const GemvShape& s = tuned.shape;
  return s.rows >= 1 && s.rows <= kTileRows && (s.rows & (s.rows - 1)) == 0 && s.lanes >= 1 && s.units >= 1 &&
         s.units <= 64 && s.lanes <= device.limits().workgroup_invocations &&
         s.threads() <= device.limits().workgroup_invocations && tuned.head_groups <= 65535;
}

}  // namespace

void load_tuned(Context& context) {
  const std::filesystem::path path = cache_file(*context.device);
  if (path.empty()) return;
  const auto text = read_text_file(path, kMostBytes);
  if (!text) return;
  const auto json = parse_json(*text, path.string());
  if (!json || !json->is_object()) return;
  const auto shapes = json->find("shapes");
  if (shapes == json->end() || !shapes->is_object()) return;
  for (const auto& [key, value] : shapes->items()) {
    if (!value.is_array() || value.size() != 4) continue;
    std::uint32_t numbers[4] = {};
    bool good = true;
    for (std::size_t i = 0; i < 4; ++i) {
      good = good && value[i].is_number_unsigned() && value[i].get<std::uint64_t>() <= 65535;
      if (good) numbers[i] = value[i].get<std::uint32_t>();
    }
    const TunedShape tuned{{numbers[0], numbers[1], numbers[2]}, numbers[3]};
    if (good && is_possible(*context.device, tuned)) context.tuned[key] = tuned;
  }
}

void store_tuned(const Context& context) {
  const std::filesystem::path path = cache_file(*context.device);
  if (path.empty()) return;
  Json shapes = Json::object();
  for (const auto& [key, tuned] : context.tuned)
    shapes[key] = {tuned.shape.rows, tuned.shape.lanes, tuned.shape.units, tuned.head_groups};
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  auto file = OutputFile::create(path);
  if (!file) return;
  if (file->write(Json{{"shapes", shapes}}.dump(1)) && file->commit()) return;
}

}  // namespace doppler::gpu
