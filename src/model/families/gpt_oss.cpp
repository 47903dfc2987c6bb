// gpt-oss: attention with sinks, every second layer with a window, and experts with biases whose activation
// is clamped. Source: transformers' GptOssConfig and modeling_gpt_oss; OpenAI's model card.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kGptOssTypes[] = {"gpt_oss"};
constexpr WeightName kGptOssNames[] = {
    {WeightRole::kRouter, "model.layers.{}.mlp.router.weight"},
    {WeightRole::kRouterBias, "model.layers.{}.mlp.router.bias"},
    {WeightRole::kGateExperts, "model.layers.{}.mlp.experts.gate_proj"},
    {WeightRole::kUpExperts, "model.layers.{}.mlp.experts.up_proj"},
    {WeightRole::kDownExperts, "model.layers.{}.mlp.experts.down_proj"},
    {WeightRole::kGateExpertsBias, "model.layers.{}.mlp.experts.gate_proj_bias"},
    {WeightRole::kUpExpertsBias, "model.layers.{}.mlp.experts.up_proj_bias"},
    {WeightRole::kDownExpertsBias, "model.layers.{}.mlp.experts.down_proj_bias"},
};
constexpr WeightName kGptOssGgufNames[] = {{WeightRole::kFfnNorm, "blk.{}.post_attention_norm.weight"}};

// Published files say swiglu_limit = 7.0, too, but transformers takes no notice of it.
void use_swiglu(SpecBuilder& builder) {
  constexpr double clamp = 7;
  builder.note("ffn.clamp, ffn.alpha, ffn.up_offset, ffn.expert_bias", "7, 1.702, 1, true",
               "rule of the gpt_oss family");
  for (LayerSpec& layer : builder.spec().layers) {
    layer.ffn.activation = Activation::kSilu;  // whatever hidden_act says
    layer.ffn.clamp = clamp;
    layer.ffn.alpha = 1.702;
    layer.ffn.up_offset = 1;
    layer.ffn.expert_bias = true;
  }
}

Status fill_gpt_oss(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 201088,
                                    .hidden_size = 2880,
                                    .intermediate_size = 2880,
                                    .num_hidden_layers = 36,
                                    .num_attention_heads = 64,
                                    .num_key_value_heads = 8,
                                    .head_dim = 64,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias and o_bias", "attention_bias", true));
  builder.note("attention.sinks", "true", "rule of the gpt_oss family");
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = bias;
    layer.attention.sinks = true;
  }
  DOPPLER_TRY(read_layer_types(builder, 128, is_last_of_period, 2, "rule: every second layer attends fully"));
  use_swiglu(builder);
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 128,
                            .top_k = 4,
                            .width = {},
                            .router = {.score = RouterScore::kSoftmaxOfChosen, .bias = true}},
                           every_layer));
  return read_rope(builder, 150000);
}

}  // namespace

const FamilyRule kGptOssRule = {
    "gpt_oss",
    kGptOssTypes,
    fill_gpt_oss,
    {.architecture = "gpt-oss", .weight_names = {.style = NameStyle::kGguf, .own = kGptOssGgufNames}},
    {.own = kGptOssNames,
     .expert_columns = {.gate_up = "model.layers.{}.mlp.experts.gate_up_proj",
                        .down = "model.layers.{}.mlp.experts.down_proj",
                        .interleaved = true}}};

}  // namespace doppler
