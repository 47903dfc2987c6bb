// Panel kernels for Arm with NEON and the dot product instructions of Armv8.2.
#include "backend/cpu/panel/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "system/processor.h"

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
  return system::has_arm_dot_product() ? &kKernels : nullptr;
}
}  // namespace doppler::cpu
#endif
