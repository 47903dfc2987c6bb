// The ops of recurrent layers on the cpu backend: tokens one after the other, heads and channels on threads.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/kv_cache.h"
#include "backend/step_input.h"
#include "base/thread_pool.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler::cpu {

// The weights of such an op in the form in which the kernels read them: a convolution's by tap, rates as they
// multiply.
struct RecurrentWeights {
  std::vector<float> first, second, bias;
};

// Empty for ops of other kinds. Errors: those of decode_f32.
Result<RecurrentWeights> prepare_recurrent(const Op& op, const Weights& weights);

// The values of one op in a step: rows of each input, and of the output, side by side.
struct RecurrentCall {
  const Op& op;
  const RecurrentWeights& weights;
  std::vector<const float*> inputs;  // [tokens, width] each
  float* out = nullptr;
  std::size_t in_width = 0, out_width = 0;  // of the first input and the output
};

// Whether run_recurrent() computes ops of that kind.
bool is_recurrent_op(OpKind kind);

// The state of the tokens' slots goes on in `cache`; where a token has position 0 it starts from zeros.
void run_recurrent(const Kernels& kernels, ThreadPool& pool, const RecurrentCall& call,
                   const StepInput& input, KvCache& cache);

}  // namespace doppler::cpu
