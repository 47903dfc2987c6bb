// ModelSpec: everything that distinguishes one decoder from another, as plain data. A family file fills it
// from a model's metadata; the plan builder reads nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

enum class AttentionKind { kFull, kSliding, kChunked };

// How the two halves of a rotary pair lie in a head: (i, i + d/2) as Hugging Face has them, or (2i, 2i + 1).
// The third kind reads pairs as (2i, 2i + 1) and leaves them as (i, i + d/2).
enum class RopeLayout { kHalf, kInterleaved, kInterleavedToHalf };

enum class RopeScalingKind { kNone, kLinear, kLlama3, kYarn, kLongRope, kDivisors };

// Parameters of the scaling kinds, named as config.json names them; each kind reads only its own.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;                     // linear, llama3, yarn
  double low_freq_factor = 1;            // llama3
  double high_freq_factor = 4;           // llama3
  double original_context = 0;           // llama3, yarn, longrope: context the model was trained with
  double beta_fast = 32, beta_slow = 1;  // yarn
  bool truncate = true;                  // yarn: round the correction range outwards
  double attention_factor = 1;           // yarn, longrope: multiplies cos and sin
  double long_attention_factor = 1;      // longrope: the same beyond the original context
  std::vector<double> short_factor, long_factor;  // longrope, one divisor per rotary pair
  std::vector<double> divisors;                   // divisors (GGUF's rope_freqs), one per rotary pair
  bool operator==(const RopeScaling&) const = default;
};

struct RopeSpec {
  double theta = 10000;
  RopeLayout layout = RopeLayout::kHalf;
  std::uint32_t rotary_dim = 0;   // the first dims of a head that rotate, the rest pass through; 0: no rope
  std::uint32_t still_pairs = 0;  // the last of the rotary pairs, which do not turn (Gemma 4)
  RopeScaling scaling;
  bool operator==(const RopeSpec&) const = default;
};

// What a norm divides by: the root of the mean square (Zhang and Sennrich 2019), or the standard deviation
// after the mean is taken away (Ba et al. 2016).
enum class NormKind { kRms, kLayer };

struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 1e-6;
  double weight_offset = 0;  // 1 where the checkpoint stores w - 1 (Gemma)
  bool bias = false;  // of the norms in the residual stream; those of queries and keys say it themselves
};

// What one norm of a row with heads covers: each head, with the same weight for all or with a weight of its
// own, or the whole projection.
enum class NormSpan { kHead, kOwnHead, kProjection };

// Keys and values made of one narrow vector for all heads, the latent, which alone is cached (DeepSeek-AI
// 2024, "DeepSeek-V2", section 2.1). A head of queries has dims of its own for what the latent gives and,
// behind them, dims that rotate, whose key is one for all heads.
struct LatentSpec {
  std::uint32_t kv_rank = 0;  // width of the latent; 0: keys and values are projections of their own
  std::uint32_t q_rank = 0;   // width of the queries' own latent; 0: none
  std::uint32_t rope_dim = 0;
  std::uint32_t value_dim = 0;  // of a head of values
  bool bias = false;            // of the projections to the latents; those from them have none
  // The matrices that make keys and values of the latent are two tensors, that of keys transposed (GGUF).
  bool split_up = false;
};

// Queries are multiplied by 1 + beta ln(1 + floor((position + offset) / every)); every = 0: they are not.
struct PositionScale {
  double beta = 0;
  std::uint32_t every = 0, offset = 0;
  bool operator==(const PositionScale&) const = default;
};

// A line through the positions that is added to each head's scores (Press et al. 2021, "Train Short, Test
// Long"): slope x (the key's position - the query's), times `scale`. The first n heads, n the largest power
// of two among them, have the slopes 2^(-max_bias k / n), k = 1..n; those beyond it the ones halfway between,
// odd powers of 2^(-max_bias / 2n).
struct AlibiSpec {
  double max_bias = 0;  // 0: none
  double scale = 1;
  bool rounded = false;  // bfloat16 holds slope, key's position and their product, as Falcon has them
  bool operator==(const AlibiSpec&) const = default;
};

struct AttentionSpec {
  AttentionKind kind = AttentionKind::kFull;
  // Sliding: a token attends to itself and the window - 1 tokens before it. Chunked: to itself and those
  // before it in its chunk, of which each has `window` positions.
  std::uint32_t window = 0;
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;
  RopeSpec rope;
  double scale = 0;    // multiplies the query-key products
  double softcap = 0;  // 0: none; else scores become c * tanh(s / c) before the mask
  bool qk_norm = false;
  NormSpan qk_norm_span = NormSpan::kHead;
  bool qk_norm_after_rope = false;
  bool qk_norm_plain = false;  // it has no weights
  bool qk_norm_bias = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool sinks = false;  // a score for each head that takes its share of the softmax and adds no value
  // The rows of the query projection are each head's query and then its gate, whose sigmoid multiplies the
  // head's output.
  bool output_gate = false;
  double key_scale = 1;  // multiplies the key projection's result
  double qkv_clip = 0;   // above 0: queries and keys behind their norms, and values, are cut to +- it
  AlibiSpec alibi;
  PositionScale query_scale;    // after rope and norm
  bool v_norm = false;          // a norm without a weight on each head of values
  bool keys_as_values = false;  // values are what the projection of keys gives; none has its own
  // The earlier layer whose cached keys and values are read; -1: this layer makes its own.
  int kv_source = -1;
  LatentSpec latent;

  bool is_latent() const { return latent.kv_rank > 0; }
  bool has_own_kv() const { return kv_source < 0; }
  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t out_width() const { return heads * (is_latent() ? latent.value_dim : head_dim); }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

enum class Activation {
  kSilu,
  kGeluTanh,
  kGeluErf,
  kRelu,
  kReluSquared,
  kXielu,
  kSigmoid,
  kIdentity,
  kQuickGelu
};

// What makes an expert's weight of its logit: its share of all experts, a logistic function of it alone, its
// share of the chosen ones, or Phi-MoE's two softmaxes over the logits near the best.
enum class RouterScore { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSparseMixer };

// Which experts a token is sent to, and with which weights. The best `top_k` by score (plus the correction)
// are chosen, of the best groups only where there are several; then their scores without the correction are
// the weights, normalised and scaled.
struct RouterSpec {
  RouterScore score = RouterScore::kSoftmax;
  std::uint32_t top_k = 0;
  bool bias = false;         // of the logits
  bool correction = false;   // added to the scores for choosing only
  std::uint32_t groups = 1;  // neighbouring experts
  std::uint32_t kept_groups = 1;
  std::uint32_t group_best = 2;  // a group's score is the sum of so many of its best
  bool normalise = false;        // weights / (their sum + norm_eps), the sum being at least norm_floor
  double norm_eps = 0, norm_floor = 0;
  double scale = 1;
  bool expert_scale = false;  // and each expert's weight times one of its own
  bool on_input = false;      // weights multiply what experts read, not what they give
  double jitter = 0;          // kSparseMixer: half the width of the band
  // The router reads what the feed-forward's norms read, through a norm of its own without weights, times a
  // factor for each dim and 1 / sqrt(hidden).
  bool own_norm = false;
};

// xIELU's numbers of a layer: above 0 alpha_p x^2 + beta x, else alpha_n (expm1(min(x, eps)) - x) + beta x.
struct Xielu {
  double alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;
  bool operator==(const Xielu&) const = default;
};

struct FfnSpec {
  Activation activation = Activation::kSilu;
  std::uint32_t width = 0;   // of each expert, where there are any
  bool gated = true;         // activation(gate) * up; else activation(up)
  bool bias = false;         // of a dense or shared feed-forward's projections
  bool expert_bias = false;  // of each expert's
  // gpt-oss: gate and up are clamped (the gate from above only), silu takes alpha * gate, and up gets 1 more.
  double clamp = 0;  // 0: none
  double alpha = 1, up_offset = 0;
  std::uint32_t experts = 0;  // 0: one feed-forward for every token
  RouterSpec router;
  std::uint32_t shared_width = 0;  // of what every token goes through beside its experts; 0: nothing
  // Beside experts: of a feed-forward that every token goes through, both between norms of their own whose
  // results are added (Gemma 4); 0: none.
  std::uint32_t dense_width = 0;
  bool shared_gate = false;  // whose result is multiplied by a logistic function of its input
  // Experts work in a width of their own, between two projections; router and shared expert do not. With a
  // width of 0 there are no projections, and what experts read has two names.
  bool latent_experts = false;
  std::uint32_t latent_width = 0;
  Xielu xielu;  // kXielu
  // Above 0: gates below the mean of all plus so many standard deviations count as 0 (Gemma 3n).
  double gate_cutoff = 0;
  double gate_scale = 1, out_scale = 1;  // multiply the gate before its activation, and the result
};

// Layers whose memory of the sequence is a state of fixed size, beside or instead of attention. Their
// formulas stand at the ops of plan.h.
enum class RecurrentKind { kNone, kShortConvolution, kDeltaNet, kMamba2, kMamba1 };

// How the projections of a recurrent layer's input are stored: one tensor, its parts one after the other; one
// per part; or one whose rows go by key head, each with its own rows of every part.
enum class InProjection { kWhole, kSeparate, kByKeyHead };

enum class GatedNorm { kNone, kNormThenGate, kGateThenNorm };  // kNone: the gate alone

// The parts of Mamba 2's input projection, in the order of its rows.
enum class InPart { kGate, kX, kB, kC, kStep, kCount };

struct RecurrentSpec {
  RecurrentKind kind = RecurrentKind::kNone;
  std::uint32_t taps = 0;                   // of the causal convolution: a token and the taps - 1 before it
  std::uint32_t heads = 0, head_dim = 0;    // of the values: Mamba's x, the delta net's v
  std::uint32_t groups = 0, state_dim = 0;  // Mamba: of B and C; delta net: heads of keys and their width
  std::uint32_t rank = 0;                   // Mamba 1: width of the time step before its own projection
  InProjection in_projection = InProjection::kWhole;
  bool in_bias = false, conv_bias = false, out_bias = false;
  Activation conv_activation = Activation::kSilu;  // Mamba, delta net
  bool part_norms = false;                         // Mamba 1: norms on time step, B and C
  GatedNorm norm = GatedNorm::kNone;
  std::uint32_t norm_groups = 1;  // parts of the inner width that are normed by themselves, with own weights
  bool one_norm_for_heads = false;  // instead: each head is normed, with the same weights
  double min_step = 0,
         max_step = std::numeric_limits<double>::infinity();  // Mamba 2: limits of the time step
  // The columns of a delta net's output projection go by the value heads' number within their key head, of
  // which there are at most so many (llama.cpp's order).
  bool tiled_output = false;
  static constexpr std::uint32_t kMostTiled = 4;
  double in_scale = 1, out_scale = 1;  // multiply what the layer reads and what it gives
  std::array<double, static_cast<std::size_t>(InPart::kCount)> part_scales = {1, 1, 1, 1, 1};  // Mamba 2

  bool exists() const { return kind != RecurrentKind::kNone; }
  std::uint32_t inner() const { return heads * head_dim; }
  std::uint32_t keys() const { return groups * state_dim; }  // delta net: of keys; Mamba 2: of B, of C
  std::uint32_t channels() const;                            // that are convolved
  std::uint32_t in_width() const;                            // rows of the input projection as a whole
  std::uint64_t state_size() const;                          // values of the recurrent state
};

struct LayerSpec {
  AttentionSpec attention;
  FfnSpec ffn;
  RecurrentSpec recurrent;
  // What a layer has: attention, a recurrent half, or both side by side, or neither; and a feed-forward or
  // not. `attention` and `ffn` of a layer without them mean nothing.
  bool has_attention = true;
  bool has_ffn = true;
  double attn_in_scale = 1, attn_out_scale = 1;  // multiply what attention reads and what it gives
  bool attn_norm = true;                         // norms on what attention and feed-forward read
  bool ffn_norm = true;
  // The feed-forward reads the layer's input as attention does, and both are added to it. Without a norm of
  // its own it reads the one of attention.
  bool parallel = false;
  bool post_attn_norm = false;  // a norm on the attention result before it joins the residual (Gemma)
  bool post_ffn_norm = false;   // the same after the feed-forward
  bool out_scale = false;       // the layer's whole output is multiplied by a learned number
};

// The origin of one value, for `doppler inspect`.
struct SpecSource {
  std::string path;    // "layers[0..4].attention.window"
  std::string value;   // "512"
  std::string source;  // "config.json: sliding_window", "gguf: llama.block_count", "derived: ..."
};

// A second embedding, of which each layer reads its own part (Gemma 3n, Gemma 4).
struct PerLayerSpec {
  std::uint32_t width = 0;   // of a layer's part; 0: none
  std::uint32_t tokens = 0;  // rows of the table; later tokens read row 0
};

// Several residual streams, of which each layer reads and writes one and predicts the others (Baykal et al.
// 2023, "Alternating Updates"), and a low-rank branch beside attention (LAuReL, Menghani et al. 2024).
struct AltupSpec {
  std::uint32_t streams = 0;  // 0: one residual stream
  std::uint32_t active = 0;   // the stream that layers read
  std::uint32_t laurel_rank = 0;
  bool out_scale = true;  // the corrected stream is scaled, dim by dim, before its per-layer input
};

struct ModelSpec {
  std::string family;
  std::string described_by = "config.json";  // the source of the spec, for messages
  std::uint32_t vocab_size = 0;
  std::uint32_t hidden = 0;
  std::uint32_t context_length = 0;  // positions the model was made for
  NormSpec norm;
  double embedding_scale = 1;
  double residual_scale = 1;            // of what attention and feed-forward add to the residual stream
  std::uint32_t learned_positions = 0;  // rows of a table that is added to the embedding; 0: none
  PerLayerSpec per_layer;
  AltupSpec altup;
  bool tied_head = false;
  bool head_bias = false;
  double logit_scale = 1;
  double final_softcap = 0;    // 0: none
  bool fused_qkv = false;      // the checkpoint stores q, k and v as one tensor
  bool fused_gate_up = false;  // and gate and up as one
  bool fused_experts = false;  // and those of all experts: [experts, gates then ups, hidden]
  bool fused_shared = false;   // and those of the shared expert
  std::vector<LayerSpec> layers;
  std::uint32_t predicting_layers = 0;  // that files hold behind these, to predict several tokens at once
  std::vector<std::int32_t> eos_ids;
  std::int32_t bos_id = -1, pad_id = -1;  // -1: none
  std::vector<SpecSource> sources;
};

std::string_view name_of(AttentionKind kind);
std::string_view name_of(RopeLayout layout);
std::string_view name_of(RopeScalingKind kind);
std::string_view name_of(Activation activation);
std::string_view name_of(NormKind kind);
std::string_view name_of(NormSpan span);
std::string_view name_of(RouterScore score);
std::string_view name_of(RecurrentKind kind);

}  // namespace doppler
