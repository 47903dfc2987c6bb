// Qwen 2 MoE (a shared expert with a gate) and Qwen 3 MoE. Sources: transformers' Qwen2MoeConfig,
// Qwen3MoeConfig.
#include "base/json.h"
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kQwen2MoeTypes[] = {"qwen2_moe"};
constexpr std::string_view kQwen3MoeTypes[] = {"qwen3_moe"};
constexpr WeightName kQwen2MoeNames[] = {
    {WeightRole::kSharedGateProj, "model.layers.{}.mlp.shared_expert.gate_proj.weight"},
    {WeightRole::kSharedUp, "model.layers.{}.mlp.shared_expert.up_proj.weight"},
    {WeightRole::kSharedDown, "model.layers.{}.mlp.shared_expert.down_proj.weight"},
};

Status read_routing(SpecBuilder& builder, ExpertDefaults defaults) {
  DOPPLER_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(builder));
  defaults.reads_normalise = true;
  return read_experts(builder, defaults, [&](std::size_t i) { return sparse[i]; });
}

Status fill_qwen2_moe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 151936,
                                    .hidden_size = 2048,
                                    .intermediate_size = 5632,
                                    .num_hidden_layers = 24,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 16,
                                    .max_position_embeddings = 32768}));
  DOPPLER_ASSIGN(const bool bias, builder.get_bool("attention.qkv_bias", "qkv_bias", true));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qkv_bias = bias;
  DOPPLER_TRY(read_qwen_windows(builder));
  DOPPLER_TRY(read_routing(builder, {.experts = 60, .top_k = 4, .width = 1408, .router = {}}));
  DOPPLER_ASSIGN(const std::uint32_t shared,
                 builder.get_uint("ffn.shared_width", "shared_expert_intermediate_size", 5632));
  set_shared_expert(builder, shared, true, builder.config().where("shared_expert_intermediate_size"));
  return read_rope(builder, 10000);
}

Status fill_qwen3_moe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 151936,
                                    .hidden_size = 2048,
                                    .intermediate_size = 6144,
                                    .num_hidden_layers = 24,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 4,
                                    .max_position_embeddings = 32768}));
  DOPPLER_TRY(read_attention_bias(builder));
  builder.note("attention.qk_norm", "true", "rule of the qwen3_moe family");
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = true;
  DOPPLER_TRY(read_window_if_used(builder));
  DOPPLER_TRY(read_routing(builder, {.experts = 128, .top_k = 8, .width = 768, .router = {}}));
  return read_rope(builder, 10000);
}

// llama.cpp normalises without a key.
Status adjust_qwen3_moe(GgufConfig& config) {
  config.derive("norm_topk_prob", true, "rule of the architecture qwen3moe");
  return {};
}

}  // namespace

const FamilyRule kQwen2MoeRule = {
    "qwen2_moe", kQwen2MoeTypes, fill_qwen2_moe, {.architecture = "qwen2moe"}, {.own = kQwen2MoeNames}};
const FamilyRule kQwen3MoeRule = {
    "qwen3_moe", kQwen3MoeTypes, fill_qwen3_moe, {.architecture = "qwen3moe", .adjust = adjust_qwen3_moe}};

}  // namespace doppler
