// Scores and weighted values of one chunk of positions, for the query heads that share a KV head. Every
// (head, position) score is one vector accumulator over the head's dims, and every dim of a head's result one
// accumulator over the chunk's positions in order, so that neither tiling nor batch changes a bit.
#include "backend/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_kernels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/simd-inl.h"
#include "base/float16.h"

HWY_BEFORE_NAMESPACE();
namespace doppler::cpu::HWY_NAMESPACE {
namespace {

// How the cache stores a row: `load` gives kLanes values from the i-th on, `one` a single value.
struct RowF32 {
  static constexpr KvType kType = KvType::kF32;
  static HWY_INLINE V load(const std::uint8_t* row, std::size_t, std::size_t i) {
    return F32::load(row + 4 * i);
  }
  static HWY_INLINE float one(const std::uint8_t* row, std::size_t, std::size_t i) {
    float value;
    std::memcpy(&value, row + 4 * i, 4);
    return value;
  }
};
struct RowF16 {
  static constexpr KvType kType = KvType::kF16;
  static HWY_INLINE V load(const std::uint8_t* row, std::size_t, std::size_t i) {
    return F16::load(row + 2 * i);
  }
  static HWY_INLINE float one(const std::uint8_t* row, std::size_t, std::size_t i) {
    std::uint16_t half;
    std::memcpy(&half, row + 2 * i, 2);
    return f16_to_f32(half);
  }
};
struct RowQ8 {
  static constexpr KvType kType = KvType::kQ8_0;
  static_assert(kKvBlock % kLanes == 0);
  static HWY_INLINE float scale(const std::uint8_t* row, std::size_t dim, std::size_t i) {
    return RowF16::one(row + dim, 0, i / kKvBlock);
  }
  static HWY_INLINE V load(const std::uint8_t* row, std::size_t dim, std::size_t i) {
    const hn::Rebind<std::int8_t, D> d8;
    const hn::RebindToSigned<D> d32;
    const auto whole = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(row + i)));
    return hn::Mul(hn::ConvertTo(D(), whole), hn::Set(D(), scale(row, dim, i)));
  }
  static HWY_INLINE float one(const std::uint8_t* row, std::size_t dim, std::size_t i) {
    return static_cast<float>(static_cast<std::int8_t>(row[i])) * scale(row, dim, i);
  }
};
template <class Row>
HWY_INLINE V load_last(const std::uint8_t* row, std::size_t dim, std::size_t i) {
  HWY_ALIGN float buffer[kLanes] = {};
  for (std::size_t j = i; j < dim; ++j) buffer[j - i] = Row::one(row, dim, j);
  return hn::Load(D(), buffer);
}

void store_q8(const float* row, std::size_t count, std::uint8_t* out) {
  for (std::size_t first = 0; first < count; first += kKvBlock) {
    const std::size_t last = std::min(first + kKvBlock, count);
    float top = 0;
    bool finite = true;
    for (std::size_t i = first; i < last; ++i) {
      top = std::max(top, std::fabs(row[i]));
      finite = finite && std::isfinite(row[i]);
    }
    // The scale is rounded to f16 first, so that the codes fit what will be read. Beyond f16's range, and for
    // NaN, it becomes Inf or NaN, which the results then show.
    const std::uint16_t half = f32_to_f16(finite ? top / 127.0f : std::numeric_limits<float>::quiet_NaN());
    const float scale = f16_to_f32(half);
    const float factor = finite && scale > 0 && std::isfinite(scale) ? 1.0f / scale : 0.0f;
    for (std::size_t i = first; i < last; ++i) {
      const float code = std::clamp(std::nearbyint((finite ? row[i] : 0.0f) * factor), -127.0f, 127.0f);
      out[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    }
    std::memcpy(out + count + first / kKvBlock * 2, &half, 2);
  }
}

void store_f16(const float* row, std::size_t count, std::uint8_t* out) {
  std::size_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  const hn::Rebind<hwy::float16_t, D> d16;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(D(), row + i)), d16,
               reinterpret_cast<hwy::float16_t*>(out + 2 * i));
  }
#endif
  for (; i < count; ++i) {
    const std::uint16_t half = f32_to_f16(row[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void store(KvType type, const float* row, std::size_t count, std::uint8_t* out) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(out, row, count * sizeof(float));
      return;
    case KvType::kF16:
      return store_f16(row, count, out);
    case KvType::kQ8_0:
      return store_q8(row, count, out);
  }
}

// Accumulators held in registers: 16 of 32, 8 of 16. Scores: heads x positions of them; values: heads x
// vectors.
constexpr std::size_t kTileSums = kManyRegisters ? 16 : 8;
constexpr std::size_t kTileHeads = 4;
constexpr std::size_t kTileVectors = kTileSums / kTileHeads;

// The sums over the lanes of kLanes vectors, as the lanes of one: neighbours are added, then neighbours of
// those, and so on. 15 additions for 16 vectors instead of 4 for each. (Lane i belongs to vector i.)
template <std::size_t kCount>
HWY_INLINE V sums_of(const V* v) {
  [[maybe_unused]] const D d;
#if HWY_TARGET == HWY_SCALAR
  return v[0];
#else
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    const V low = sums_of<kCount / 2>(v), high = sums_of<kCount / 2>(v + kCount / 2);
    return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
  }
#endif
}

// Bytes of keys prefetched ahead of their use: those of some tiles, in the time that memory needs to answer.
constexpr std::size_t kAhead = 2048;

// kHeads x kPositions scores. Prefetches later keys, from `ahead` on, and these positions' values on the way:
// one token reads each of them once, from far away, and hardware follows streams of a head's few lines badly.
// Both go to L2.
template <class Row, std::size_t kHeads, std::size_t kPositions>
HWY_INLINE void score_tile(const AttentionCall& call, const float* queries, const std::uint8_t* keys,
                           const std::uint8_t* values, const std::uint8_t* ahead, std::size_t count,
                           float* scores) {
  constexpr std::size_t kSums = kHeads * kPositions, kPadded = (kSums + kLanes - 1) / kLanes * kLanes;
  const D d;
  const std::size_t dim = call.head_dim, row_bytes = kv_row_bytes(Row::kType, dim),
                    whole = dim / kLanes * kLanes;
  V sum[kPadded];
  DOPPLER_UNROLL for (std::size_t i = 0; i < kPadded; ++i) sum[i] = hn::Zero(d);
  for (std::size_t line = 0; line < kPositions * row_bytes; line += 64) {
    __builtin_prefetch(ahead + line, 0, 2);
    __builtin_prefetch(values + line, 0, 2);
  }
  for (std::size_t i = 0; i < whole; i += kLanes) {
    V query[kHeads];
    DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) query[h] = hn::LoadU(d, queries + h * dim + i);
    DOPPLER_UNROLL for (std::size_t p = 0; p < kPositions; ++p) {
      const V key = Row::load(keys + p * row_bytes, dim, i);
      DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) sum[h * kPositions + p] =
          hn::MulAdd(query[h], key, sum[h * kPositions + p]);
    }
  }
  if (whole < dim) {
    DOPPLER_UNROLL for (std::size_t p = 0; p < kPositions; ++p) {
      const V key = load_last<Row>(keys + p * row_bytes, dim, whole);
      DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) sum[h * kPositions + p] =
          hn::MulAdd(load_some(queries + h * dim + whole, dim - whole), key, sum[h * kPositions + p]);
    }
  }
  HWY_ALIGN float tile[kPadded];
  const V scale = hn::Set(d, call.scale);
  DOPPLER_UNROLL for (std::size_t i = 0; i < kPadded; i += kLanes) {
    hn::Store(hn::Mul(sums_of<kLanes>(sum + i), scale), d, tile + i);
  }
  DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
    std::copy_n(tile + h * kPositions, count, scores + h * kAttentionChunk);
  }
}

template <class Row, std::size_t kHeads>
void score_heads(const AttentionCall& call, std::size_t head) {
  constexpr std::size_t kPositions = kTileSums / kHeads;
  const float* queries = call.queries + head * call.head_dim;
  float* scores = call.scores + head * kAttentionChunk;
  const std::size_t row_bytes = kv_row_bytes(Row::kType, call.head_dim);
  for (std::size_t r = 0; r < call.runs.size(); ++r) {
    const KvRun& run = call.runs[r];
    const std::size_t bytes = run.count * row_bytes;
    // Of the next run, where this one ends before.
    const std::uint8_t* const next = r + 1 < call.runs.size() ? call.runs[r + 1].keys - bytes : run.keys;
    const auto ahead = [&](std::size_t at) { return (at + kAhead < bytes ? run.keys : next) + at + kAhead; };
    std::size_t p = 0;
    for (; p + kPositions <= run.count; p += kPositions) {
      const std::size_t at = p * row_bytes;
      score_tile<Row, kHeads, kPositions>(call, queries, run.keys + at, run.values + at, ahead(at),
                                          kPositions, scores + p);
    }
    for (; p < run.count; ++p) {
      const std::size_t at = p * row_bytes;
      score_tile<Row, kHeads, 1>(call, queries, run.keys + at, run.values + at, ahead(at), 1, scores + p);
    }
    scores += run.count;
  }
}

template <class Row>
void all_scores(const AttentionCall& call) {
  std::size_t head = 0;
  for (; head + kTileHeads <= call.group; head += kTileHeads) score_heads<Row, kTileHeads>(call, head);
  for (; head + 2 <= call.group; head += 2) score_heads<Row, 2>(call, head);
  for (; head < call.group; ++head) score_heads<Row, 1>(call, head);
}

void scores(const AttentionCall& call) {
  switch (call.type) {
    case KvType::kF32:
      all_scores<RowF32>(call);
      break;
    case KvType::kF16:
      all_scores<RowF16>(call);
      break;
    case KvType::kQ8_0:
      all_scores<RowQ8>(call);
      break;
  }
  if (!(call.softcap > 0)) return;
  const D d;
  const V cap = hn::Set(d, call.softcap);
  for (std::size_t head = 0; head < call.group; ++head) {
    float* row = call.scores + head * kAttentionChunk;
    // Whole vectors: places beyond `count` are scratch.
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

template <class Row, std::size_t kHeads, std::size_t kVectors>
HWY_INLINE void value_tile(const AttentionCall& call, std::size_t head, std::size_t dim) {
  const D d;
  V sum[kHeads][kVectors];
  DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
    DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) sum[h][v] = hn::Zero(d);
  }
  const std::size_t row_bytes = kv_row_bytes(Row::kType, call.head_dim);
  const float* weights = call.scores + head * kAttentionChunk;
  for (const KvRun& run : call.runs) {
    const std::uint8_t* values = run.values;
    for (std::size_t p = 0; p < run.count; ++p, values += row_bytes) {
      V value[kVectors];
      DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) value[v] =
          Row::load(values, call.head_dim, dim + v * kLanes);
      DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
        const V weight = hn::Set(d, weights[h * kAttentionChunk + p]);
        DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) sum[h][v] =
            hn::MulAdd(weight, value[v], sum[h][v]);
      }
    }
    weights += run.count;
  }
  DOPPLER_UNROLL for (std::size_t h = 0; h < kHeads; ++h) {
    DOPPLER_UNROLL for (std::size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[h][v], d, call.sum + (head + h) * call.value_dim + dim + v * kLanes);
    }
  }
}

template <class Row, std::size_t kHeads>
void value_heads(const AttentionCall& call, std::size_t head) {
  std::size_t dim = 0;
  for (; dim + kTileVectors * kLanes <= call.value_dim; dim += kTileVectors * kLanes) {
    value_tile<Row, kHeads, kTileVectors>(call, head, dim);
  }
  for (; dim + kLanes <= call.value_dim; dim += kLanes) value_tile<Row, kHeads, 1>(call, head, dim);
  for (; dim < call.value_dim; ++dim) {
    for (std::size_t h = head; h < head + kHeads; ++h) {
      float sum = 0;
      const float* weight = call.scores + h * kAttentionChunk;
      for (const KvRun& run : call.runs) {
        for (std::size_t p = 0; p < run.count; ++p) {
          sum += *weight++ *
                 Row::one(run.values + p * kv_row_bytes(Row::kType, call.head_dim), call.head_dim, dim);
        }
      }
      call.sum[h * call.value_dim + dim] = sum;
    }
  }
}

template <class Row>
void all_values(const AttentionCall& call) {
  std::size_t head = 0;
  for (std::size_t h = 0; h < call.group; ++h) weigh(call, h);
  for (; head + kTileHeads <= call.group; head += kTileHeads) value_heads<Row, kTileHeads>(call, head);
  for (; head + 2 <= call.group; head += 2) value_heads<Row, 2>(call, head);
  for (; head < call.group; ++head) value_heads<Row, 1>(call, head);
}

void values(const AttentionCall& call) {
  switch (call.type) {
    case KvType::kF32:
      return all_values<RowF32>(call);
    case KvType::kF16:
      return all_values<RowF16>(call);
    case KvType::kQ8_0:
      return all_values<RowQ8>(call);
  }
}

// Row by row of `dim` values: into = into * a + more * b.
void blend(float a, const float* more, float b, std::size_t dim, float* into) {
  const D d;
  const V va = hn::Set(d, a), vb = hn::Set(d, b);
  std::size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, into + i), va, hn::Mul(hn::LoadU(d, more + i), vb)), d, into + i);
  }
  if (i < dim) {
    const V rest = hn::MulAdd(load_some(into + i, dim - i), va, hn::Mul(load_some(more + i, dim - i), vb));
    store_some(rest, into + i, dim - i);
  }
}

}  // namespace

const AttentionKernels kAttention = {store, scores, values, blend};

}  // namespace doppler::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace doppler::cpu {
#define DOPPLER_TABLE_OF_FILE kAttention
DOPPLER_KERNEL_TABLE(AttentionKernels, attention_kernels)
}  // namespace doppler::cpu
#endif
