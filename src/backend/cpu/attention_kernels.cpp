// Scores and weighted values of one chunk of positions, for the query heads that share a KV head. Every
// (head, position) score is one vector accumulator over the head's dims, and every dim of a head's result one
// accumulator over the chunk's positions in order, so that neither tiling nor batch changes a bit.
#include "backend/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_kernels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <algorithm>
#include <limits>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace doppler::cpu::HWY_NAMESPACE {
namespace {

// Accumulators held in registers: heads x positions of scores, heads x vectors of values. 4 x 4 of 32
// registers, 4 x 2 of 16.
constexpr std::size_t kTileHeads = 4;
constexpr std::size_t kTilePositions = kManyRegisters ? 4 : 2;
constexpr std::size_t kTileVectors = kManyRegisters ? 4 : 2;

// Positions that lie side by side in the ring: those up to its end, then those from its start.
struct Run {
  std::size_t ring, count, chunk;  // first place in the ring, positions, first place in the chunk
};
struct Runs {
  Run run[2];
};
Runs runs_of(const AttentionCall& call) {
  const std::size_t before_end = std::min(call.count, call.capacity - call.first);
  return {{{call.first, before_end, 0}, {0, call.count - before_end, before_end}}};
}

// Asks for the next tile's keys and these positions' values on the way: one token reads each of them once,
// from far away, and hardware follows streams of a head's few lines badly. Both go to L2.
template <std::size_t kHeads, std::size_t kPositions>
HWY_INLINE void score_tile(const AttentionCall& call, const float* queries, const float* keys,
                           const float* values, float* scores) {
  const D d;
  const std::size_t dim = call.head_dim, whole = dim / kLanes * kLanes;
  V sum[kPositions][kHeads];
  DOPPLER_UNROLL for (std::size_t p = 0; p < kPositions; ++p) {
    DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) sum[p][h] = hn::Zero(d);
  }
  for (std::size_t i = 0; i < whole; i += kLanes) {
    V query[kHeads];
    DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) query[h] = hn::LoadU(d, queries + h * dim + i);
    DOPPLER_UNROLL for (std::size_t p = 0; p < kPositions; ++p) {
      __builtin_prefetch(keys + (kPositions + p) * dim + i, 0, 2);
      __builtin_prefetch(values + p * dim + i, 0, 2);
      const V key = hn::LoadU(d, keys + p * dim + i);
      DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) sum[p][h] =
          hn::MulAdd(query[h], key, sum[p][h]);
    }
  }
  DOPPLER_UNROLL for (std::size_t p = 0; p < kPositions; ++p) {
    DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
      V total = sum[p][h];
      if (whole < dim) {
        total = hn::MulAdd(load_some(queries + h * dim + whole, dim - whole),
                           load_some(keys + p * dim + whole, dim - whole), total);
      }
      scores[h * kAttentionChunk + p] = sum_of(total) * call.scale;
    }
  }
}

template <std::size_t kHeads>
void score_heads(const AttentionCall& call, std::size_t head) {
  const float* queries = call.queries + head * call.head_dim;
  float* scores = call.scores + head * kAttentionChunk;
  for (const Run& run : runs_of(call).run) {
    const float* keys = call.keys + run.ring * call.head_dim;
    const float* values = call.values + run.ring * call.head_dim;
    std::size_t p = 0;
    for (; p + kTilePositions <= run.count; p += kTilePositions) {
      const std::size_t at = p * call.head_dim;
      score_tile<kHeads, kTilePositions>(call, queries, keys + at, values + at, scores + run.chunk + p);
    }
    for (; p < run.count; ++p) {
      const std::size_t at = p * call.head_dim;
      score_tile<kHeads, 1>(call, queries, keys + at, values + at, scores + run.chunk + p);
    }
  }
}

void scores(const AttentionCall& call) {
  std::size_t head = 0;
  for (; head + kTileHeads <= call.group; head += kTileHeads) score_heads<kTileHeads>(call, head);
  for (; head + 2 <= call.group; head += 2) score_heads<2>(call, head);
  for (; head < call.group; ++head) score_heads<1>(call, head);
  if (!(call.softcap > 0)) return;
  const D d;
  const V cap = hn::Set(d, call.softcap);
  for (head = 0; head < call.group; ++head) {
    float* row = call.scores + head * kAttentionChunk;
    // Whole vectors: what lies beyond `count` is scratch.
    for (std::size_t p = 0; p < call.count; p += kLanes) {
      hn::StoreU(hn::Mul(cap, tanh_of(hn::Div(hn::LoadU(d, row + p), cap))), d, row + p);
    }
  }
}

// Turns a head's scores into weights. A chunk without any finite score has the weight 0, so that it vanishes
// beside others.
void weigh(const AttentionCall& call, std::size_t head) {
  const D d;
  float* row = call.scores + head * kAttentionChunk;
  const std::size_t padded = (call.count + kLanes - 1) / kLanes * kLanes;
  std::fill(row + call.count, row + padded, -std::numeric_limits<float>::infinity());
  V largest = hn::LoadU(d, row);
  for (std::size_t p = kLanes; p < padded; p += kLanes) largest = hn::Max(largest, hn::LoadU(d, row + p));
  // The portable target's MaxOfLanes starts from the lowest finite value, which must not stand for -inf.
  const float reduced = hn::GetLane(hn::MaxOfLanes(d, largest));
  const bool hopeless = reduced <= std::numeric_limits<float>::lowest();
  const float top = hopeless ? -std::numeric_limits<float>::infinity() : reduced;
  const V shift = hn::Set(d, hopeless ? 0.0f : top);
  V total = hn::Zero(d);
  for (std::size_t p = 0; p < padded; p += kLanes) {
    const V weight = exp_of(hn::Sub(hn::LoadU(d, row + p), shift));
    hn::StoreU(weight, d, row + p);
    total = hn::Add(total, weight);
  }
  call.largest[head] = top;
  call.total[head] = sum_of(total);
}

template <std::size_t kHeads, std::size_t kVectors>
HWY_INLINE void value_tile(const AttentionCall& call, const Runs& runs, std::size_t head, std::size_t dim) {
  const D d;
  V sum[kHeads][kVectors];
  DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
    DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) sum[h][v] = hn::Zero(d);
  }
  for (const Run& run : runs.run) {
    const float* values = call.values + run.ring * call.head_dim + dim;
    const float* weights = call.scores + head * kAttentionChunk + run.chunk;
    for (std::size_t p = 0; p < run.count; ++p, values += call.head_dim) {
      V value[kVectors];
      DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) value[v] = hn::LoadU(d, values + v * kLanes);
      DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
        const V weight = hn::Set(d, weights[h * kAttentionChunk + p]);
        DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) sum[h][v] =
            hn::MulAdd(weight, value[v], sum[h][v]);
      }
    }
  }
  DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
    DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[h][v], d, call.sum + (head + h) * call.head_dim + dim + v * kLanes);
    }
  }
}

template <std::size_t kHeads>
void value_heads(const AttentionCall& call, std::size_t head) {
  const Runs runs = runs_of(call);
  std::size_t dim = 0;
  for (; dim + kTileVectors * kLanes <= call.head_dim; dim += kTileVectors * kLanes) {
    value_tile<kHeads, kTileVectors>(call, runs, head, dim);
  }
  for (; dim + kLanes <= call.head_dim; dim += kLanes) value_tile<kHeads, 1>(call, runs, head, dim);
  for (; dim < call.head_dim; ++dim) {
    for (std::size_t h = head; h < head + kHeads; ++h) {
      float sum = 0;
      for (const Run& run : runs.run) {
        for (std::size_t p = 0; p < run.count; ++p) {
          sum += call.scores[h * kAttentionChunk + run.chunk + p] *
                 call.values[(run.ring + p) * call.head_dim + dim];
        }
      }
      call.sum[h * call.head_dim + dim] = sum;
    }
  }
}

void values(const AttentionCall& call) {
  std::size_t head = 0;
  for (std::size_t h = 0; h < call.group; ++h) weigh(call, h);
  for (; head + kTileHeads <= call.group; head += kTileHeads) value_heads<kTileHeads>(call, head);
  for (; head + 2 <= call.group; head += 2) value_heads<2>(call, head);
  for (; head < call.group; ++head) value_heads<1>(call, head);
}

}  // namespace

const AttentionKernels kAttention = {scores, values};

}  // namespace doppler::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace doppler::cpu {
#define DOPPLER_TABLE_OF_FILE kAttention
DOPPLER_KERNEL_TABLE(AttentionKernels, attention_kernels)
}  // namespace doppler::cpu
#endif
