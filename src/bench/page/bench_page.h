// A measurement as one HTML page that needs nothing but a browser: no network, no other file.
#pragma once

#include <string>

#include "base/json_fwd.h"

namespace doppler::bench {

// `measured`: what doppler bench --json prints, of any suite, with or without a comparison. Numbers that it
// lacks are left out of the page.
std::string bench_html(const Json& measured);

}  // namespace doppler::bench
