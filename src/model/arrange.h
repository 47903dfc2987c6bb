// What folders store otherwise than the table of weights says, put as it says: WeightNames tells which.
#pragma once

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weight_table.h"

namespace doppler {

// Turns transposed matrices, puts the rows of a fused qkv that go by heads one part after the other, and
// joins tensors of single heads, each in memory of the store: a copy of what is changed, and of nothing else.
// Tensors of another shape than the spec asks for stay as they are; binding refuses them. Errors: kMismatch
// for heads that are missing, kLimit when memory is short.
Status arrange_weights(const ModelSpec& spec, const WeightNames& names, TensorStore& store);

// Fills in the numbers that a folder keeps as tensors (xIELU's). Errors: kMismatch for missing ones, kCorrupt
// for values that are none.
Status read_numbers(const WeightNames& names, const TensorStore& store, ModelSpec& spec);

// xIELU's numbers as files have them, both alphas before softplus, and what they were before.
Xielu xielu_of(double alpha_p, double alpha_n, double beta, double eps);
double stored_alpha_p(const Xielu& numbers);
double stored_alpha_n(const Xielu& numbers);

}  // namespace doppler
