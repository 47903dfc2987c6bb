#include "system/processor.h"

#include "system/windows/handles.h"

namespace doppler::system {

std::string processor_name() {
  char name[256] = "";
  DWORD size = sizeof name;
  constexpr const char* kKey = R"(HARDWARE\DESCRIPTION\System\CentralProcessor\0)";
  const LSTATUS status =
      ::RegGetValueA(HKEY_LOCAL_MACHINE, kKey, "ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &size);
  return status == ERROR_SUCCESS && name[0] != '\0' ? name : "unknown";
}

bool has_arm_dot_product() {
#ifdef PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
  return ::IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE) != 0;
#else
  return false;
#endif
}

bool has_arm_int8_matrices() {
#ifdef PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE
  return ::IsProcessorFeaturePresent(PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE) != 0;
#else
  return false;
#endif
}

}  // namespace doppler::system
