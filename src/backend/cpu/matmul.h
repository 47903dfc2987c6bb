// Matmuls of the cpu backend: prepares the activations once, then hands blocks of rows to the threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel/panel.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/tensor.h"

namespace doppler::cpu {

// How a weight is multiplied.
enum class WeightForm : std::uint8_t {
  kFloats,   // F32, F16, BF16 in place, with float activations
  kPanels,   // quantised, re-laid, with 8-bit activations
  kDecoded,  // quantised, in place, rows become floats when needed: types without panels, exact runs
};

// One product of a group that shares its activations.
struct Product {
  WeightForm form = WeightForm::kFloats;
  WeightMatrix floats;                 // kFloats
  PanelMatrix panels;                  // kPanels
  const TensorView* blocks = nullptr;  // kDecoded
  std::size_t rows = 0, cols = 0;
  const float* bias = nullptr;
  float* out = nullptr;  // [tokens, rows]
};

// The products of one expert, all of one width, and the places of the rows that are sent to it.
struct ExpertWork {
  std::span<const Product> products;  // `out` is [tokens, chosen, rows]
  std::span<const std::uint32_t> places;
};

// How much memory the products need.
struct MatmulRoom {
  std::size_t tokens = 0, cols = 0;  // at most
  std::size_t expert_rows = 0;       // of all experts together, a token counting once for each of its own
  std::size_t experts = 0;
};

class Matmul {
 public:
  // Errors: kLimit.
  static Result<Matmul> create(const Kernels& kernels, ThreadPool& pool, const MatmulRoom& room);

  // out = x weight' (+ bias) for each product. x is [tokens, cols].
  void run(const float* x, std::size_t tokens, std::span<const Product> products);

  // out = activation(gate) * up, where the two products' `out` are either both set, and then written too, or
  // both null.
  void run_gated(const float* x, std::size_t tokens, const Product& gate, const Product& up,
                 Activation activation, float* out);

  // The products of each expert with the rows that are sent to it: those of `x` [tokens, cols], or of
  // [tokens, chosen, cols] if they are `own_rows`.
  void run_experts(const float* x, bool own_rows, std::size_t chosen, std::span<const ExpertWork> experts);

  std::uint64_t bytes() const {
    return (packed_.size() + quantised_.size() + gathered_.size() + scratch_.size()) * sizeof(float);
  }

 private:
  struct Inputs {  // the same activations in the forms that the products ask for
    const float* floats = nullptr;
    const ActivationBlock* blocks = nullptr;
    std::size_t tokens = 0;
  };

  Matmul(const Kernels& kernels, ThreadPool& pool) : kernels_(&kernels), pool_(&pool) {}
  Inputs prepare(const float* x, std::size_t tokens, std::span<const Product> products);
  const float* pack(const float* x, std::size_t tokens, std::size_t cols);
  const ActivationBlock* quantise(const float* x, std::size_t tokens, std::size_t cols);
  // Rows are handed to threads in multiples of this.
  std::size_t grain(const Product& product, std::size_t tokens) const;
  // Rows [begin, end) of a product to `out`, `stride` floats from token to token.
  void rows(const Product& product, const Inputs& inputs, std::size_t begin, std::size_t end, float* out,
            std::size_t stride, float* scratch) const;
  void decoded_rows(const Product& product, const Inputs& inputs, std::size_t begin, std::size_t end,
                    float* out, std::size_t stride, float* scratch) const;

  const Kernels* kernels_;
  ThreadPool* pool_;
  // Gathers an expert's rows and prepares them, in its part of the memory that begins with row `first`.
  Inputs prepare_expert(const float* x, bool own_rows, std::size_t chosen, const ExpertWork& work,
                        std::size_t first, float* packed);
  void expert_rows(const ExpertWork& work, const Product& product, const Inputs& inputs, std::size_t begin,
                   std::size_t end, float* scratch) const;

  LazyFloats packed_, quantised_;
  LazyFloats gathered_;  // experts' rows side by side
  LazyFloats scratch_;   // per thread: the kernels' own, decoded rows, then gate and up
  std::size_t scratch_stride_ = 0, kernel_scratch_ = 0, decoded_floats_ = 0, block_floats_ = 0;
};

}  // namespace doppler::cpu
