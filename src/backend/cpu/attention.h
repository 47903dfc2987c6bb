// Attention of the cpu backend: appends keys and values to the cache, then runs the kernels over chunks of
// positions.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/kv_cache.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "plan/plan.h"

namespace doppler::cpu {

class Attention {
 public:
  // Allocates for the largest attention op of the plan. Errors: kLimit.
  static Result<Attention> create(const AttentionKernels& kernels, ThreadPool& pool, const Plan& plan,
                                  const BackendOptions& options);

  struct Call {
    const AttentionParams* params = nullptr;
    std::size_t layer = 0;
    const float *q = nullptr, *k = nullptr;  // [tokens, heads or kv_heads, head_dim]
    const float* v = nullptr;                // the same, or null
    const float* sinks = nullptr;            // one for each head, or null
    float* out = nullptr;
    float* emitted = nullptr;  // null, or [tokens, heads, longest]: filled with scores where a token attends
    std::size_t longest = 0;
  };
  // Puts the step's keys and values into the cache, for attend() to find there.
  void append(const Call& call, const StepInput& input, KvCache& cache);
  void attend(const Call& call, const StepInput& input, KvCache& cache);

  std::uint64_t bytes() const { return (scratch_.size() + partials_.size()) * sizeof(float); }

 private:
  struct Work;  // one call's parameters and the values derived from them

  Attention(const AttentionKernels& kernels, ThreadPool& pool) : kernels_(&kernels), pool_(&pool) {}
  void run_blocks(const Work& work, std::size_t block);
  void run_split(const Work& work);

  const AttentionKernels* kernels_;
  ThreadPool* pool_;
  LazyFloats scratch_;   // per thread: scores, one chunk's result, running results of a block of tokens
  LazyFloats partials_;  // results of all chunks of a few (token, kv head) pairs
  std::size_t scratch_stride_ = 0;
  std::size_t max_partials_ = 0;
};

}  // namespace doppler::cpu
