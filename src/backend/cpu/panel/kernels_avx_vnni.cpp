// Panel kernels for AVX2 with AVX-VNNI.
#include "backend/cpu/panel/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")
namespace doppler::cpu {
namespace {
#define DOPPLER_VNNI
#include "backend/cpu/panel/lanes_avx2-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
constexpr PanelKernels kKernels = {"AVX-VNNI", Lanes::kTileTokens, quantise, rows};
}  // namespace
}  // namespace doppler::cpu
HWY_POP_ATTRIBUTES

namespace doppler::cpu {
const PanelKernels* panel_avx_vnni() {
  const bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avxvnni");
  return runs ? &kKernels : nullptr;
}
}  // namespace doppler::cpu
#endif
