// Phi 3.5 MoE: LayerNorm and biases of Phi, two experts by the sparse mixer. Source: transformers'
// PhimoeConfig.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kPhimoeTypes[] = {"phimoe"};

Status fill_phimoe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32064,
                                    .hidden_size = 4096,
                                    .intermediate_size = 6400,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5}));
  use_layer_norm(builder, true);
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_ASSIGN(builder.spec().head_bias, builder.get_bool("head.bias", "lm_head_bias", false));
  DOPPLER_TRY(read_window_of_all_layers(builder));
  DOPPLER_ASSIGN(const double jitter, builder.get_number("ffn.router.jitter", "router_jitter_noise", 0.01));
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 16,
                            .top_k = 2,
                            .width = {},
                            .router = {.score = RouterScore::kSparseMixer, .jitter = jitter}},
                           every_layer));
  return read_rope(builder, 1e6);
}

}  // namespace

const FamilyRule kPhimoeRule = {
    "phimoe", kPhimoeTypes, fill_phimoe, {.architecture = "phimoe"}, {.own = kMixtralNames}};

}  // namespace doppler
