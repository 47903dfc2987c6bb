// Granite 3: a llama with multipliers on embedding, scores, residual branches and logits, and the same with
// experts. Sources: transformers' GraniteConfig, GraniteMoeConfig.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kGraniteTypes[] = {"granite"};
constexpr std::string_view kGraniteMoeTypes[] = {"granitemoe"};
constexpr WeightName kGraniteMoeNames[] = {
    {WeightRole::kRouter, "model.layers.{}.block_sparse_moe.router.layer.weight"},
    {WeightRole::kGateUpExperts, "model.layers.{}.block_sparse_moe.input_linear.weight"},
    {WeightRole::kDownExperts, "model.layers.{}.block_sparse_moe.output_linear.weight"},
};

Status read_multipliers(SpecBuilder& builder) {
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_granite_multipliers(builder));
  return read_rope(builder, 10000);
}

}  // namespace

Status read_granite_multipliers(SpecBuilder& builder) {
  ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(spec.embedding_scale, builder.get_positive("embedding_scale", "embedding_multiplier", 1.0));
  DOPPLER_ASSIGN(spec.residual_scale, builder.get_positive("residual_scale", "residual_multiplier", 1.0));
  DOPPLER_ASSIGN(const double divisor, builder.get_positive("head.divisor", "logits_scaling", 1.0));
  spec.logit_scale = 1 / divisor;
  DOPPLER_ASSIGN(const double scale,
                 builder.get_positive("attention.multiplier", "attention_multiplier", 1.0));
  set_attention_scale(builder, scale, builder.config().where("attention_multiplier"));
  return {};
}

namespace {

Status fill_granite(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 2048}));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  return read_multipliers(builder);
}

Status fill_granitemoe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 32000,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 2048}));
  DOPPLER_TRY(read_experts(
      builder, {.experts = 8, .top_k = 2, .width = {}, .router = {.score = RouterScore::kSoftmaxOfChosen}},
      every_layer));
  builder.spec().fused_experts = true;
  return read_multipliers(builder);
}

}  // namespace

const FamilyRule kGraniteRule = {
    "granite",
    kGraniteTypes,
    fill_granite,
    {.architecture = "granite", .weight_names = kDivisorNames, .paired_rows = true, .keys = kGraniteKeys}};

const FamilyRule kGraniteMoeRule = {"granitemoe",
                                    kGraniteMoeTypes,
                                    fill_granitemoe,
                                    {.architecture = "granitemoe", .paired_rows = true, .keys = kGraniteKeys},
                                    {.own = kGraniteMoeNames}};

}  // namespace doppler
