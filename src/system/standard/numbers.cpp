#include "system/numbers.h"

namespace doppler::system {

std::from_chars_result read_double(const char* begin, const char* end, double& value) {
  return std::from_chars(begin, end, value);
}

}  // namespace doppler::system
