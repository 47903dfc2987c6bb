// Families that are a llama but for biases, the order of rope pairs or where queries and keys are normed:
// Seed OSS, ERNIE 4.5, Hunyuan dense. Sources: transformers' SeedOssConfig, Ernie4_5Config,
// HunYuanDenseV1Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kSeedOssTypes[] = {"seed_oss"};
constexpr std::string_view kErnie45Types[] = {"ernie4_5"};
constexpr std::string_view kHunyuanDenseTypes[] = {"hunyuan_v1_dense"};
// llama.cpp's name for the norm that Hugging Face calls post_attention_layernorm.
constexpr WeightName kSeedOssGgufNames[] = {{WeightRole::kFfnNorm, "blk.{}.post_attention_norm.weight"}};
constexpr WeightName kHunyuanNames[] = {
    {WeightRole::kQNorm, "model.layers.{}.self_attn.query_layernorm.weight", WeightCondition::kQkNorm},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.key_layernorm.weight", WeightCondition::kQkNorm},
};

Status fill_seed_oss(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 155136,
                                    .hidden_size = 4096,
                                    .intermediate_size = 27648,
                                    .num_hidden_layers = 64,
                                    .num_attention_heads = 80,
                                    .num_key_value_heads = 8,
                                    .head_dim = 128,
                                    .max_position_embeddings = 524288}));
  DOPPLER_ASSIGN(const bool qkv, builder.get_bool("attention.qkv_bias", "attention_bias", true));
  DOPPLER_ASSIGN(const bool output, builder.get_bool("attention.o_bias", "attention_out_bias", false));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qkv_bias = qkv;
    layer.attention.o_bias = output;
  }
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  return read_rope(builder, 10000);
}

Status fill_ernie4_5(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 103424,
                                    .hidden_size = 1024,
                                    .intermediate_size = 3072,
                                    .num_hidden_layers = 18,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 2,
                                    .head_dim = 128,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5,
                                    .tie_word_embeddings = true}));
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention and ffn bias", "use_bias", false));
  if (bias) use_all_biases(builder, builder.config().where("use_bias"));
  return read_rope(builder, {.theta = 500000, .layout = RopeLayout::kInterleaved});
}

Status fill_hunyuan_dense(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 290943,
                                    .hidden_size = 4096,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_attention_bias(builder));
  const std::string rule = "rule of the hunyuan_v1_dense family";
  builder.note("attention.qk_norm", "true, after rope", rule);
  for (LayerSpec& layer : builder.spec().layers)
    layer.attention.qk_norm = layer.attention.qk_norm_after_rope = true;
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kSeedOssRule = {
    "seed_oss",
    kSeedOssTypes,
    fill_seed_oss,
    {.architecture = "seed_oss", .weight_names = {.style = NameStyle::kGguf, .own = kSeedOssGgufNames}}};
const FamilyRule kErnie45Rule = {"ernie4_5", kErnie45Types, fill_ernie4_5, {.architecture = "ernie4_5"}};
const FamilyRule kHunyuanDenseRule = {"hunyuan_v1_dense",
                                      kHunyuanDenseTypes,
                                      fill_hunyuan_dense,
                                      {.architecture = "hunyuan-dense"},
                                      {.own = kHunyuanNames}};

}  // namespace doppler
