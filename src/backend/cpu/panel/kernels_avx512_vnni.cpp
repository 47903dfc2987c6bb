// Panel kernels for AVX-512 with VNNI.
#include "backend/cpu/panel/isa.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in g++ 12's own _mm512_undefined_*
#endif
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace doppler::cpu {
namespace {
#define DOPPLER_VNNI
#include "backend/cpu/panel/lanes_avx512-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
constexpr PanelKernels kKernels = {"AVX-512 VNNI", Lanes::kTileTokens, quantise, rows};
}  // namespace
}  // namespace doppler::cpu
HWY_POP_ATTRIBUTES

namespace doppler::cpu {
const PanelKernels* panel_avx512_vnni() {
  const bool runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vnni");
  return runs ? &kKernels : nullptr;
}
}  // namespace doppler::cpu
#endif
