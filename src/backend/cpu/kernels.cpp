#include "backend/cpu/kernels.h"

#include <array>

#include "backend/cpu/kernel_tables.h"
#include "hwy/targets.h"

namespace doppler::cpu {
namespace {

// One set of kernels: float kernels compiled for a Highway target, and panel kernels that fit it.
struct Set {
  std::string_view name;
  std::int64_t target;
  const PanelKernels* (*panel)();
};

#if HWY_TARGETS & HWY_EMU128
constexpr std::int64_t kPortable = HWY_EMU128;
#else
constexpr std::int64_t kPortable = HWY_SCALAR;
#endif

// Best first.
constexpr Set kSets[] = {
#if defined(__x86_64__)
    {"AVX3_VNNI", HWY_AVX3, panel_avx512_vnni},
    {"AVX3", HWY_AVX3, panel_avx512},
    {"AVX2_VNNI", HWY_AVX2, panel_avx_vnni},
    {"AVX2", HWY_AVX2, panel_avx2},
    {"SSE4", HWY_SSE4, panel_portable},
#elif defined(__aarch64__)
    {"NEON_I8MM", HWY_NEON, panel_neon_i8mm},
    {"NEON_DOT", HWY_NEON, panel_neon},
    {"NEON", HWY_NEON, panel_portable},
#endif
#if defined(__wasm_simd128__)
    {"WASM", HWY_WASM, panel_wasm},  // and no other: see targets.h
#else
    {"PORTABLE", kPortable, panel_portable},
#endif
};

struct Available {
  std::array<Kernels, std::size(kSets)> kernels;
  std::size_t count = 0;

  Available() {
    const std::int64_t supported = hwy::SupportedTargets() | kPortable;
    for (const Set& set : kSets) {
      const PanelKernels* panel = set.panel();
      const MatmulKernels* matmul = matmul_kernels(set.target);
      if ((supported & set.target) == 0 || panel == nullptr || matmul == nullptr) continue;
      kernels[count++] = {set.name,
                          matmul,
                          attention_kernels(set.target),
                          element_kernels(set.target),
                          recurrent_kernels(set.target),
                          panel};
    }
  }
};

}  // namespace

std::span<const Kernels> all_kernels() {
  static const Available available;
  return std::span(available.kernels).first(available.count);
}

}  // namespace doppler::cpu
