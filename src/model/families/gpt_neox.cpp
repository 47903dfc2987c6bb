// GPT-NeoX and Pythia: two norms over the same input with attention and feed-forward side by side (or one
// after the other), a fused qkv by head, a part of each head rotates, biases everywhere, no gate. Published
// files hold masks, too. Source: transformers' GPTNeoXConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kGptNeoXTypes[] = {"gpt_neox"};
constexpr WeightName kGptNeoXNames[] = {
    {WeightRole::kTokenEmbedding, "model.embed_in.weight"},
    {WeightRole::kQkv, "model.layers.{}.attention.query_key_value.weight"},
    {WeightRole::kQkvBias, "model.layers.{}.attention.query_key_value.bias"},
    {WeightRole::kO, "model.layers.{}.attention.dense.weight"},
    {WeightRole::kOBias, "model.layers.{}.attention.dense.bias"},
    {WeightRole::kUp, "model.layers.{}.mlp.dense_h_to_4h.weight"},
    {WeightRole::kUpBias, "model.layers.{}.mlp.dense_h_to_4h.bias"},
    {WeightRole::kDown, "model.layers.{}.mlp.dense_4h_to_h.weight"},
    {WeightRole::kDownBias, "model.layers.{}.mlp.dense_4h_to_h.bias"},
    {WeightRole::kFinalNorm, "model.final_layer_norm.weight"},
    {WeightRole::kFinalNormBias, "model.final_layer_norm.bias"},
    {WeightRole::kHead, "embed_out.weight"},
};
constexpr std::string_view kGptNeoXNeedless[] = {".attention.bias", ".attention.masked_bias"};
constexpr GgufKey kGptNeoXKeys[] = {{"use_parallel_residual", "use_parallel_residual"}};

Status fill_gpt_neox(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 50432,
                                    .hidden_size = 6144,
                                    .intermediate_size = 24576,
                                    .num_hidden_layers = 44,
                                    .num_attention_heads = 64,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_eps",
                                    .activation = "gelu"}));
  use_layer_norm(builder, true);
  use_all_biases(builder, "rule of the gpt_neox family");
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias and o_bias", "attention_bias", true));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qkv_bias = layer.attention.o_bias = bias;
  use_no_gate(builder);
  builder.spec().fused_qkv = true;
  builder.note("fused", "query_key_value", "rule of the gpt_neox family");
  DOPPLER_ASSIGN(const bool parallel, builder.get_bool("parallel", "use_parallel_residual", true));
  for (LayerSpec& layer : builder.spec().layers) layer.parallel = parallel;
  return read_rope(builder, {.theta = 10000,
                             .rotary_part = 0.25,
                             .old_theta_key = "rotary_emb_base",
                             .old_part_key = "rotary_pct"});
}

}  // namespace

const FamilyRule kGptNeoXRule = {"gpt_neox",
                                 kGptNeoXTypes,
                                 fill_gpt_neox,
                                 {.architecture = "gptneox", .keys = kGptNeoXKeys},
                                 {.own = kGptNeoXNames, .qkv_by_head = true, .needless = kGptNeoXNeedless}};

}  // namespace doppler
