#include "system/clock.h"

#include "system/web/imports.h"

namespace doppler::system {
namespace {

std::tm parts_of(std::time_t time) {
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  return parts;
}

}  // namespace

std::tm local_time() {
  return parts_of(std::time(nullptr) + static_cast<std::time_t>(web::utc_offset()));
}

std::tm utc_time() {
  return parts_of(std::time(nullptr));
}

}  // namespace doppler::system
