// Tensors of a folder as GGUF files have them, where llama.cpp's converter changes more than their order.
#pragma once

#include <vector>

#include "base/result.h"
#include "convert/source.h"
#include "model/family.h"
#include "model/weights.h"

namespace doppler::convert {

// Changes a recurrent layer's tensor: decay rates become what a state decays by, heads come in llama.cpp's
// order, norms of parts get a row for each.
Status arrange_recurrent(const ModelSpec& spec, const GgufRule& rule, const WeightTensor& wanted,
                         SourceTensor& tensor);

// The two tensors, of the convolution's input and of the gate, that such files have for an input projection
// whose rows go by key head.
std::vector<SourceTensor> part_by_use(const ModelSpec& spec, const GgufRule& rule, const WeightTensor& wanted,
                                      const TensorView& whole);

// Multiplies a tensor by what the model multiplies its result by, for architectures whose files hold the
// products.
Status multiply(const ModelSpec& spec, const WeightTensor& wanted, SourceTensor& tensor);
// The spec of a file of such products: nothing is multiplied by, and a head that was tied is one of its own
// unless both are multiplied alike.
void leave_multipliers_out(ModelSpec& spec);
bool ties_after_multiplying(const ModelSpec& spec);

}  // namespace doppler::convert
