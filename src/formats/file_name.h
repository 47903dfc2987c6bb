// Names of files that other files give.
#pragma once

#include <string_view>

namespace doppler {

// A bare name of a file in the folder of the file that names it: no path may lead out of it.
inline bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace doppler
