// Panel kernels for WebAssembly with 128-bit vectors; compiled once more with relaxed ones (-mrelaxed-simd),
// for a module of its own, because machines without them refuse a module that has any.
#include "backend/cpu/panel/isa.h"

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

#include "base/float16.h"
#include "quant/small_float.h"

namespace doppler::cpu {
namespace {
#include "backend/cpu/panel/lanes_wasm-inl.h"

#include "backend/cpu/panel/kernels-inl.h"
#if defined(__wasm_relaxed_simd__)
constexpr PanelKernels kKernels = {"relaxed SIMD128", Lanes::kTileTokens, quantise, rows};
#else
constexpr PanelKernels kKernels = {"SIMD128", Lanes::kTileTokens, quantise, rows};
#endif
}  // namespace

const PanelKernels* panel_wasm() {
  return &kKernels;
}
}  // namespace doppler::cpu
#endif
