// Nemotron and Minitron: LayerNorm whose weights are stored without their 1, squared ReLU without a gate,
// half of each head rotates. Source: transformers' NemotronConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kNemotronTypes[] = {"nemotron"};

Status fill_nemotron(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 256000,
                                    .hidden_size = 6144,
                                    .intermediate_size = 24576,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 48,
                                    .max_position_embeddings = 4096,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "norm_eps",
                                    .activation = "relu2"}));
  use_layer_norm(builder, true);
  builder.spec().norm.weight_offset = 1;
  builder.note("norm.weight_offset", "1", "rule of the nemotron family: checkpoints store w - 1");
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  use_no_gate(builder);
  return read_rope(builder, {.theta = 10000, .rotary_part = 0.5});
}

}  // namespace

const FamilyRule kNemotronRule = {"nemotron", kNemotronTypes, fill_nemotron, {.architecture = "nemotron"}};

}  // namespace doppler
