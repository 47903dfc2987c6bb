// ERNIE 4.5 MoE: rope over neighbouring pairs, softmax routing whose correction only chooses, shared experts.
// Source: transformers' Ernie4_5_MoeConfig.
#include "base/json.h"
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kErnie45MoeTypes[] = {"ernie4_5_moe"};
constexpr WeightName kErnie45MoeNames[] = {
    {WeightRole::kRouterCorrection, "model.layers.{}.mlp.moe_statics.e_score_correction_bias"}};

Status fill_ernie4_5_moe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 103424,
                                    .hidden_size = 2560,
                                    .intermediate_size = 12288,
                                    .num_hidden_layers = 28,
                                    .num_attention_heads = 20,
                                    .num_key_value_heads = 4,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5,
                                    .tie_word_embeddings = true}));
  ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("every bias", "use_bias", false));
  for (LayerSpec& layer : spec.layers)
    layer.attention.qkv_bias = layer.attention.o_bias = layer.ffn.bias = bias;
  spec.head_bias = bias;
  DOPPLER_ASSIGN(const std::uint32_t first,
                 builder.get_uint("first layer with experts", "moe_layer_start_index", 1, true));
  DOPPLER_ASSIGN(const std::uint32_t step, builder.get_uint("ffn.experts every", "moe_layer_interval", 1));
  // -1 stands for the last.
  std::uint64_t last = spec.layers.size();
  DOPPLER_ASSIGN(const auto end, builder.config().get_number("moe_layer_end_index"));
  if (end && *end >= 0) last = static_cast<std::uint64_t>(*end);
  DOPPLER_ASSIGN(const double least, builder.get_positive("ffn.router.norm_floor", "moe_norm_min", 1e-12));
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 64,
                            .top_k = 6,
                            .width = 1536,
                            .router = {.correction = true, .normalise = true, .norm_floor = least}},
                           [&](std::size_t i) { return (i + 1) % step == 0 && i >= first && i <= last; }));
  const std::string_view key =
      builder.config().has("n_shared_experts") ? "n_shared_experts" : "moe_num_shared_experts";
  DOPPLER_ASSIGN(const std::uint32_t shared, builder.get_uint("shared experts", key, 2, true));
  for (const LayerSpec& layer : spec.layers) {
    if (layer.ffn.experts == 0 || shared == 0) continue;
    set_shared_expert(builder, std::uint64_t{layer.ffn.width} * shared, false,
                      "derived: moe_intermediate_size x moe_num_shared_experts");
    break;
  }
  return read_rope(builder, {.theta = 500000, .layout = RopeLayout::kInterleaved});
}

Status adjust_ernie4_5_moe(GgufConfig& config) {
  DOPPLER_ASSIGN(const auto first, config.get_uint("leading_dense_block_count"));
  if (first) config.set_from_key("moe_layer_start_index", *first, "leading_dense_block_count");
  DOPPLER_ASSIGN(const auto step, config.get_uint("interleave_moe_layer_step"));
  if (step) config.set_from_key("moe_layer_interval", *step, "interleave_moe_layer_step");
  return {};
}

}  // namespace

const FamilyRule kErnie45MoeRule = {"ernie4_5_moe",
                                    kErnie45MoeTypes,
                                    fill_ernie4_5_moe,
                                    {.architecture = "ernie4_5-moe", .adjust = adjust_ernie4_5_moe},
                                    {.own = kErnie45MoeNames}};

}  // namespace doppler
