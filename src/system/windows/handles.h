// For the files of this folder: Windows' own header without its macros, and its errors.
#pragma once

#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX  // the compiler may have it already
#define NOMINMAX
#endif
#include <windows.h>

#include <cstddef>
#include <system_error>

namespace doppler::system {

// Windows counts bytes in 32 bits.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

inline std::error_code last_error() {
  return {static_cast<int>(::GetLastError()), std::system_category()};
}

}  // namespace doppler::system
