// Dates as C's strftime writes them in the C locale.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace doppler::chat::jinja {

// `format` with the codes of Python's strftime (glibc's flags - _ 0 ^ included); unknown codes stay as they
// are.
std::string format_time(std::string_view format, const std::tm& time);

}  // namespace doppler::chat::jinja
