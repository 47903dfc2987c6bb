// CacheFile: results about an adapter, kept for later loads in the user's cache folder
// ($XDG_CACHE_HOME/doppler, or ~/.cache/doppler). The name holds a hash of the adapter, its driver, the
// WebGPU library and the shaders, so that a file never applies to another machine or to other kernels. A file
// that cannot be read or written is no error: the results are found again.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "backend/gpu/device.h"
#include "base/json_fwd.h"

namespace doppler::gpu {

class CacheFile {
 public:
  // Empty if the user has no home folder.
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
