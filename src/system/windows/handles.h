// What the files of this folder share: Windows' own header without its macros, and its errors.
#pragma once

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <system_error>

namespace doppler::system {

inline std::error_code last_error() {
  return {static_cast<int>(::GetLastError()), std::system_category()};
}

}  // namespace doppler::system
