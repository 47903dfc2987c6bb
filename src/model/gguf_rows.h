// The order of Q's and K's rows in GGUF files of the llama architecture.
#pragma once

#include <span>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weights.h"

namespace doppler {

// llama.cpp's converter puts the two rows of a rotary pair side by side: row 2i + half of a head is Hugging
// Face's row half * head_dim / 2 + i. This puts the rows (and biases) of every layer's Q and K back, into
// memory of the store, so that nothing after loading knows of the other order. Tensors of another shape than
// the spec asks for stay as they are; binding refuses them. Errors: kLimit when memory is short.
Status restore_row_order(const ModelSpec& spec, std::span<const WeightName> names, TensorStore& store);

}  // namespace doppler
