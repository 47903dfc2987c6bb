// A folder of .wgsl files that take the place of the program's own, so that benchmarks compare them without a
// build.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace doppler::gpu {

// Returns what was there before, by name. Errors: a file that cannot be read; kUsage: the folder has none of
// ours.
Result<std::map<std::string, std::string>> replace_shaders(const std::filesystem::path& folder);

}  // namespace doppler::gpu
