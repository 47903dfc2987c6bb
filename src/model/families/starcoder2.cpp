// StarCoder 2: LayerNorm, biases everywhere, no gate, a window in every layer. Source: transformers'
// Starcoder2Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kStarcoder2Types[] = {"starcoder2"};
constexpr WeightName kStarcoder2Names[] = {
    {WeightRole::kUp, "model.layers.{}.mlp.c_fc.weight"},
    {WeightRole::kUpBias, "model.layers.{}.mlp.c_fc.bias"},
    {WeightRole::kDown, "model.layers.{}.mlp.c_proj.weight"},
    {WeightRole::kDownBias, "model.layers.{}.mlp.c_proj.bias"},
};

Status fill_starcoder2(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 49152,
                                    .hidden_size = 3072,
                                    .intermediate_size = 12288,
                                    .num_hidden_layers = 30,
                                    .num_attention_heads = 24,
                                    .num_key_value_heads = 2,
                                    .max_position_embeddings = 4096,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "norm_epsilon",
                                    .tie_word_embeddings = true,
                                    .activation = "gelu_pytorch_tanh"}));
  use_layer_norm(builder, true);
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention and ffn bias", "use_bias", true));
  if (bias) use_all_biases(builder, builder.config().where("use_bias"));
  use_no_gate(builder);
  DOPPLER_TRY(read_window_of_all_layers(builder));
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kStarcoder2Rule = {"starcoder2",
                                    kStarcoder2Types,
                                    fill_starcoder2,
                                    {.architecture = "starcoder2"},
                                    {.own = kStarcoder2Names}};

}  // namespace doppler
