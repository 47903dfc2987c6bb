// CacheFile: what a load found out about an adapter, kept for later loads in the user's cache folder
// ($XDG_CACHE_HOME/doppler, or ~/.cache/doppler). The name holds a hash of the adapter, its driver, the
// WebGPU library and the shaders, so that a file never speaks of another machine or of other kernels. A file
// that cannot be read or written is no error: it is found out again.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "backend/gpu/device.h"
#include "base/json_fwd.h"

namespace doppler::gpu {

class CacheFile {
 public:
  // Empty without a home.
  static std::filesystem::path user_folder();

  // "PREFIX-HASH.json" in the folder; an empty folder: nothing is kept.
  CacheFile(const Device& device, const std::filesystem::path& folder, std::string_view prefix);

  // Nothing for a file that is not there or is no JSON object.
  std::optional<Json> read() const;
  void write(const Json& json) const;

 private:
  std::filesystem::path path_;
};

}  // namespace doppler::gpu
