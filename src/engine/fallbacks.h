// A backend's fallbacks for people, a line each, and for programs, as a list.
#pragma once

#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/json_fwd.h"

namespace doppler {

// A warning for each in the log (on stderr, unless the log level is higher). `choice` is the sentence already
// printed about the backend (see make_backend): a reason that it contains is not printed again.
void tell_fallbacks(std::span<const Fallback> fallbacks, std::string_view choice = {});

// [{"what", "why"}, ...]
Json fallbacks_json(std::span<const Fallback> fallbacks);

}  // namespace doppler
