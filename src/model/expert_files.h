// Experts as some folders store them: all of a layer in one tensor with columns instead of rows, gates and
// ups together (gpt-oss, Llama 4), or in MXFP4 with blocks and scales apart (gpt-oss as published). Loading
// turns these into tensors of rows, which is one copy of them.
#pragma once

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weight_table.h"

namespace doppler {

// Puts [experts, rows, columns] under the names of the roles kGateExperts, kUpExperts, kDownExperts and the
// biases of the first two in place of what `names.expert_columns` says; does nothing where the store has
// none of it. MXFP4 stays MXFP4. Errors: kMismatch for shapes that contradict the spec; kLimit.
Status restore_experts(const ModelSpec& spec, const WeightNames& names, TensorStore& store);

}  // namespace doppler
