// Expected: the result of every call of this folder that can fail: the value, or the system's own reason.
// Messages for the user are made by the callers, which know the purpose of the call.
#pragma once

#include <expected>
#include <system_error>

namespace doppler::system {

template <typename T>
using Expected = std::expected<T, std::error_code>;

}  // namespace doppler::system
