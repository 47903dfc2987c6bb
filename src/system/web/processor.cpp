#include "system/processor.h"

namespace doppler::system {

std::string processor_name() {
  return "WebAssembly";
}

bool has_arm_dot_product() {
  return false;
}
bool has_arm_int8_matrices() {
  return false;
}

}  // namespace doppler::system
