// Hunyuan MoE: norms of queries and keys after rope, and a shared feed-forward beside the experts. Source:
// transformers' HunYuanMoEV1Config.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kHunyuanMoeTypes[] = {"hunyuan_v1_moe"};
constexpr WeightName kHunyuanMoeNames[] = {
    {WeightRole::kQNorm, "model.layers.{}.self_attn.query_layernorm.weight", WeightCondition::kQkNorm},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.key_layernorm.weight", WeightCondition::kQkNorm},
    {WeightRole::kRouter, "model.layers.{}.mlp.gate.wg.weight"},
    {WeightRole::kSharedGateProj, "model.layers.{}.mlp.shared_mlp.gate_proj.weight"},
    {WeightRole::kSharedUp, "model.layers.{}.mlp.shared_mlp.up_proj.weight"},
    {WeightRole::kSharedDown, "model.layers.{}.mlp.shared_mlp.down_proj.weight"},
};

Status fill_hunyuan_v1_moe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 290943,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_attention_bias(builder));
  builder.note("attention.qk_norm", "true, after rope", "rule of the hunyuan_v1_moe family");
  for (LayerSpec& layer : builder.spec().layers)
    layer.attention.qk_norm = layer.attention.qk_norm_after_rope = true;
  const std::uint32_t width = builder.spec().layers[0].ffn.width;
  DOPPLER_TRY(read_experts(builder, {.experts = 1, .top_k = 1, .width = {}, .router = {.normalise = true}},
                           every_layer));
  set_shared_expert(builder, width, false, "rule: as wide as intermediate_size");
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kHunyuanMoeRule = {"hunyuan_v1_moe",
                                    kHunyuanMoeTypes,
                                    fill_hunyuan_v1_moe,
                                    {.architecture = "hunyuan-moe"},
                                    {.own = kHunyuanMoeNames}};

}  // namespace doppler
