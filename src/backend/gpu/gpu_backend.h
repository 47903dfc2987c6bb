// The gpu backend: a plan on any GPU through WebGPU.
#pragma once

#include "backend/backend.h"

namespace doppler {

// Errors: kNotFound without a suitable adapter; kLimit when the model does not fit the GPU.
Result<std::unique_ptr<Backend>> make_gpu_backend(const ModelSpec& spec, const Weights& weights,
                                                  const BackendOptions& options);

}  // namespace doppler
