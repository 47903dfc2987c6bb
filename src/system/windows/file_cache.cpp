#include "system/file_cache.h"

namespace doppler::system {

// Opening a file without buffering would empty its cache, but only where no program has it mapped, and
// nothing says whether it did.
std::error_code forget_cached(const Path&) {
  return std::make_error_code(std::errc::not_supported);
}

std::optional<double> cached_share(const Path&) {
  return std::nullopt;
}

}  // namespace doppler::system
