// The two orders in which a head's rows may lie: halves of rotary pairs apart, as Hugging Face has them, or
// the two of each pair side by side, as GGUF files of some families have them.
#pragma once

#include <cstddef>

#include "inspect/doctor/op_case.h"

namespace doppler {

// Where row `row` of a file that has pairs side by side lies once halves are apart; `dim` is even.
inline std::size_t paired(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % 2) * dim / 2 + i / 2;
}
// And back.
inline std::size_t unpaired(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % (dim / 2)) * 2 + i / (dim / 2);
}

inline std::size_t head_dim(const OpCase& c) {
  const auto& layers = c.context().spec.layers;
  return c.layer() < 0 || layers.empty() ? 0 : layers[static_cast<std::size_t>(c.layer())].attention.head_dim;
}

// Whether loading may have put the rows into another order than the file has, or those of a tensor that lies
// in their place.
inline bool rows_may_be_paired(const OpCase& c) {
  const Stage stage = c.stage();
  const std::size_t dim = head_dim(c);
  return (stage == Stage::kQProj || stage == Stage::kKProj || stage == Stage::kVProj) && dim > 1 &&
         dim % 2 == 0 && c.width() % dim == 0;
}

}  // namespace doppler
