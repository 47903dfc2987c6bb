// Which instruction sets the kernels are compiled for. Included before any Highway header, in every kernel
// file.
//
// SSE4, AVX2 and AVX3 (AVX-512) on x86, NEON on Arm, and there always Highway's portable target, too, so that
// tests can run it everywhere; SIMD128 alone on wasm. Left out: SSSE3 (a machine with it alone gets the
// portable code), and the scalable vectors of SVE and RVV, because the matmul keeps an array of vectors in
// registers.
#pragma once

#define HWY_COMPILE_ALL_ATTAINABLE
#define DOPPLER_LEFT_OUT (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#ifdef __wasm_simd128__
// A module that has SIMD128 anywhere runs nowhere without it: portable kernels would only be downloaded.
#define HWY_DISABLED_TARGETS (DOPPLER_LEFT_OUT | HWY_EMU128)
#else
#define HWY_DISABLED_TARGETS DOPPLER_LEFT_OUT
#endif

// Expands to X(target) for every compiled target, best first; used once all of them have been compiled.
// A file's kernels of a target live in the namespace that Highway names after it.
#include "hwy/detect_targets.h"

#if HWY_TARGETS & HWY_AVX3
#define DOPPLER_IF_AVX3(X) X(AVX3)
#else
#define DOPPLER_IF_AVX3(X)
#endif
#if HWY_TARGETS & HWY_AVX2
#define DOPPLER_IF_AVX2(X) X(AVX2)
#else
#define DOPPLER_IF_AVX2(X)
#endif
#if HWY_TARGETS & HWY_SSE4
#define DOPPLER_IF_SSE4(X) X(SSE4)
#else
#define DOPPLER_IF_SSE4(X)
#endif
#if HWY_TARGETS & HWY_NEON
#define DOPPLER_IF_NEON(X) X(NEON)
#else
#define DOPPLER_IF_NEON(X)
#endif
#if HWY_TARGETS & HWY_WASM
#define DOPPLER_IF_WASM(X) X(WASM)
#else
#define DOPPLER_IF_WASM(X)
#endif
#if HWY_TARGETS & HWY_EMU128
#define DOPPLER_IF_PORTABLE(X) X(EMU128)
#elif HWY_TARGETS & HWY_WASM
#define DOPPLER_IF_PORTABLE(X)
#else
#define DOPPLER_IF_PORTABLE(X) \
  X(SCALAR)  // g++ before 12.3 miscompiles EMU128, so Highway leaves it out there
#endif
#define DOPPLER_FOR_EACH_TARGET(X) \
  DOPPLER_IF_AVX3(X)               \
  DOPPLER_IF_AVX2(X) DOPPLER_IF_SSE4(X) DOPPLER_IF_NEON(X) DOPPLER_IF_WASM(X) DOPPLER_IF_PORTABLE(X)
