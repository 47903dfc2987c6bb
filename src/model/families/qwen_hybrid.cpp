// Qwen 3.5: gated DeltaNet in three layers of four, attention with a gated output in the fourth. Source:
// transformers' Qwen3_5TextConfig.
#include "model/families/hybrid.h"
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kQwen35Types[] = {"qwen3_5", "qwen3_5_text"};
constexpr WeightName kDeltaNames[] = {
    {WeightRole::kConvolution, "model.layers.{}.linear_attn.conv1d.weight"},
    {WeightRole::kStepBias, "model.layers.{}.linear_attn.dt_bias"},
    {WeightRole::kDecayRate, "model.layers.{}.linear_attn.A_log"},
    {WeightRole::kMixerNorm, "model.layers.{}.linear_attn.norm.weight"},
    {WeightRole::kMixerOut, "model.layers.{}.linear_attn.out_proj.weight"},
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

Status fill_qwen3_5(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 248320,
                                    .hidden_size = 4096,
                                    .intermediate_size = 12288,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 4,
                                    .head_dim = 256,
                                    .max_position_embeddings = 32768}));
  DOPPLER_TRY(read_attention_bias(builder));
  set_attention_rules(builder);
  DOPPLER_TRY(read_delta_layers(builder));
  DOPPLER_TRY(read_delta_net(builder, InProjection::kSeparate));
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.25});
}

}  // namespace

const FamilyRule kQwen35Rule = {"qwen3_5", kQwen35Types, fill_qwen3_5, {}, {.own = kDeltaNames}};

}  // namespace doppler
