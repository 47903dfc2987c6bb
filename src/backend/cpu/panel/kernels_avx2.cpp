// Panel kernels for AVX2 with FMA and F16C.
#include "backend/cpu/panel/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace doppler::cpu {
namespace {
#include "backend/cpu/panel/lanes_avx2-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
constexpr PanelKernels kKernels = {"AVX2", Lanes::kTileTokens, quantise, rows};
}  // namespace
}  // namespace doppler::cpu
HWY_POP_ATTRIBUTES

namespace doppler::cpu {
const PanelKernels* panel_avx2() {
  const bool runs =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return runs ? &kKernels : nullptr;
}
}  // namespace doppler::cpu
#endif
