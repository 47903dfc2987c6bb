// LFM2: short convolutions between two gates, and attention in some layers; and the same with experts.
// Sources: transformers' Lfm2Config, Lfm2MoeConfig.
#include <algorithm>

#include "base/json.h"
#include "model/families/experts.h"
#include "model/families/hybrid.h"

namespace doppler {
namespace {

constexpr std::string_view kLfm2Types[] = {"lfm2"};
constexpr std::string_view kLfm2MoeTypes[] = {"lfm2_moe"};
constexpr WeightName kLfm2Names[] = {
    {WeightRole::kAttnNorm, "model.layers.{}.operator_norm.weight"},
    {WeightRole::kFfnNorm, "model.layers.{}.ffn_norm.weight"},
    {WeightRole::kQNorm, "model.layers.{}.self_attn.q_layernorm.weight", WeightCondition::kQkNorm},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.k_layernorm.weight", WeightCondition::kQkNorm},
    {WeightRole::kO, "model.layers.{}.self_attn.out_proj.weight"},
    {WeightRole::kMixerIn, "model.layers.{}.conv.in_proj.weight"},
    {WeightRole::kMixerInBias, "model.layers.{}.conv.in_proj.bias", WeightCondition::kInBias},
    {WeightRole::kConvolution, "model.layers.{}.conv.conv.weight"},
    {WeightRole::kConvolutionBias, "model.layers.{}.conv.conv.bias", WeightCondition::kConvolutionBias},
    {WeightRole::kMixerOut, "model.layers.{}.conv.out_proj.weight"},
    {WeightRole::kMixerOutBias, "model.layers.{}.conv.out_proj.bias", WeightCondition::kMixerOutBias},
    {WeightRole::kGate, "model.layers.{}.feed_forward.w1.weight"},
    {WeightRole::kUp, "model.layers.{}.feed_forward.w3.weight"},
    {WeightRole::kDown, "model.layers.{}.feed_forward.w2.weight"},
    {WeightRole::kRouter, "model.layers.{}.feed_forward.gate.weight"},
    {WeightRole::kRouterCorrection, "model.layers.{}.feed_forward.expert_bias"},
    {WeightRole::kGateExperts, "model.layers.{}.feed_forward.experts.{}.w1.weight"},
    {WeightRole::kUpExperts, "model.layers.{}.feed_forward.experts.{}.w3.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.feed_forward.experts.{}.w2.weight"},
    {WeightRole::kFinalNorm, "model.embedding_norm.weight"},
};
constexpr KeyAlias kLfm2Aliases[] = {{"tie_word_embeddings", "tie_embedding"}};
constexpr WeightName kLfm2GgufNames[] = {
    {WeightRole::kMixerIn, "blk.{}.shortconv.in_proj.weight"},
    {WeightRole::kMixerInBias, "blk.{}.shortconv.in_proj.bias"},
    {WeightRole::kConvolution, "blk.{}.shortconv.conv.weight"},
    {WeightRole::kConvolutionBias, "blk.{}.shortconv.conv.bias"},
    {WeightRole::kMixerOut, "blk.{}.shortconv.out_proj.weight"},
    {WeightRole::kMixerOutBias, "blk.{}.shortconv.out_proj.bias"},
    {WeightRole::kFinalNorm, "token_embd_norm.weight"},
};
constexpr WeightNames kLfm2Gguf = {.style = NameStyle::kGguf, .own = kLfm2GgufNames};
constexpr LayerKind kLfm2Kinds[] = {{.name = "conv", .recurrent = true},
                                    {.name = "linear_attention", .recurrent = true},
                                    {.name = "full_attention", .attention = true}};

// The width is two thirds of the configured one, times a factor, rounded up to a multiple.
Status adjust_ffn(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const bool adjust, builder.get_bool("ffn.adjusted", "block_auto_adjust_ff_dim", true));
  if (!adjust) return {};
  DOPPLER_ASSIGN(const double factor, builder.get_positive("ffn.factor", "block_ffn_dim_multiplier", 1.0));
  DOPPLER_ASSIGN(const std::uint32_t multiple, builder.get_uint("ffn.multiple", "block_multiple_of", 256));
  const std::uint64_t configured = builder.spec().layers[0].ffn.width;
  const double wanted = factor * static_cast<double>(2 * configured / 3);
  if (!(wanted >= 1 && wanted < (1 << 30)) || multiple > (1 << 30)) {
    return fail(
        ErrorCode::kCorrupt,
        "The {} makes a feed-forward of {} values in multiples of {}, too large to be true. Correct it.",
        builder.config().source(), wanted, multiple);
  }
  const std::uint64_t width = (static_cast<std::uint64_t>(wanted) + multiple - 1) / multiple * multiple;
  for (LayerSpec& layer : builder.spec().layers) layer.ffn.width = static_cast<std::uint32_t>(width);
  builder.note("ffn.width", std::to_string(width), "derived: intermediate_size and block_auto_adjust_ff_dim");
  return {};
}

Status read_lfm2_layers(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const auto full, builder.config().get_uints("full_attn_idxs"));
  return read_layer_kinds(
      builder, "layer_types", kLfm2Kinds,
      [&](std::size_t i) -> std::string_view {
        return !full || std::ranges::find(*full, i) != full->end() ? "full_attention" : "conv";
      },
      full ? builder.config().where("full_attn_idxs") : "rule: no full_attn_idxs");
}

// What layers are made of, but for their feed-forward.
Status read_lfm2_halves(SpecBuilder& builder) {
  builder.note("attention.qk_norm", "true", fmt::format("rule of the {} family", builder.spec().family));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = true;
  DOPPLER_TRY(read_lfm2_layers(builder));
  RecurrentSpec r{.kind = RecurrentKind::kShortConvolution, .heads = builder.spec().hidden, .head_dim = 1};
  DOPPLER_ASSIGN(r.taps, builder.get_uint("recurrent.taps", "conv_L_cache", 3));
  DOPPLER_ASSIGN(r.conv_bias, builder.get_bool("recurrent biases", "conv_bias", false));
  r.in_bias = r.out_bias = r.conv_bias;
  DOPPLER_TRY(set_recurrent(builder, r));
  return read_rope(builder, 1000000);
}

Status fill_lfm2(SpecBuilder& builder) {
  ConfigDefaults defaults = {.vocab_size = 65536,
                             .hidden_size = 2560,
                             .intermediate_size = 12288,
                             .num_hidden_layers = 32,
                             .num_attention_heads = 32,
                             .num_key_value_heads = 8,
                             .max_position_embeddings = 128000,
                             .rms_norm_eps = 1e-5,
                             .norm_eps_key = "norm_eps",
                             .tie_word_embeddings = true,
                             .aliases = kLfm2Aliases};
  DOPPLER_ASSIGN(const auto block_ff_dim, builder.config().get_uint("block_ff_dim"));
  if (block_ff_dim) defaults.intermediate_size = block_ff_dim;
  DOPPLER_TRY(read_common(builder, defaults));
  DOPPLER_TRY(adjust_ffn(builder));
  return read_lfm2_halves(builder);
}

Status fill_lfm2_moe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 65536,
                                    .hidden_size = 2048,
                                    .intermediate_size = 7168,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .max_position_embeddings = 128000,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "norm_eps",
                                    .tie_word_embeddings = true,
                                    .aliases = kLfm2Aliases}));
  DOPPLER_ASSIGN(const std::uint32_t dense, builder.get_uint("dense layers", "num_dense_layers", 2, true));
  DOPPLER_ASSIGN(const bool correction, builder.get_bool("ffn.router.correction", "use_expert_bias", true));
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 32,
                            .top_k = 4,
                            .width = 1792,
                            .router = {.score = RouterScore::kSigmoid,
                                       .correction = correction,
                                       .normalise = true,
                                       .norm_eps = 1e-6},
                            .reads_normalise = true,
                            .reads_scale = true},
                           [&](std::size_t i) { return i >= dense; }));
  return read_lfm2_halves(builder);
}

// The width is written as it is.
Status adjust_lfm2(GgufConfig& config) {
  config.derive("block_auto_adjust_ff_dim", false, "rule of the architecture lfm2");
  return {};
}

}  // namespace

const FamilyRule kLfm2Rule = {"lfm2",
                              kLfm2Types,
                              fill_lfm2,
                              {.architecture = "lfm2", .weight_names = kLfm2Gguf, .adjust = adjust_lfm2},
                              {.own = kLfm2Names}};
const FamilyRule kLfm2MoeRule = {"lfm2_moe",
                                 kLfm2MoeTypes,
                                 fill_lfm2_moe,
                                 {.architecture = "lfm2moe", .weight_names = kLfm2Gguf},
                                 {.own = kLfm2Names}};

}  // namespace doppler
