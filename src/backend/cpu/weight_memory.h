// WeightMemory: the panels of all weights of a model, laid out at load in one block of memory.
#pragma once

#include <map>

#include "backend/cpu/panel/panel.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/tensor.h"

namespace doppler::cpu {

class WeightMemory {
 public:
  // Notes that a tensor will be needed in panels. Errors: kMismatch for one whose bytes do not fit its shape.
  Status plan(const TensorView& tensor);
  // Lays everything planned out, on all threads, and gives file pages back that have been read. Errors:
  // kLimit when memory is short.
  Status fill(ThreadPool& pool);
  // The panels of a planned tensor.
  PanelMatrix panels(const TensorView& tensor) const;
  std::uint64_t bytes() const { return memory_.size() * sizeof(float); }

 private:
  struct Place {
    const TensorView* tensor;
    PanelMatrix matrix;  // `data` is set by fill()
    std::uint64_t offset;
  };
  std::map<const std::byte*, Place> places_;  // by the tensor's first byte: tied tensors share
  std::uint64_t planned_ = 0;
  LazyFloats memory_;
};

}  // namespace doppler::cpu
