#include "system/file_cache.h"

namespace doppler::system {

// A page sees nothing of it.
std::error_code forget_cached(const Path&) {
  return std::make_error_code(std::errc::not_supported);
}

std::optional<double> cached_share(const Path&) {
  return std::nullopt;
}

}  // namespace doppler::system
