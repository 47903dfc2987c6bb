// Qwen 3.5 and Qwen 3 Next: gated DeltaNet in three layers of four, attention with a gated output in the
// fourth; with experts in Qwen 3 Next and Qwen 3.5 MoE. Sources: transformers' Qwen3_5TextConfig,
// Qwen3_5MoeTextConfig, Qwen3NextConfig.
#include "base/json.h"
#include "model/families/experts.h"
#include "model/families/hybrid.h"

namespace doppler {
namespace {

constexpr std::string_view kQwen35Types[] = {"qwen3_5", "qwen3_5_text"};
constexpr std::string_view kQwen35MoeTypes[] = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::string_view kQwen3NextTypes[] = {"qwen3_next"};
// Qwen 3.5 MoE is published with each layer's experts in one tensor, and saved by transformers one by one.
constexpr WeightName kDeltaNames[] = {
    {WeightRole::kMixerIn, "model.layers.{}.linear_attn.in_proj_qkvz.weight"},
    {WeightRole::kConvolution, "model.layers.{}.linear_attn.conv1d.weight"},
    {WeightRole::kStepBias, "model.layers.{}.linear_attn.dt_bias"},
    {WeightRole::kDecayRate, "model.layers.{}.linear_attn.A_log"},
    {WeightRole::kMixerNorm, "model.layers.{}.linear_attn.norm.weight"},
    {WeightRole::kMixerOut, "model.layers.{}.linear_attn.out_proj.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.mlp.experts.down_proj", WeightCondition::kFusedExperts},
    {WeightRole::kSharedGateProj, "model.layers.{}.mlp.shared_expert.gate_proj.weight"},
    {WeightRole::kSharedUp, "model.layers.{}.mlp.shared_expert.up_proj.weight"},
    {WeightRole::kSharedDown, "model.layers.{}.mlp.shared_expert.down_proj.weight"},
};
constexpr LayerKind kDeltaKinds[] = {{.name = "linear_attention", .recurrent = true},
                                     {.name = "full_attention", .attention = true}};

Status read_delta_layers(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const std::uint32_t interval,
                 builder.get_uint("attention.interval", "full_attention_interval", 4));
  return read_layer_kinds(
      builder, "layer_types", kDeltaKinds,
      [&](std::size_t i) -> std::string_view {
        return (i + 1) % interval == 0 ? "full_attention" : "linear_attention";
      },
      fmt::format("rule: every layer {} of {} attends", interval, interval));
}

Status read_delta_net(SpecBuilder& builder, InProjection in_projection) {
  RecurrentSpec r{.kind = RecurrentKind::kDeltaNet,
                  .in_projection = in_projection,
                  .norm = GatedNorm::kNormThenGate,
                  .one_norm_for_heads = true};
  DOPPLER_ASSIGN(r.heads, builder.get_uint("recurrent.heads", "linear_num_value_heads", 32));
  DOPPLER_ASSIGN(r.head_dim, builder.get_uint("recurrent.head_dim", "linear_value_head_dim", 128));
  DOPPLER_ASSIGN(r.groups, builder.get_uint("recurrent.groups", "linear_num_key_heads", 16));
  DOPPLER_ASSIGN(r.state_dim, builder.get_uint("recurrent.state_dim", "linear_key_head_dim", 128));
  DOPPLER_ASSIGN(r.taps, builder.get_uint("recurrent.taps", "linear_conv_kernel_dim", 4));
  DOPPLER_TRY(read_convolution_activation(builder, "hidden_act", r));
  return set_recurrent(builder, r);
}

// Norms but for the gated one store their weight less 1.
void set_attention_rules(SpecBuilder& builder) {
  const std::string rule = fmt::format("rule of the {} family", builder.spec().family);
  builder.spec().norm.weight_offset = 1;
  builder.note("norm.weight_offset", "1", rule);
  builder.note("attention.qk_norm, attention.output_gate", "true", rule);
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = layer.attention.output_gate = true;
}

// llama.cpp's name for the norm before the feed-forward.
constexpr WeightName kDeltaGgufNames[] = {{WeightRole::kFfnNorm, "blk.{}.post_attention_norm.weight"}};
constexpr WeightNames kDeltaGguf = {.style = NameStyle::kGguf, .own = kDeltaGgufNames};

// What all of them have in common, once their sizes are read.
Status read_delta_decoder(SpecBuilder& builder, InProjection in_projection) {
  DOPPLER_TRY(read_attention_bias(builder));
  set_attention_rules(builder);
  DOPPLER_TRY(read_delta_layers(builder));
  DOPPLER_TRY(read_delta_net(builder, in_projection));
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.25});
}

Status fill_qwen3_5(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 248320,
                                    .hidden_size = 4096,
                                    .intermediate_size = 12288,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 4,
                                    .head_dim = 256,
                                    .max_position_embeddings = 32768}));
  return read_delta_decoder(builder, InProjection::kSeparate);
}

Status read_gated_shared_expert(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const std::uint32_t width,
                 builder.get_uint("ffn.shared_width", "shared_expert_intermediate_size", 512));
  set_shared_expert(builder, width, true, builder.config().where("shared_expert_intermediate_size"));
  return {};
}

Status fill_qwen3_5_moe(SpecBuilder& builder) {
  // No layer has a feed-forward of intermediate_size; files have the key nevertheless, or leave it out.
  DOPPLER_TRY(read_common(builder, {.vocab_size = 248320,
                                    .hidden_size = 2048,
                                    .intermediate_size = 512,
                                    .num_hidden_layers = 40,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 2,
                                    .head_dim = 256,
                                    .max_position_embeddings = 32768}));
  DOPPLER_TRY(read_experts(builder, {.experts = 256, .top_k = 8, .width = 512, .router = {.normalise = true}},
                           every_layer));
  DOPPLER_TRY(read_gated_shared_expert(builder));
  return read_delta_decoder(builder, InProjection::kSeparate);
}

Status fill_qwen3_next(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 151936,
                                    .hidden_size = 2048,
                                    .intermediate_size = 5632,
                                    .num_hidden_layers = 48,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 2,
                                    .head_dim = 256,
                                    .max_position_embeddings = 32768}));
  DOPPLER_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(builder));
  DOPPLER_TRY(read_experts(
      builder,
      {.experts = 512, .top_k = 10, .width = 512, .router = {.normalise = true}, .reads_normalise = true},
      [&](std::size_t i) { return sparse[i]; }));
  DOPPLER_TRY(read_gated_shared_expert(builder));
  return read_delta_decoder(builder, InProjection::kByKeyHead);
}

}  // namespace

const FamilyRule kQwen35Rule = {
    "qwen3_5",
    kQwen35Types,
    fill_qwen3_5,
    {.architecture = "qwen35", .weight_names = kDeltaGguf, .tiled_value_heads = true},
    {.own = kDeltaNames}};
const FamilyRule kQwen35MoeRule = {
    "qwen3_5_moe",
    kQwen35MoeTypes,
    fill_qwen3_5_moe,
    {.architecture = "qwen35moe", .weight_names = kDeltaGguf, .tiled_value_heads = true},
    {.own = kDeltaNames}};
const FamilyRule kQwen3NextRule = {"qwen3_next",
                                   kQwen3NextTypes,
                                   fill_qwen3_next,
                                   {.architecture = "qwen3next", .weight_names = kDeltaGguf},
                                   {.own = kDeltaNames}};

}  // namespace doppler
