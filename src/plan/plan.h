// Plan: the forward pass as a value. A flat list of ops over typed values, built once from a ModelSpec,
// checked before it runs; a backend only executes it and holds no model logic.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "model/rope.h"
#include "model/spec.h"
#include "model/stage.h"
#include "model/weights.h"

namespace doppler {

using ValueId = std::uint32_t;

// Which tokens of a step a value has rows for.
enum class Rows : std::uint8_t { kAll, kWanted };  // every token; only those whose logits are asked for

// A float32 activation of shape [rows, width]; written once, by one op. Heads lie side by side in a row.
struct Value {
  std::uint32_t width = 0;
  std::uint32_t heads = 1;  // width = heads x head_dim where the value is per head
  Rows rows = Rows::kAll;
  Stage stage = Stage::kNone;  // the value's public name
  int layer = -1;
  Stage also = Stage::kNone;  // a second name in that layer: one norm that both halves read
};

enum class OpKind : std::uint8_t {
  kEmbed,        // () -> x: rows of weights[0] for the step's ids, times scale; plus rows of weights[1], if
                 // it is there, for their positions
  kRmsNorm,      // x -> y: per head, x / rms(x) * (weights[0] + offset) (+ biases[0]); see NormParams.
                 // Without a weight: x / rms(x) * factor
  kMatmul,       // x -> y_0..y_n-1: y_i = weights[i] x (+ biases[i]); several outputs share one pass over x
  kRope,         // x -> y: pairs of each head turned by the token's position
  kAttention,    // q, k, v -> y: appends k and v to the cache, then softmax(q k' scale) v over the sequence;
                 // q, k -> y: values are the beginnings of keys; q -> y: appends nothing, another layer does.
                 // weights: sinks, a score for each head that only adds to the softmax's sum
  kAdd,          // a, b -> a + scale * b
  kGated,        // gate, up -> activation(gate) * up, the gate being as wide or one value for a row; or gate
                 // alone -> activation(gate); see GatedParams
  kGatedMatmul,  // x -> activation(weights[0] x) * (weights[1] x); swallows ffn_gate and ffn_up
  kSelect,       // x -> the rows whose logits are wanted
  kSoftcap,      // x -> cap * tanh(scale * x / cap), or scale * x cut to +- cap; scale * x without a cap
  kScaleQuery,   // x -> x * (1 + beta ln(1 + floor((position + offset) / every)))
  // Experts. What belongs to a token's chosen ones lies side by side in a row, best first.
  kChoose,        // logits -> ids of the chosen experts, as whole floats; weights: correction
  kWeigh,         // logits, ids -> their weights; weights: scales of experts
  kSpread,        // x, weights -> x times each weight
  kExpertMatmul,  // x, ids -> y_0..y_n-1 of each chosen expert: y_i = weights[i + expert] x (+ biases[i +
                  // expert]). x is one row for all, or has a part for each
  kExpertSum,     // y, [weights], [z] -> the sum of the parts of y, times the weights, + z
  kColumns,       // x -> columns of x side by side, see ColumnsParams
  kTimeStep,      // x -> softplus(x + weights[0]), within limits
  kDecay,         // x -> x * rate, the logarithm of a state's decay; rate = -exp(weights[0])
  // What follows goes along a sequence: each token after the one before it in its slot, from a state in the
  // cache that is zero before the first.
  kConvolution,  // x -> y: each channel's last taps inputs times weights[0] [channels, taps], the last tap
                 // for the token itself (+ biases[0]), through the activation
  kDeltaRule,    // q, k, v, beta, decay -> o: Yang et al. 2024 (gated DeltaNet), see DeltaParams
  kScan,         // x, B, C, step, decay -> y: Dao and Gu 2024 (Mamba 2), D = weights[0], see ScanParams
  kChannelScan,  // x, B, C, step -> y: Gu and Dao 2023 (Mamba), rates = -exp(weights[0]) [channels, states],
                 // D = weights[1]
  // Columns.
  kScale,       // x -> x * weights[0], a value for all or one for each column
  kJoin,        // a, b -> y: side by side, part by part; a b of one part goes behind each part of a
  kHeadMatmul,  // x -> y: each head of x times a matrix of its own; see HeadMatmulParams
  kMix,         // streams, x (, c) -> y: stream j + (offset + c[j]) x, summed over the parts of x
  kMatchRms,    // x, y -> x * rms(y) / rms(x), for each head of x
  kCutoff,      // x -> relu(x - (mean + deviations * standard deviation)) of a row
  kCount,
};

std::string_view op_name(OpKind kind);
// Whether an op goes along a sequence and leaves a state in the cache for the next step.
bool keeps_state(OpKind kind);

struct EmbedParams {
  double scale = 1;
};
struct NormParams {
  double eps = 0, weight_offset = 0;
  NormKind kind = NormKind::kRms;
  NormSpan span = NormSpan::kHead;  // of a value's heads
  double factor = 1;                // of a norm without a weight
};
struct AddParams {
  double scale = 1;
};
struct MatmulParams {};
struct RopeParams {
  std::uint32_t table = 0;  // index into Plan::rope_tables
  RopeLayout layout = RopeLayout::kHalf;
  std::uint32_t begin = 0;  // the first dim of a head that turns
};
struct AttentionParams {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;
  std::uint32_t window = 0;  // 0: the whole sequence
  double scale = 1, softcap = 0;
  bool chunked = false;  // the window does not slide: the sequence is cut into chunks of it
  AlibiSpec alibi;       // added to the scores, behind their softcap

  int kv_layer = -1;  // the layer whose cache is read; -1: the op's own
  // Above 0: values are the first dims of the keys, so many, and the cache holds keys alone.
  std::uint32_t value_dim = 0;

  std::uint32_t out_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  std::size_t cache_of(int layer) const { return static_cast<std::size_t>(kv_layer >= 0 ? kv_layer : layer); }
  // The first position that the token at `position` sees.
  std::uint64_t first_seen(std::uint64_t position) const {
    if (window == 0) return 0;
    if (chunked) return position - position % window;
    return position + 1 > window ? position + 1 - window : 0;
  }
};
struct GatedParams {
  Activation activation = Activation::kSilu;
  Xielu xielu;  // kXielu, which takes no `up`
  // 0: none. Else gates above it become it, and ups are cut to +- it.
  double clamp = 0;
  double alpha = 1;      // silu's: x * sigmoid(alpha * x)
  double up_offset = 0;  // added to up after the clamp
  bool is_plain() const { return clamp == 0 && alpha == 1 && up_offset == 0; }
};
struct SoftcapParams {
  double cap = 0;  // 0: none
  double scale = 1;
  bool hard = false;  // values beyond the cap become it, and others stay
};
struct ScaleParams {};
struct JoinParams {
  std::uint32_t parts = 1;
};
// Head h has rows [h * stride + begin, h * stride + begin + rows) of weights[0], a matrix M of [rows,
// columns]: y = M x, or y = M' x. What a head of x has beyond the dims that are multiplied follows the
// product. An x as wide as these dims is every head's.
struct HeadMatmulParams {
  std::uint32_t heads = 1, begin = 0, rows = 0, stride = 0;
  bool transposed = false;
};
// c has a number for each stream and part of x: c[j * parts + i]. Streams before `first` stay as they are.
struct MixParams {
  std::uint32_t streams = 1;
  double offset = 0;
  std::uint32_t first = 0;
};
struct MatchRmsParams {
  double least = 0;  // of the mean of x's squares
};
struct CutoffParams {
  double deviations = 0;
};
struct RouteParams {  // kChoose, kWeigh
  RouterSpec router;
};
struct ExpertParams {  // kExpertMatmul
  std::uint32_t experts = 0, chosen = 0;
};
struct SpreadParams {
  std::uint32_t chosen = 0;
};
struct ExpertSumParams {
  std::uint32_t chosen = 0;
  bool weighted = true, adds = false;  // whether there are the inputs weights and z
};
// Some columns of a row whose columns lie in `groups` equal groups: of each group the `width` columns from
// `first` on.
struct ColumnRange {
  std::uint32_t groups = 1, first = 0, width = 0;
  double scale = 1;
};
// The output is the ranges side by side, the groups of a range one after the other.
struct ColumnsParams {
  static constexpr std::size_t kMost = 4;
  std::array<ColumnRange, kMost> ranges = {};  // those after the first of width 0 do not count
  // Whether the output is neighbouring columns as they are, from ranges[0].first on.
  bool is_slice() const { return ranges[0].groups == 1 && ranges[0].scale == 1 && ranges[1].width == 0; }
};
struct ConvolutionParams {
  std::uint32_t taps = 0;
  Activation activation = Activation::kSilu;
};
struct TimeStepParams {
  double low = 0, high = std::numeric_limits<double>::infinity();
};
struct DecayParams {};
// Of each value head h with key head h / (heads / key_heads), for its state S [key_dim, value_dim]:
// S = exp(decay) S; S = S + k (x) beta (v - S' k); o = S' q.
struct DeltaParams {
  std::uint32_t heads = 0, key_heads = 0, key_dim = 0, value_dim = 0;
};
// kScan, of each head h with group h / (heads / groups), for its state S [head_dim, states]:
// S = exp(decay) S + step x (x) B; y = S C + D x. kChannelScan: heads are channels of one value with a rate
// for each state, decay = step * rate, and one group.
struct ScanParams {
  std::uint32_t heads = 0, head_dim = 0, groups = 0, states = 0;
};
using OpParams =
    std::variant<std::monostate, EmbedParams, NormParams, MatmulParams, RopeParams, AttentionParams,
                 GatedParams, SoftcapParams, AddParams, PositionScale, RouteParams, ExpertParams,
                 SpreadParams, ExpertSumParams, ColumnsParams, ConvolutionParams, TimeStepParams, DecayParams,
                 DeltaParams, ScanParams, ScaleParams, JoinParams, HeadMatmulParams, MixParams,
                 MatchRmsParams, CutoffParams>;
// The place of a kind of parameters in OpParams.
template <typename Params>
inline constexpr std::size_t kPlaceOf = OpParams(Params{}).index();

struct Op {
  OpKind kind = OpKind::kAdd;
  int layer = -1;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<WeightId> weights;
  // Parallel to weights where not empty; kNoWeight: none. Of experts both name the first one's, which the
  // others' follow.
  std::vector<WeightId> biases;
  OpParams params;
  // Values this op computes on the way and stores only when a tap asks for them (the op's emitting variant):
  // the parts a fusion swallowed, and attn_scores.
  std::vector<ValueId> emits;
};

// The cache of one layer: keys and values of its attention, and the state of its recurrent half.
struct KvLayer {
  // Without dims no attention; with dims but no heads one that reads the cache of another layer.
  std::uint32_t kv_heads = 0, head_dim = 0;
  std::uint32_t window = 0;  // 0: keeps every position
  bool chunked = false;      // of the window a token sees what lies in its own chunk
  bool has_values = true;    // false: values are parts of the keys
  // The last conv_rows inputs of a convolution with so many channels, oldest first, and the values of the
  // recurrent state as the op's formula orders them, head after head: both float32.
  std::uint32_t conv_rows = 0, conv_channels = 0;
  std::uint64_t state = 0;
  std::uint64_t conv_values() const { return std::uint64_t{conv_rows} * conv_channels; }
  std::uint64_t recurrent_values() const { return conv_values() + state; }
};

// Whether a layer keeps a state, which cannot go back to what it was some tokens before.
bool is_recurrent(std::span<const KvLayer> layers);

struct Plan {
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<RopeTable> rope_tables;
  std::vector<KvLayer> kv_layers;  // one per layer, in order
  ValueId logits = 0;              // the value that is sampled from
  std::uint32_t vocab_size = 0;
  std::vector<std::string> passes;  // of fuse.h that are on, by name
  // Layers read one of several residual streams: attn_input is a value, and not what the layer before left.
  bool has_streams = false;
};

// The unfused plan: every stage a value of its own. `context` is the longest sequence that will run.
Result<Plan> build_plan(const ModelSpec& spec, const Weights& weights, std::uint64_t context);

// Checks what every backend relies on: each value written before it is read and written once, widths and rows
// agree with each other and with the weights' shapes, parameters of the kind that the op needs. Errors:
// kInternal, naming op and value.
Status check_plan(const Plan& plan, const Weights& weights);

// "layers.3.q_proj" of the stage, or "v17" for values without one.
std::string value_name(const Plan& plan, ValueId id);

// "matmul q_proj+k_proj+v_proj": what an op computes, without its layer.
std::string op_title(const Plan& plan, const Op& op);

}  // namespace doppler
