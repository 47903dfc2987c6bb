#include "system/processor.h"

#include <fstream>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace doppler::system {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

bool has_arm_dot_product() {
#if defined(__aarch64__) && defined(__linux__)
  return (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every Apple chip that runs a supported system
#else
  return false;
#endif
}

bool has_arm_int8_matrices() {
#if defined(__aarch64__) && defined(__linux__)
  return (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#else
  return false;  // macOS is not asked: Apple's first chips lack them, and the dot product is there
#endif
}

}  // namespace doppler::system
