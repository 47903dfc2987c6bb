// Matmuls of the cpu backend: packs the activations once, then hands blocks of rows to the threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace doppler::cpu {

// One product of a group that shares its activations.
struct Product {
  WeightMatrix weight;
  const float* bias = nullptr;
  float* out = nullptr;  // [tokens, weight.rows]
};

class Matmul {
 public:
  // Allocates what steps of max_tokens with inputs of up to max_cols need. Errors: kLimit.
  static Result<Matmul> create(const MatmulKernels& kernels, const ElementKernels& elements, ThreadPool& pool,
                               std::size_t max_tokens, std::size_t max_cols);

  // out = x weight' (+ bias) for each product. x is [tokens, cols].
  void run(const float* x, std::size_t tokens, std::span<const Product> products);

  // out = activation(gate) * up, where the two products' `out` are either both set, and then written too, or
  // both null.
  void run_gated(const float* x, std::size_t tokens, const Product& gate, const Product& up,
                 Activation activation, float* out);

  std::uint64_t bytes() const { return (packed_.size() + scratch_.size()) * sizeof(float); }

 private:
  Matmul(const MatmulKernels& kernels, const ElementKernels& elements, ThreadPool& pool)
      : kernels_(&kernels), elements_(&elements), pool_(&pool) {}
  std::size_t grain(const WeightMatrix& weight,
                    std::size_t tokens) const;  // rows that are handed out in multiples
  const float* pack(const float* x, std::size_t tokens, std::size_t cols);

  const MatmulKernels* kernels_;
  const ElementKernels* elements_;
  ThreadPool* pool_;
  LazyFloats packed_;
  LazyFloats scratch_;              // per thread: the kernel's, then gate and up of a block
  std::size_t scratch_stride_ = 0;  // floats per thread
  std::size_t kernel_scratch_ = 0;
  std::size_t block_floats_ = 0;  // room for gate, and as much for up
};

}  // namespace doppler::cpu
