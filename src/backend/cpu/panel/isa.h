// The headers that every kernels_*.cpp of this folder includes before it switches its instruction set on,
// because their inline functions must stay portable, and the macros around the switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/panel/layout.h"
#include "backend/cpu/panel/panel.h"
#include "hwy/base.h"  // HWY_PUSH_ATTRIBUTES

#define DOPPLER_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define DOPPLER_UNROLL_8 _Pragma("clang loop unroll(full)")
#define DOPPLER_UNROLL_16 _Pragma("clang loop unroll(full)")
#else
#define DOPPLER_UNROLL_8 _Pragma("GCC unroll 8")
#define DOPPLER_UNROLL_16 _Pragma("GCC unroll 16")
#endif
