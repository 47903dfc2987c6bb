// The inner loops of the cpu backend, compiled once per instruction set (Google Highway) and chosen at run
// time. Kernels know nothing of plans, threads or errors: pointers in, floats out. They call nothing of the
// operating system, never throw and never allocate.
//
// Two rules hold for every kernel, because the backend promises results that depend neither on the number of
// threads nor on how tokens are grouped into steps:
// - a result for a (row, token), (head, token) or element is computed by the same operations in the same
//   order, whatever else is in the call;
// - NaN and Inf of an input reach the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cpu/panel/panel.h"
#include "backend/kv_cache.h"
#include "model/spec.h"
#include "quant/dtype.h"

namespace doppler::cpu {

// A weight matrix [rows, cols] as it lies in the file; at any address.
struct WeightMatrix {
  const std::uint8_t* data = nullptr;
  DType dtype = DType::kF32;  // kF32, kF16 or kBF16
  std::size_t rows = 0, cols = 0;
};

// out[t * stride + r - row_begin] = dot(weight row r, token t) (+ bias[r]).
struct MatmulCall {
  WeightMatrix weight;
  const float* bias = nullptr;    // rows of the weight, or null
  const float* packed = nullptr;  // output of pack() for `tokens` rows of weight.cols
  std::size_t tokens = 0;
  std::size_t row_begin = 0, row_end = 0;
  float* out = nullptr;
  std::size_t stride = 0;
  float* scratch = nullptr;  // scratch_floats(tokens) floats of the calling thread's own
};

struct MatmulKernels {
  std::size_t tile_tokens;  // tokens whose sums are held in registers together
  // Rows that prefill decodes at a time: work should be handed out in multiples of it.
  std::size_t block_rows;
  // Floats that packed activations take.
  std::size_t (*packed_floats)(std::size_t tokens, std::size_t cols);
  // True when one token's row is its own packed form.
  bool (*is_packed)(std::size_t tokens, std::size_t cols);
  // Lays tiles [begin, end) of tile_tokens rows of x [tokens, cols] out in the order in which rows() reads
  // them.
  void (*pack)(const float* x, std::size_t tokens, std::size_t cols, std::size_t begin, std::size_t end,
               float* packed);
  std::size_t (*scratch_floats)(std::size_t tokens);
  void (*rows)(const MatmulCall& call);
};

// Positions that one call of the attention kernels handles. The split is part of the result's rounding, so it
// is fixed: a token's positions are cut at multiples of this, whatever the step or the number of threads. 128
// positions of a 256-wide head are 128 kB of keys and as much of values: a quarter of a core's L2, where they
// serve several tokens, and small enough to share a window of 512 evenly among threads when one token
// decodes.
inline constexpr std::size_t kAttentionChunk = 128;

// Some positions of one KV head and the query heads of one token that share it.
struct AttentionCall {
  const float* queries = nullptr;  // [group, head_dim]
  KvType type = KvType::kF32;
  std::span<const KvRun> runs = {};  // the positions, in order
  std::size_t count = 0;             // of them all, 1..kAttentionChunk
  std::size_t group = 0, head_dim = 0;
  std::size_t value_dim = 0;  // values are the first of the head_dim in a row
  float scale = 1, softcap = 0;
  float* scores = nullptr;                                     // [group, kAttentionChunk]
  float *largest = nullptr, *total = nullptr, *sum = nullptr;  // [group], [group], [group, value_dim]
};

struct AttentionKernels {
  // Writes a row of `count` floats as the cache stores it.
  void (*store)(KvType type, const float* row, std::size_t count, std::uint8_t* out);
  // scores = scaled, softcapped products of the queries with the keys.
  void (*scores)(const AttentionCall& call);
  // largest = max(scores), total = sum of exp(scores - largest), sum = values weighted with those; scores are
  // used up.
  void (*values)(const AttentionCall& call);
  // into[i] = into[i] * a + more[i] * b.
  void (*blend)(float a, const float* more, float b, std::size_t count, float* into);
};

struct ElementKernels {
  // out[i] = weight[row, i] * scale.
  void (*decode_row)(const WeightMatrix& weight, std::size_t row, float scale, float* out);
  // out = in / rms(in) * weight. in and out may be the same.
  void (*rms_norm)(const float* in, const float* weight, std::size_t dim, double eps, float* out);
  // out = in - mean(in). in and out may be the same.
  void (*center)(const float* in, std::size_t dim, float* out);
  // One head: pairs turned by cos and sin [pairs], dims beyond them copied. in and out may be the same, but
  // where pairs change their places.
  void (*rope)(const float* in, const float* cos, const float* sin, std::size_t pairs, std::size_t dim,
               RopeLayout layout, float* out);
  // out = a + scale * b; out may be a or b.
  void (*add)(const float* a, const float* b, float scale, std::size_t count, float* out);
  // out = in * factor; out may be in.
  void (*scale)(const float* in, float factor, std::size_t count, float* out);
  // out = activation(gate) * up, or activation(gate) if `up` is null; out may be gate or up.
  void (*gated)(Activation activation, const float* gate, const float* up, std::size_t count, float* out);
  // out = xIELU(in); out may be in.
  void (*xielu)(const Xielu& numbers, const float* in, std::size_t count, float* out);
  // out = g * sigmoid(alpha * g) * (u + offset), where g is min(gate, limit) and u is up within +- limit.
  void (*clamped)(const float* gate, const float* up, float limit, float alpha, float offset,
                  std::size_t count, float* out);
  // out = cap * tanh(in / cap); out may be in.
  void (*softcap)(const float* in, float cap, std::size_t count, float* out);
};

// One token's part of a causal convolution, channels [begin, end). Rows of the state, of the weight (by tap)
// and of in and out are `channels` wide.
struct ConvolutionCall {
  const float* in = nullptr;
  const float *weight = nullptr, *bias = nullptr;  // bias: may be null
  std::size_t channels = 0, taps = 0, begin = 0, end = 0;
  bool silu = false;
  float *state = nullptr, *out = nullptr;  // state: the taps - 1 inputs before, oldest first; moved on by one
};

// One token's step of a head; its state is [key_dim, value_dim]. `decay` multiplies the state.
struct DeltaCall {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float beta = 0, decay = 0;
  std::size_t key_dim = 0, value_dim = 0;
  float *state = nullptr, *out = nullptr;
};

// One token's step of `rows` values x of a head; its state is [rows, states].
struct ScanCall {
  const float *x = nullptr, *b = nullptr, *c = nullptr;
  float step = 0, decay = 0, skip = 0;
  std::size_t rows = 0, states = 0;
  float *state = nullptr, *out = nullptr;
};

// One token's step of channels [begin, end), each with a state of `states` values and a rate for each.
struct ChannelScanCall {
  const float *x = nullptr, *b = nullptr, *c = nullptr, *step = nullptr, *rates = nullptr, *skip = nullptr;
  std::size_t begin = 0, end = 0, states = 0;
  float *state = nullptr, *out = nullptr;
};

struct RecurrentKernels {
  void (*convolve)(const ConvolutionCall& call);
  void (*delta)(const DeltaCall& call);
  void (*scan)(const ScanCall& call);
  void (*channel_scan)(const ChannelScanCall& call);
};

struct Kernels {
  std::string_view target;  // "AVX3_VNNI", "AVX2", ...
  const MatmulKernels* matmul;
  const AttentionKernels* attention;
  const ElementKernels* element;
  const RecurrentKernels* recurrent;
  const PanelKernels* panel;
};

// The sets of kernels this machine can run, best first; the last is portable C++. Never empty.
std::span<const Kernels> all_kernels();

}  // namespace doppler::cpu
