// How a backend's fallbacks are told: to people by a line each, to programs by a list.
#pragma once

#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/json_fwd.h"

namespace doppler {

// A warning for each in the log (on stderr, unless the log level is higher). `choice` is what was said of the
// backend already (see make_backend): a reason that it contains is not said again.
void tell_fallbacks(std::span<const Fallback> fallbacks, std::string_view choice = {});

// [{"what", "why"}, ...]
Json fallbacks_json(std::span<const Fallback> fallbacks);

}  // namespace doppler
