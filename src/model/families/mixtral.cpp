// Mixtral: a Mistral whose feed-forward is experts, two of which work on each token. Source: transformers'
// MixtralConfig.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kMixtralTypes[] = {"mixtral"};

Status fill_mixtral(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 14336,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_window_of_all_layers(builder));
  DOPPLER_TRY(read_experts(builder, {.experts = 8, .top_k = 2, .width = {}, .router = {.normalise = true}},
                           every_layer));
  return read_rope(builder, 1e6);
}

}  // namespace

const FamilyRule kMixtralRule = {
    "mixtral",
    kMixtralTypes,
    fill_mixtral,
    {.architecture = "llama", .distinguishing_key = "expert_count", .paired_rows = true},
    {.own = kMixtralNames}};

}  // namespace doppler
