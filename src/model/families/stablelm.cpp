// StableLM 2: LayerNorm, a quarter of each head rotates, q, k and v with biases in some sizes. Source:
// transformers' StableLmConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kStableLmTypes[] = {"stablelm"};

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
  // StableLM 2 12B keeps the norm of each head as a tensor of its own.
  DOPPLER_TRY(refuse_flag(builder, "qk_layernorm"));
  use_layer_norm(builder, true);
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias", "use_qkv_bias", false));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qkv_bias = bias;
  DOPPLER_ASSIGN(const bool parallel, builder.get_bool("parallel", "use_parallel_residual", false));
  if (parallel) use_parallel_halves(builder);
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.25});
}

}  // namespace

const FamilyRule kStableLmRule = {"stablelm", kStableLmTypes, fill_stablelm, {}};

}  // namespace doppler
