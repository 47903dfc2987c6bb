// Panel kernels for Arm with NEON and the dot product instructions of Armv8.2.
#include "backend/cpu/panel/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
namespace doppler::cpu {
namespace {
#include "backend/cpu/panel/lanes_neon-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
constexpr PanelKernels kKernels = {"NEON", Lanes::kTileTokens, quantise, rows};
}  // namespace
}  // namespace doppler::cpu
HWY_POP_ATTRIBUTES

namespace doppler::cpu {
const PanelKernels* panel_neon() {
#if defined(__linux__)
  const bool runs = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  const bool runs = true;  // every 64-bit Apple chip that runs a supported system
#endif
  return runs ? &kKernels : nullptr;
}
}  // namespace doppler::cpu
#endif
