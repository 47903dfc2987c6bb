// Panel kernels for Arm with NEON and the 8-bit matrix instructions of Armv8.6 (FEAT_I8MM).
#include "backend/cpu/panel/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "system/processor.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod+i8mm")
namespace doppler::cpu {
namespace {
#define DOPPLER_I8MM
#include "backend/cpu/panel/lanes_neon-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
constexpr PanelKernels kKernels = {"NEON I8MM", Lanes::kTileTokens, quantise, rows};
}  // namespace
}  // namespace doppler::cpu
HWY_POP_ATTRIBUTES

namespace doppler::cpu {
const PanelKernels* panel_neon_i8mm() {
  return system::has_arm_int8_matrices() ? &kKernels : nullptr;
}
}  // namespace doppler::cpu
#endif
