// The headers that every kernels_*.cpp of this folder includes before it switches its instruction set on,
// because their inline functions must stay portable, and the macros around the switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/cpu/panel/layout.h"
#include "backend/cpu/panel/panel.h"
#include "hwy/base.h"  // HWY_PUSH_ATTRIBUTES

namespace doppler::cpu::panel {

// Codes of 8 bits, where an instruction set's product takes them.
enum class WideCodes : std::uint8_t {
  kUnsigned,    // as they are
  kSigned,      // without their offset, as signed numbers
  kMagnitudes,  // without their offset, as magnitudes and signs: one operand is unsigned, and saturates
};

}  // namespace doppler::cpu::panel

#define DOPPLER_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define DOPPLER_UNROLL_8 _Pragma("clang loop unroll(full)")
#define DOPPLER_UNROLL_16 _Pragma("clang loop unroll(full)")
#else
#define DOPPLER_UNROLL_8 _Pragma("GCC unroll 8")
#define DOPPLER_UNROLL_16 _Pragma("GCC unroll 16")
#endif
