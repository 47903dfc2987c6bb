// Text that stands in HTML.
#pragma once

#include <string>
#include <string_view>

namespace doppler {

// With &, <, > and both quotes as entities, fit for elements and attributes alike.
std::string escape_html(std::string_view text);

}  // namespace doppler
