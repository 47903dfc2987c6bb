// Which weights' rows a file may hold in the other order of rotary pairs: see model/gguf_rows.h.
#pragma once

#include <cstddef>

#include "diagnosis/doctor/op_case.h"
#include "model/gguf_rows.h"

namespace doppler::diagnosis {

inline std::size_t head_dim(const OpCase& c) {
  const auto& layers = c.context().spec.layers;
  return c.layer() < 0 || layers.empty() ? 0 : layers[static_cast<std::size_t>(c.layer())].attention.head_dim;
}

// Whether loading may have reordered the rows of this product's weight, or of the tensor that lies in its
// place.
inline bool rows_may_be_paired(const OpCase& c) {
  const Stage stage = c.stage();
  const std::size_t dim = head_dim(c);
  return (stage == Stage::kQProj || stage == Stage::kKProj || stage == Stage::kVProj) && dim > 1 &&
         dim % 2 == 0 && c.width() % dim == 0;
}

}  // namespace doppler::diagnosis
