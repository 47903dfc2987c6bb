// What the system keeps in memory of files, for measuring how long a file takes that nobody has read lately.
#pragma once

#include <optional>
#include <system_error>

#include "system/files.h"

namespace doppler::system {

// Asks the system to forget what it holds of the file in memory, so that the next reader waits for the disk.
// It may keep some: see cached_share. Errors: those of opening, and std::errc::not_supported.
std::error_code forget_cached(const Path& path);

// The share (0 to 1) of the file that lies in memory; nothing where the system does not say.
std::optional<double> cached_share(const Path& path);

}  // namespace doppler::system
