// The cpu backend: the fused plan with SIMD kernels and a thread pool. Weights are read where the file is
// mapped.
//
// Logits are the same bits for any number of threads, any way of cutting a sequence into steps, with or
// without other sequences in them, and with or without taps. They may differ between instruction sets.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace doppler {

// Errors: kUnsupported for weights of a type that cannot be computed with; kLimit for memory.
Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec& spec, const Weights& weights,
                                                  const BackendOptions& options);

// The same with the kernels of a chosen instruction set, one of cpu::all_kernels().
Result<std::unique_ptr<Backend>> make_cpu_backend_for(const cpu::Kernels& kernels, const ModelSpec& spec,
                                                      const Weights& weights, const BackendOptions& options);

}  // namespace doppler
