// What every call of this room returns that can fail: the value, or the system's own reason. Sentences for
// the user are made above, where it is known what the call was for.
#pragma once

#include <expected>
#include <system_error>

namespace doppler::system {

template <typename T>
using Expected = std::expected<T, std::error_code>;

}  // namespace doppler::system
