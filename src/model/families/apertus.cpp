// Apertus: a llama with norms on queries and keys and xIELU instead of a gate, whose numbers each layer has
// as tensors. Source: transformers' ApertusConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kApertusTypes[] = {"apertus"};
constexpr WeightName kApertusNames[] = {
    {WeightRole::kAttnNorm, "model.layers.{}.attention_layernorm.weight"},
    {WeightRole::kFfnNorm, "model.layers.{}.feedforward_layernorm.weight"},
};

Status fill_apertus(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 131072,
                                    .hidden_size = 4096,
                                    .intermediate_size = 14336,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 65536,
                                    .rms_norm_eps = 1e-5,
                                    .activation = "xielu"}));
  DOPPLER_TRY(refuse_flag(builder, "post_norm"));
  DOPPLER_TRY(read_attention_bias(builder));
  use_no_gate(builder);
  builder.note("attention.qk_norm", "true", "rule of the apertus family");
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = true;
  return read_rope(builder, 12000000);
}

}  // namespace

const FamilyRule kApertusRule = {"apertus",
                                 kApertusTypes,
                                 fill_apertus,
                                 {.architecture = "apertus", .weight_names = kDivisorNames},
                                 {.own = kApertusNames},
                                 R"({"rope_type": "llama3", "rope_theta": 12000000, "factor": 8,
                                     "low_freq_factor": 1, "high_freq_factor": 4,
                                     "original_max_position_embeddings": 8192})"};

}  // namespace doppler
