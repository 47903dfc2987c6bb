// GPT-2: learned positions, matrices stored [in, out], biases everywhere, no gate, a tied head. OpenAI's own
// file has no prefix and holds the attention's masks. Source: transformers' GPT2Config.
#include <cmath>

#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kGpt2Types[] = {"gpt2"};
constexpr KeyAlias kGpt2Keys[] = {{"hidden_size", "n_embd"},
                                  {"num_hidden_layers", "n_layer"},
                                  {"num_attention_heads", "n_head"},
                                  {"max_position_embeddings", "n_positions"},
                                  {"max_position_embeddings", "n_ctx"},
                                  {"intermediate_size", "n_inner"}};
constexpr WeightName kGpt2Names[] = {
    {WeightRole::kTokenEmbedding, "model.wte.weight"},
    {WeightRole::kPositionEmbedding, "model.wpe.weight"},
    {WeightRole::kAttnNorm, "model.h.{}.ln_1.weight"},
    {WeightRole::kAttnNormBias, "model.h.{}.ln_1.bias"},
    {WeightRole::kQkv, "model.h.{}.attn.c_attn.weight"},
    {WeightRole::kQkvBias, "model.h.{}.attn.c_attn.bias"},
    {WeightRole::kO, "model.h.{}.attn.c_proj.weight"},
    {WeightRole::kOBias, "model.h.{}.attn.c_proj.bias"},
    {WeightRole::kFfnNorm, "model.h.{}.ln_2.weight"},
    {WeightRole::kFfnNormBias, "model.h.{}.ln_2.bias"},
    {WeightRole::kUp, "model.h.{}.mlp.c_fc.weight"},
    {WeightRole::kUpBias, "model.h.{}.mlp.c_fc.bias"},
    {WeightRole::kDown, "model.h.{}.mlp.c_proj.weight"},
    {WeightRole::kDownBias, "model.h.{}.mlp.c_proj.bias"},
    {WeightRole::kFinalNorm, "model.ln_f.weight"},
    {WeightRole::kFinalNormBias, "model.ln_f.bias"},
};
constexpr WeightRole kGpt2Transposed[] = {WeightRole::kQkv, WeightRole::kO, WeightRole::kUp,
                                          WeightRole::kDown};
constexpr std::string_view kGpt2Needless[] = {".attn.bias", ".attn.masked_bias"};

Status fill_gpt2(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 50257,
                                    .hidden_size = 768,
                                    .num_hidden_layers = 12,
                                    .num_attention_heads = 12,
                                    .max_position_embeddings = 1024,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_epsilon",
                                    .tie_word_embeddings = true,
                                    .activation = "gelu_new",
                                    .activation_key = "activation_function",
                                    .intermediate_factor = 4,
                                    .aliases = kGpt2Keys}));
  ModelSpec& spec = builder.spec();
  use_layer_norm(builder, true);
  use_all_biases(builder, "rule of the gpt2 family");
  use_no_gate(builder);
  spec.fused_qkv = true;
  builder.note("fused", "c_attn", "rule of the gpt2 family");
  spec.learned_positions = spec.context_length;
  builder.note("learned_positions", std::to_string(spec.learned_positions), "rule of the gpt2 family");
  for (LayerSpec& layer : spec.layers) layer.attention.rope = {.rotary_dim = 0};
  DOPPLER_ASSIGN(const bool scaled, builder.get_bool("attention.scaled", "scale_attn_weights", true));
  if (!scaled) set_attention_scale(builder, 1, builder.config().where("scale_attn_weights"));
  DOPPLER_ASSIGN(const bool by_layer,
                 builder.get_bool("attention.scaled_by_layer", "scale_attn_by_inverse_layer_idx", false));
  for (std::size_t i = 0; by_layer && i < spec.layers.size(); ++i)
    spec.layers[i].attention.scale /= static_cast<double>(i + 1);
  return {};
}

}  // namespace

const FamilyRule kGpt2Rule = {"gpt2",
                              kGpt2Types,
                              fill_gpt2,
                              {.architecture = "gpt2"},
                              {.own = kGpt2Names, .transposed = kGpt2Transposed, .needless = kGpt2Needless}};

}  // namespace doppler
