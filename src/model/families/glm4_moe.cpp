// GLM 4.5: routing as DeepSeek V3's over one shared expert, half the dims of a head rotate. Source:
// transformers' Glm4MoeConfig.
#include "base/json.h"
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kGlm4MoeTypes[] = {"glm4_moe"};
constexpr WeightName kGlm4MoeGgufNames[] = {{WeightRole::kFfnNorm, "blk.{}.post_attention_norm.weight"}};

Status fill_glm4_moe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 151552,
                                    .hidden_size = 4096,
                                    .intermediate_size = 10944,
                                    .num_hidden_layers = 46,
                                    .num_attention_heads = 96,
                                    .num_key_value_heads = 8,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5}));
  ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias", "attention_bias", false));
  DOPPLER_ASSIGN(const bool qk_norm, builder.get_bool("attention.qk_norm", "use_qk_norm", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.qk_norm = qk_norm;
  }
  DOPPLER_ASSIGN(const std::uint32_t dense,
                 builder.get_uint("dense layers", "first_k_dense_replace", 1, true));
  DOPPLER_TRY(read_experts(
      builder,
      {.experts = 128,
       .top_k = 8,
       .width = 1408,
       .router = {.score = RouterScore::kSigmoid, .correction = true, .normalise = true, .norm_eps = 1e-20},
       .reads_normalise = true,
       .reads_scale = true,
       .reads_groups = true},
      [&](std::size_t i) { return i >= dense; }));
  DOPPLER_ASSIGN(const std::uint32_t shared, builder.get_uint("shared experts", "n_shared_experts", 1, true));
  for (const LayerSpec& layer : spec.layers) {
    if (layer.ffn.experts == 0) continue;
    set_shared_expert(builder, std::uint64_t{layer.ffn.width} * shared, false,
                      "derived: moe_intermediate_size x n_shared_experts");
    break;
  }
  DOPPLER_TRY(read_predicting_layers(builder));
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.5});
}

Status adjust_glm4_moe(GgufConfig& config) {
  const bool normed = config.tensor(WeightRole::kQNorm, 0) != nullptr;
  config.derive("use_qk_norm", normed,
                normed ? "there is a tensor of q_norm" : "there is no tensor of q_norm");
  return {};
}

}  // namespace

const FamilyRule kGlm4MoeRule = {"glm4_moe",
                                 kGlm4MoeTypes,
                                 fill_glm4_moe,
                                 {.architecture = "glm4moe",
                                  .weight_names = {.style = NameStyle::kGguf, .own = kGlm4MoeGgufNames},
                                  .adjust = adjust_glm4_moe}};

}  // namespace doppler
