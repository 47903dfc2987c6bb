// WeightMemory: the panels of all weights of a model, laid out at load in one block of memory, and copies of
// weights that are used as they are but lie in a source.
#pragma once

#include <map>

#include "backend/cpu/panel/panel.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/tensor.h"

namespace doppler::cpu {

class WeightMemory {
 public:
  // Notes that a tensor will be needed in panels. Errors: kMismatch for one whose bytes do not fit its shape.
  Status plan(const TensorView& tensor);
  // Notes that a tensor in a source will be needed in memory, as it is.
  Status plan_copy(const TensorView& tensor);
  // Lays everything planned out, on all threads, and gives file pages back that have been read. Of a source
  // no more than a piece for each thread is in memory. Errors: kLimit when memory is short; kIo.
  Status fill(ThreadPool& pool);
  // The panels of a planned tensor.
  PanelMatrix panels(const TensorView& tensor) const;
  bool has_panels() const { return has_panels_; }
  // The copy of a planned tensor; any other tensor as it is.
  TensorView copy(const TensorView& tensor) const;
  std::uint64_t bytes() const { return memory_.size() * sizeof(float); }

 private:
  struct Place {
    const TensorView* tensor;
    PanelMatrix matrix;  // `data` is set by fill(); without a format: a copy
    std::uint64_t offset;
  };
  Status reserve(const TensorView& tensor, const PanelMatrix& matrix, Checked bytes);
  Status fill_copy(const Place& place);
  Status fill_panels(Place& place, ThreadPool& pool);
  std::uint8_t* base() { return reinterpret_cast<std::uint8_t*>(memory_.data()); }

  std::map<TensorPlace, Place> places_;  // tied tensors share
  bool has_panels_ = false;
  std::uint64_t planned_ = 0;
  LazyFloats memory_;
};

}  // namespace doppler::cpu
