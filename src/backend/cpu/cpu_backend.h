// The cpu backend: the fused plan with SIMD kernels and a thread pool.
#pragma once

#include "backend/backend.h"

namespace doppler {

Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec& spec, const Weights& weights, const BackendOptions& options);

}  // namespace doppler
