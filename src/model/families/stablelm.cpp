// StableLM 2: LayerNorm, a quarter of each head rotates, q, k and v with biases in some sizes; 12B has both
// halves side by side and norms each head of queries and keys with its own weight. Source: transformers'
// StableLmConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kStableLmTypes[] = {"stablelm"};
constexpr WeightName kStableLmHeads[] = {
    {WeightRole::kQNorm, "model.layers.{}.self_attn.q_layernorm.norms.{}.weight"},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.k_layernorm.norms.{}.weight"},
};
constexpr GgufKey kStableLmKeys[] = {{"use_parallel_residual", "use_parallel_residual"}};

Status fill_stablelm(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 50304,
                                    .hidden_size = 2560,
                                    .intermediate_size = 6912,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 32,
                                    .max_position_embeddings = 4096,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_eps"}));
  DOPPLER_ASSIGN(const bool qk_norm, builder.get_bool("attention.qk_norm", "qk_layernorm", false));
  use_layer_norm(builder, true);
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias", "use_qkv_bias", false));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.qk_norm = qk_norm;
    layer.attention.qk_norm_span = NormSpan::kOwnHead;
  }
  DOPPLER_ASSIGN(const bool parallel, builder.get_bool("parallel", "use_parallel_residual", false));
  if (parallel) use_parallel_halves(builder);
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.25});
}

}  // namespace

const FamilyRule kStableLmRule = {"stablelm",
                                  kStableLmTypes,
                                  fill_stablelm,
                                  {.architecture = "stablelm", .keys = kStableLmKeys},
                                  {.each_head = kStableLmHeads}};

}  // namespace doppler
