#include "backend/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/alibi.h"

namespace doppler::cpu {
namespace {

// Tokens that go through a chunk of keys and values together while it is in L2: 8 divide its traffic by 8.
constexpr std::size_t kBlockTokens = 8;

// Floats of the result of some positions for `group` heads: largest, total, sum.
std::size_t result_floats(std::size_t group, std::size_t head_dim) {
  return group * (head_dim + 2);
}

// The softmax of the positions seen so far, for a group of heads: numerators relative to `largest`.
struct State {
  float *largest, *total, *sum;
  State(float* memory, std::size_t group) : largest(memory), total(memory + group), sum(memory + 2 * group) {}
};

// Joins a later chunk into the state. Always in the order of positions, so one token's rounding is the same
// everywhere.
void merge(const AttentionKernels& kernels, const State& into, const State& chunk, std::size_t group,
           std::size_t head_dim) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (std::size_t h = 0; h < group; ++h) {
    const float largest = std::max(into.largest[h], chunk.largest[h]);
    const float a = largest == kNone ? 1.0f : std::exp(into.largest[h] - largest);
    const float b = largest == kNone ? 1.0f : std::exp(chunk.largest[h] - largest);
    into.largest[h] = largest;
    into.total[h] = into.total[h] * a + chunk.total[h] * b;
    kernels.blend(a, chunk.sum + h * head_dim, b, head_dim, into.sum + h * head_dim);
  }
}

// `sinks` of the group's heads, or null.
void finish(const State& state, const float* sinks, std::size_t group, std::size_t head_dim, float* out) {
  for (std::size_t h = 0; h < group; ++h) {
    float total = state.total[h], scale = 1;
    if (sinks != nullptr) {
      const float largest = std::max(state.largest[h], sinks[h]);
      scale = std::exp(state.largest[h] - largest);
      total = total * scale + std::exp(sinks[h] - largest);
    }
    for (std::size_t i = 0; i < head_dim; ++i)
      out[h * head_dim + i] = state.sum[h * head_dim + i] * scale / total;
  }
}

}  // namespace

struct Attention::Work {
  const Call& call;
  const StepInput& input;
  KvCache& cache;
  const AttentionParams& a;
  std::size_t group;
  std::vector<double> slopes;  // of ALiBi, one for each head, or none

  std::size_t tokens() const { return input.size(); }
  std::uint64_t position(std::size_t token) const {
    return static_cast<std::uint64_t>(input.positions[token]);
  }
  std::uint64_t first_position(std::size_t token) const { return a.first_seen(position(token)); }
  std::uint64_t first_chunk(std::size_t token) const { return first_position(token) / kAttentionChunk; }
  std::uint64_t last_chunk(std::size_t token) const { return position(token) / kAttentionChunk; }
  const float* sinks(std::size_t kv_head) const {
    return call.sinks == nullptr ? nullptr : call.sinks + kv_head * group;
  }
  std::size_t head_place(std::size_t token, std::size_t kv_head, std::size_t dim) const {
    return (token * a.heads + kv_head * group) * dim;
  }

  // The chunk's positions that the token attends to; there must be some.
  void run_chunk(const AttentionKernels& kernels, std::size_t token, std::size_t kv_head, std::uint64_t chunk,
                 float* scores, float* result) const {
    const auto slot = static_cast<std::uint32_t>(input.slots[token]);
    const auto head = static_cast<std::uint32_t>(kv_head);
    const std::uint64_t first = std::max(first_position(token), chunk * kAttentionChunk);
    const std::uint64_t last = std::min(position(token), (chunk + 1) * kAttentionChunk - 1);
    const auto count = static_cast<std::size_t>(last - first + 1);
    std::array<KvRun, KvCache::most_runs(kAttentionChunk)> runs;
    const std::size_t run_count = cache.runs(call.layer, slot, head, first, count, runs);
    const State state(result, group);
    const AttentionCall kernel{.queries = call.q + head_place(token, kv_head, a.head_dim),
                               .type = cache.type(),
                               .runs = std::span(runs).first(run_count),
                               .count = count,
                               .group = group,
                               .head_dim = a.head_dim,
                               .value_dim = a.out_dim(),
                               .scale = static_cast<float>(a.scale),
                               .softcap = static_cast<float>(a.softcap),
                               .scores = scores,
                               .largest = state.largest,
                               .total = state.total,
                               .sum = state.sum};
    kernels.scores(kernel);
    for (std::size_t h = 0; !slopes.empty() && h < group; ++h) {
      for (std::uint64_t p = first; p <= last; ++p) {
        const double bias = alibi_bias(a.alibi, slopes[kv_head * group + h], p, position(token));
        scores[h * kAttentionChunk + (p - first)] += static_cast<float>(bias);
      }
    }
    for (std::size_t h = 0; call.emitted != nullptr && h < group; ++h) {
      float* to = call.emitted + (token * a.heads + kv_head * group + h) * call.longest + first;
      std::copy_n(scores + h * kAttentionChunk, kernel.count, to);
    }
    kernels.values(kernel);
  }
};

Result<Attention> Attention::create(const AttentionKernels& kernels, ThreadPool& pool, const Plan& plan,
                                    const BackendOptions& options) {
  Attention out(kernels, pool);
  std::size_t result = 0, group = 0;
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kAttention) continue;
    const auto& a = std::get<AttentionParams>(op.params);
    group = std::max<std::size_t>(group, a.heads / a.kv_heads);
    result = std::max(result, result_floats(a.heads / a.kv_heads, a.out_dim()));
  }
  out.scratch_stride_ = (group * kAttentionChunk + (kBlockTokens + 1) * result + 1023) / 1024 * 1024;
  DOPPLER_ASSIGN(out.scratch_, LazyFloats::allocate(out.scratch_stride_ * pool.size()));
  // A token's window or context touches one chunk more than it fills when it does not begin on a boundary.
  out.max_partials_ = 2 * pool.size() * (options.context / kAttentionChunk + 2);
  DOPPLER_ASSIGN(out.partials_, LazyFloats::allocate(pool.size() == 1 ? 0 : out.max_partials_ * result));
  return out;
}

void Attention::append(const Call& call, const StepInput& input, KvCache& cache) {
  const AttentionParams& a = *call.params;
  const auto store = [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      const auto slot = static_cast<std::uint32_t>(input.slots[t]);
      const auto position = static_cast<std::uint64_t>(input.positions[t]);
      for (std::uint32_t h = 0; h < a.kv_heads; ++h) {
        const std::size_t from = (t * a.kv_heads + h) * a.head_dim;
        kernels_->store(cache.type(), call.k + from, a.head_dim, cache.key(call.layer, slot, h, position));
        if (call.v != nullptr)
          kernels_->store(cache.type(), call.v + from, a.head_dim,
                          cache.value(call.layer, slot, h, position));
      }
    }
  };
  pool_->parallel_for(input.size(), 16, store);  // 16 tokens: some tens of kB
}

void Attention::attend(const Call& call, const StepInput& input, KvCache& cache) {
  const AttentionParams& a = *call.params;
  const Work work{call,
                  input,
                  cache,
                  a,
                  a.heads / a.kv_heads,
                  a.alibi.max_bias > 0 ? alibi_slopes(a.alibi, a.heads) : std::vector<double>()};
  // Enough pairs of token and KV head keep every thread busy; with fewer, the positions are shared out as
  // well.
  const std::size_t pairs = input.size() * a.kv_heads, enough = 2 * pool_->used();
  if (pairs >= enough || pool_->used() == 1) {
    run_blocks(work, std::clamp<std::size_t>(pairs / enough, 1, kBlockTokens));
  } else {
    run_split(work);
  }
}

// Each unit is a block of tokens and a KV head; a chunk of keys and values serves the whole block before the
// next one. Neighbouring tokens may belong to different slots: then their chunks are not shared.
void Attention::run_blocks(const Work& work, std::size_t block) {
  const std::size_t blocks = (work.tokens() + block - 1) / block,
                    floats = result_floats(work.group, work.a.out_dim());
  pool_->parallel_chunks(
      blocks * work.a.kv_heads, 1, [&](std::size_t thread, std::size_t begin, std::size_t end) {
        float* scores = scratch_.data() + thread * scratch_stride_;
        float* partial = scores + work.group * kAttentionChunk;
        float* running = partial + floats;
        for (std::size_t unit = begin; unit < end; ++unit) {
          const std::size_t kv_head = unit / blocks, first = unit % blocks * block;
          const std::size_t last = std::min(first + block, work.tokens());
          std::uint64_t from = UINT64_MAX, to = 0;
          for (std::size_t t = first; t < last; ++t) {
            from = std::min(from, work.first_chunk(t)), to = std::max(to, work.last_chunk(t));
          }
          for (std::uint64_t chunk = from; chunk <= to; ++chunk) {
            for (std::size_t t = first; t < last; ++t) {
              if (chunk < work.first_chunk(t) || chunk > work.last_chunk(t)) continue;
              float* state = running + (t - first) * floats;
              const bool starts = chunk == work.first_chunk(t);
              work.run_chunk(*kernels_, t, kv_head, chunk, scores, starts ? state : partial);
              if (!starts)
                merge(*kernels_, State(state, work.group), State(partial, work.group), work.group,
                      work.a.out_dim());
            }
          }
          for (std::size_t t = first; t < last; ++t) {
            finish(State(running + (t - first) * floats, work.group), work.sinks(kv_head), work.group,
                   work.a.out_dim(), work.call.out + work.head_place(t, kv_head, work.a.out_dim()));
          }
        }
      });
}

// Each unit is one chunk of one token and KV head; the results are joined afterwards in the order of
// positions.
void Attention::run_split(const Work& work) {
  const std::size_t floats = result_floats(work.group, work.a.out_dim());
  std::size_t chunks = 0;  // of the token with the most
  for (std::size_t t = 0; t < work.tokens(); ++t)
    chunks = std::max<std::size_t>(chunks, work.last_chunk(t) - work.first_chunk(t) + 1);
  const std::size_t pairs = work.tokens() * work.a.kv_heads;
  pool_->parallel_chunks(pairs * chunks, 1, [&](std::size_t thread, std::size_t begin, std::size_t end) {
    for (std::size_t unit = begin; unit < end; ++unit) {
      const std::size_t pair = unit / chunks, token = pair / work.a.kv_heads,
                        kv_head = pair % work.a.kv_heads;
      const std::uint64_t chunk = work.first_chunk(token) + unit % chunks;
      if (chunk > work.last_chunk(token)) continue;
      work.run_chunk(*kernels_, token, kv_head, chunk, scratch_.data() + thread * scratch_stride_,
                     partials_.data() + unit * floats);
    }
  });
  const auto join = [&](std::size_t begin, std::size_t end) {
    for (std::size_t pair = begin; pair < end; ++pair) {
      const std::size_t token = pair / work.a.kv_heads, kv_head = pair % work.a.kv_heads;
      const std::size_t count = work.last_chunk(token) - work.first_chunk(token) + 1;
      const State state(partials_.data() + pair * chunks * floats, work.group);
      for (std::size_t c = 1; c < count; ++c) {
        merge(*kernels_, state, State(partials_.data() + (pair * chunks + c) * floats, work.group),
              work.group, work.a.out_dim());
      }
      finish(state, work.sinks(kv_head), work.group, work.a.out_dim(),
             work.call.out + work.head_place(token, kv_head, work.a.out_dim()));
    }
  };
  // 16 chunks join in a microsecond or two, about the cost of a hand-over.
  pool_->parallel_for(pairs, std::max<std::size_t>(16 / chunks, 1), join);
}

}  // namespace doppler::cpu
