// Numbers with a fraction as text, which not every standard library can read without the user's locale.
#pragma once

#include <charconv>

namespace doppler::system {

// std::from_chars for double: the nearest value, whatever the locale.
std::from_chars_result read_double(const char* begin, const char* end, double& value);

}  // namespace doppler::system
