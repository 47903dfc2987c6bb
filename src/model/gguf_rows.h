// The order of Q's and K's rows in GGUF files of the llama architecture.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weights.h"

namespace doppler {

// llama.cpp's converter puts the two rows of a rotary pair side by side; in Hugging Face's order they are
// half a head apart. paired() gives a GGUF row's place in Hugging Face's order, for heads of `dim` rows, an
// even number.
inline std::size_t paired(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % 2) * dim / 2 + i / 2;
}
// The inverse of paired().
inline std::size_t unpaired(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % (dim / 2)) * 2 + i / (dim / 2);
}

// Puts the rows (and biases) of every layer's Q and K into Hugging Face's order, into memory of the store, so
// that nothing after loading knows of the other order. Tensors of another shape than the spec asks for stay
// as they are; binding refuses them. Errors: kLimit when memory is short.
Status restore_row_order(const ModelSpec& spec, const WeightNames& names, TensorStore& store);

}  // namespace doppler
