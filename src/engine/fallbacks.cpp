#include "engine/fallbacks.h"

#include "base/json.h"
#include "base/log.h"

namespace doppler {

void tell_fallbacks(std::span<const Fallback> fallbacks, std::string_view choice) {
  for (const Fallback& fallback : fallbacks) {
    if (choice.find(fallback.why) != std::string_view::npos) continue;
    log(Level::kWarn, "Backend", "{} {}", fallback.what, fallback.why);
  }
}

Json fallbacks_json(std::span<const Fallback> fallbacks) {
  Json list = Json::array();
  for (const Fallback& fallback : fallbacks) list.push_back({{"what", fallback.what}, {"why", fallback.why}});
  return list;
}

}  // namespace doppler
