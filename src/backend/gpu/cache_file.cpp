#include "backend/gpu/cache_file.h"

#include <fmt/format.h>

#include "backend/gpu/embedded_shaders.h"
#include "backend/gpu/provider.h"
#include "base/files.h"
#include "base/json.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::gpu {
namespace {

// Enough for some hundred names of kernels; a larger file is not ours.
constexpr std::uint64_t kMostFileBytes = 4 << 20;

// FNV-1a (Fowler, Noll, Vo) of 64 bits: to tell versions apart, not for security.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325;
  void add(std::string_view text) {
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    value = (value ^ 0xff) * 0x100000001b3;  // an end that no text contains
  }
};

// Everything that a kernel's results or times could depend on, but for the kernel itself.
std::uint64_t identity(const Device& device) {
  Hash hash;
  const AdapterInfo& a = device.adapter();
  const Features& f = device.features();
  hash.add(a.name), hash.add(a.driver), hash.add(a.api), hash.add(provider::version());
  hash.add(fmt::format("{} {} {} {} {} {} {} {}", a.vendor_id, a.device_id, f.f16, f.subgroups,
                       f.subgroup_size, f.fma_rounds_once, static_cast<int>(f.tiles),
                       device.options().checked));
  for (const EmbeddedShader& shader : embedded_shaders()) hash.add(shader.name), hash.add(shader.text);
  return hash.value;
}

}  // namespace

std::filesystem::path CacheFile::user_folder() {
  const std::filesystem::path cache = system::cache_folder();
  return cache.empty() ? cache : cache / "doppler";
}

CacheFile::CacheFile(const Device& device, const std::filesystem::path& folder, std::string_view prefix) {
  if (!folder.empty()) path_ = folder / fmt::format("{}-{:016x}.json", prefix, identity(device));
}

std::optional<Json> CacheFile::read() const {
  if (path_.empty()) return std::nullopt;
  const auto text = read_text_file(path_, kMostFileBytes);
  if (!text) return std::nullopt;
  auto json = parse_json(*text, path_.string());
  if (!json || !json->is_object()) return std::nullopt;
  return std::move(*json);
}

void CacheFile::write(const Json& json) const {
  if (path_.empty()) return;
  (void)system::create_folders(path_.parent_path());
  auto file = OutputFile::create(path_);
  if (!file) return;
  const std::string text = json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
  if (file->write(std::string_view(text))) (void)file->commit();
}

}  // namespace doppler::gpu
