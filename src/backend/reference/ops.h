// The ops of a plan in plain loops with double accumulation, each by itself: the reference backend runs them
// in turn over its values and its cache, an experiment runs one on recorded inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "plan/plan.h"

namespace doppler::reference {

// Threads that start with the first op that is worth them; in small models none is.
class Threads {
 public:
  explicit Threads(std::size_t count) : count_(count) {}  // 0: one per core
  // body(begin, end) over all of [0, count); `work`: multiplications of all together.
  void run(std::size_t count, std::size_t grain, std::uint64_t work,
           const std::function<void(std::size_t, std::size_t)>& body);

 private:
  std::size_t count_;
  std::unique_ptr<ThreadPool> pool_;
};

// The keys and values that attention reads. `token` counts the rows of the op, which may belong to several
// sequences; positions count in the token's own sequence.
class KeyValues {
 public:
  virtual ~KeyValues() = default;
  virtual const float* key(std::size_t token, std::uint32_t kv_head, std::uint64_t position) const = 0;
  virtual const float* value(std::size_t token, std::uint32_t kv_head, std::uint64_t position) const = 0;
};

// The values that a recurrent op keeps of the sequence of a token, as KvLayer orders them. They go on from
// one token to the next.
class RecurrentState {
 public:
  virtual ~RecurrentState() = default;
  virtual float* of(std::size_t token) = 0;
};

struct Input {
  std::span<const float> data;  // [rows, width]
  std::size_t width = 0;
};
struct Output {
  std::span<float> data;  // [rows, width], all of it written
  std::size_t width = 0, heads = 1;
};

// One op with everything that it reads and writes. All memory belongs to the caller.
struct OpCall {
  OpKind kind = OpKind::kAdd;
  OpParams params;
  std::vector<Input> inputs;
  std::vector<Output> outputs;  // several of products only
  // Parallel to outputs for kMatmul; the first experts' of kExpertMatmul.
  std::vector<const TensorView*> weights;
  std::vector<const TensorView*> biases;  // empty, or parallel to weights; null: none
  const RopeTable* rope = nullptr;        // kRope
  std::span<const std::int32_t> ids;      // kEmbed: of each row
  // kRope, kAttention, kEmbed, kScaleQuery, recurrent ops: of each row
  std::span<const std::int32_t> positions;
  std::span<const std::size_t> wanted;  // kSelect: the rows to take
  RecurrentState* state = nullptr;      // recurrent ops; a token at position 0 starts from zeros
  // kAttention:
  const KeyValues* cache = nullptr;
  std::span<float> scores;  // [rows, heads, longest] to fill where a key is seen; empty: not wanted
  std::size_t longest = 0;  // positions in a row of scores
  std::span<const std::uint32_t> head_map;  // the kv head of each head; empty: as many neighbours each
  // Whether the query in row `token` sees the key at `position`, of the first `keys`; null: those up to its
  // own position, within the window.
  std::function<bool(std::size_t token, std::size_t position)> sees;
  std::size_t keys = 0;
};

// The experts' weights (and biases) follow each other in memory from the one that the call names on.
// The same result for any number of threads. Errors: kInternal for fused ops; those of decode_f32.
Status run_op(const OpCall& call, Threads& threads);

}  // namespace doppler::reference
