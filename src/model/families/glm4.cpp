// GLM 4 (0414): norms before and after each half, neighbouring pairs of half a head rotate, gate and up in
// one tensor. Source: transformers' Glm4Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kGlm4Types[] = {"glm4"};
// post_attention_layernorm is the norm before the feed-forward, as in a llama.
constexpr WeightName kGlm4Names[] = {
    {WeightRole::kPostAttnNorm, "model.layers.{}.post_self_attn_layernorm.weight",
     WeightCondition::kPostAttnNorm},
    {WeightRole::kPostFfnNorm, "model.layers.{}.post_mlp_layernorm.weight", WeightCondition::kPostFfnNorm},
};

Status fill_glm4(SpecBuilder& builder) {
  builder.spec().fused_gate_up = true;
  builder.note("fused", "gate_up_proj", "rule of the glm4 family");
  DOPPLER_TRY(read_common(builder, {.vocab_size = 151552,
                                    .hidden_size = 4096,
                                    .intermediate_size = 13696,
                                    .num_hidden_layers = 40,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 2,
                                    .head_dim = 128,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1.5625e-07}));
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias", "attention_bias", true));
  builder.note("post_attn_norm, post_ffn_norm", "true", "rule of the glm4 family");
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qkv_bias = bias;
    layer.post_attn_norm = layer.post_ffn_norm = true;
  }
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.5, .layout = RopeLayout::kInterleaved});
}

}  // namespace

const FamilyRule kGlm4Rule = {"glm4", kGlm4Types, fill_glm4, {.architecture = "glm4"}, {.own = kGlm4Names}};

}  // namespace doppler
