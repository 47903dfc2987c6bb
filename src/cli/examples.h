// What --help of each command ends with.
#pragma once

#include <string_view>

namespace doppler::cli {

// Commands as one types them, a line each, below a heading; notes before them. Empty for a name that is none.
std::string_view examples_of(std::string_view command);

}  // namespace doppler::cli
