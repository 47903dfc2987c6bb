#include "system/clock.h"

namespace doppler::system {

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return parts;
}

std::tm utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return parts;
}

}  // namespace doppler::system
