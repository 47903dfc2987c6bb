// How a kernel file hands out its tables, one per instruction set.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/targets.h"

namespace doppler::cpu {

// Null for a target that is not compiled.
const MatmulKernels* matmul_kernels(std::int64_t target_bit);
const AttentionKernels* attention_kernels(std::int64_t target_bit);
const ElementKernels* element_kernels(std::int64_t target_bit);
const RecurrentKernels* recurrent_kernels(std::int64_t target_bit);

}  // namespace doppler::cpu

#define DOPPLER_CASE_OF_TARGET(target) \
  case HWY_##target:                   \
    return &N_##target::DOPPLER_TABLE_OF_FILE;
// Defines `function`, which returns the table that each target's namespace holds under the file's name for
// it.
#define DOPPLER_KERNEL_TABLE(Type, function)          \
  const Type* function(std::int64_t target_bit) {     \
    switch (target_bit) {                             \
      DOPPLER_FOR_EACH_TARGET(DOPPLER_CASE_OF_TARGET) \
      default:                                        \
        return nullptr;                               \
    }                                                 \
  }
