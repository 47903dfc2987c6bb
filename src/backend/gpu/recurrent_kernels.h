// The kernels of the ops of recurrent layers, for steps of many tokens and for single ones: as op_kernels.h
// has the others.
#pragma once

#include <functional>

#include "backend/gpu/op_kernels.h"

namespace doppler::gpu {

// The place of a value in the program that asks.
using PlaceOf = std::function<const ValueView&(ValueId)>;

// Whether recurrent_kernel() makes it.
bool is_recurrent_kernel(OpKind kind);

// A kernel that keeps a state goes along the tokens of a step itself: it is dispatched once, with `z`
// workgroups for the slots; `batch`: for a step of many tokens, else for the one of a decode program.
struct RecurrentKernel {
  KernelCall call;
  std::uint32_t z = 1;
  bool each_token = true;  // dispatched for each token
};
Result<RecurrentKernel> recurrent_kernel(Context& context, const Op& op, const PlaceOf& place, bool batch);

}  // namespace doppler::gpu
