// Phi 1, 1.5 and 2: LayerNorm, attention and feed-forward side by side behind one norm, biases everywhere, no
// gate. Source: transformers' PhiConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kPhiTypes[] = {"phi"};
constexpr WeightName kPhiNames[] = {
    {WeightRole::kO, "model.layers.{}.self_attn.dense.weight"},
    {WeightRole::kOBias, "model.layers.{}.self_attn.dense.bias"},
    {WeightRole::kQNorm, "model.layers.{}.self_attn.q_layernorm.weight", WeightCondition::kQkNorm},
    {WeightRole::kQNormBias, "model.layers.{}.self_attn.q_layernorm.bias", WeightCondition::kQNormBias},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.k_layernorm.weight", WeightCondition::kKNorm},
    {WeightRole::kKNormBias, "model.layers.{}.self_attn.k_layernorm.bias", WeightCondition::kKNormBias},
    {WeightRole::kUp, "model.layers.{}.mlp.fc1.weight"},
    {WeightRole::kUpBias, "model.layers.{}.mlp.fc1.bias"},
    {WeightRole::kDown, "model.layers.{}.mlp.fc2.weight"},
    {WeightRole::kDownBias, "model.layers.{}.mlp.fc2.bias"},
    {WeightRole::kFinalNorm, "model.final_layernorm.weight"},
    {WeightRole::kFinalNormBias, "model.final_layernorm.bias"},
};

Status fill_phi(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 51200,
                                    .hidden_size = 2048,
                                    .intermediate_size = 8192,
                                    .num_hidden_layers = 24,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_eps",
                                    .activation = "gelu_new"}));
  DOPPLER_ASSIGN(const bool qk_norm, builder.get_bool("attention.qk_norm", "qk_layernorm", false));
  for (LayerSpec& layer : builder.spec().layers)
    layer.attention.qk_norm = layer.attention.qk_norm_bias = qk_norm;
  use_layer_norm(builder, true);
  use_parallel_halves(builder);
  use_all_biases(builder, "rule of the phi family");
  use_no_gate(builder);
  builder.spec().head_bias = true;
  builder.note("head.bias", "true", "rule of the phi family");
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.5});
}

}  // namespace

const FamilyRule kPhiRule = {
    "phi", kPhiTypes, fill_phi, {.architecture = "phi2", .may_fuse_qkv = true}, {.own = kPhiNames}};

}  // namespace doppler
