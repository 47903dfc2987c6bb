// What families with recurrent layers read of their keys, and what they refuse.
#include "base/json.h"
#include "formats/config_json.h"
#include "model/family.h"
#include "testing.h"

namespace doppler {
namespace {

Json sized(std::string_view type) {
  return {{"model_type", type},          {"vocab_size", 32},
          {"hidden_size", 32},           {"intermediate_size", 48},
          {"num_hidden_layers", 4},      {"num_attention_heads", 4},
          {"num_key_value_heads", 2},    {"max_position_embeddings", 64},
          {"moe_intermediate_size", 16}, {"num_experts_per_tok", 2}};
}

Json qwen_next() {
  Json config = sized("qwen3_next");
  config.update({{"num_experts", 6},
                 {"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 8},
                 {"linear_value_head_dim", 16}});
  return config;
}
Json jamba() {
  Json config = sized("jamba");
  config.update({{"num_experts", 4},
                 {"attn_layer_period", 4},
                 {"attn_layer_offset", 2},
                 {"expert_layer_period", 2},
                 {"expert_layer_offset", 1},
                 {"mamba_expand", 1},
                 {"mamba_d_state", 8}});
  return config;
}
Json nemotron() {
  Json config = sized("nemotron_h");
  config.update({{"hybrid_override_pattern", "M-*E"},
                 {"mamba_num_heads", 4},
                 {"mamba_head_dim", 16},
                 {"n_groups", 2},
                 {"ssm_state_size", 8},
                 {"n_routed_experts", 6},
                 {"moe_shared_expert_intermediate_size", 24}});
  return config;
}
Json granite() {
  Json config = sized("granitemoehybrid");
  config.erase("moe_intermediate_size");  // experts are intermediate_size wide
  config.update({{"num_local_experts", 4},
                 {"shared_intermediate_size", 24},
                 {"mamba_n_heads", 4},
                 {"mamba_d_head", 16},
                 {"mamba_d_state", 8},
                 {"layer_types", {"mamba", "attention", "mamba", "mamba"}}});
  return config;
}
Json lfm() {
  Json config = sized("lfm2_moe");
  config.update({{"num_experts", 6},
                 {"num_dense_layers", 1},
                 {"layer_types", {"conv", "full_attention", "conv", "conv"}}});
  return config;
}

Json with(Json config, const char* key, Json value) {
  config[key] = std::move(value);
  return config;
}
Result<ModelSpec> spec_from(const Json& config) {
  return read_spec(config, nullptr);
}

TEST(RecurrentSpec, ExpertsAndStatesStandSideBySide) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec next, spec_from(with(qwen_next(), "mlp_only_layers", {1})));
  EXPECT_EQ(next.layers[0].recurrent.kind, RecurrentKind::kDeltaNet);
  EXPECT_EQ(next.layers[0].recurrent.in_projection, InProjection::kByKeyHead);
  EXPECT_EQ(next.layers[0].ffn.experts, 6u);
  EXPECT_EQ(next.layers[1].ffn.experts, 0u);
  EXPECT_EQ(next.layers[1].ffn.width, 48u);
  EXPECT_TRUE(next.layers[3].has_attention);
  EXPECT_TRUE(next.layers[3].attention.output_gate);
  EXPECT_TRUE(next.layers[3].ffn.shared_gate);
  ASSERT_OK_AND_ASSIGN(const ModelSpec bare, spec_from(with(qwen_next(), "norm_topk_prob", false)));
  EXPECT_TRUE(next.layers[0].ffn.router.normalise);
  EXPECT_FALSE(bare.layers[0].ffn.router.normalise);

  ASSERT_OK_AND_ASSIGN(const ModelSpec conv, spec_from(lfm()));
  EXPECT_EQ(conv.layers[0].ffn.experts, 0u);
  EXPECT_EQ(conv.layers[3].ffn.router.score, RouterScore::kSigmoid);
  EXPECT_TRUE(conv.layers[3].ffn.router.correction);
  EXPECT_TRUE(conv.tied_head);
  ASSERT_OK_AND_ASSIGN(const ModelSpec untied, spec_from(with(lfm(), "tie_embedding", false)));
  EXPECT_FALSE(untied.tied_head);

  ASSERT_OK_AND_ASSIGN(const ModelSpec ibm, spec_from(granite()));
  EXPECT_EQ(ibm.layers[0].ffn.shared_width, 24u);
  EXPECT_EQ(ibm.layers[0].ffn.width, 48u);
  ASSERT_OK_AND_ASSIGN(const ModelSpec dense, spec_from(with(granite(), "num_local_experts", 0)));
  EXPECT_EQ(dense.layers[0].ffn.experts, 0u);
  EXPECT_EQ(dense.layers[0].ffn.width, 24u);
}

TEST(RecurrentSpec, JambasPeriodsSayWhatLayersHave) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_from(jamba()));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spec.layers[i].has_attention, i == 2) << i;
    EXPECT_EQ(spec.layers[i].ffn.experts, i % 2 == 1 ? 4u : 0u) << i;
  }
  EXPECT_EQ(spec.layers[0].recurrent.rank, 2u);  // a sixteenth of the width
  EXPECT_TRUE(spec.layers[0].recurrent.part_norms);
  EXPECT_FALSE(spec.layers[1].ffn.router.normalise);
  ASSERT_OK_AND_ASSIGN(const ModelSpec one, spec_from(with(jamba(), "num_experts", 1)));
  EXPECT_EQ(one.layers[1].ffn.experts, 0u);
  ASSERT_OK_AND_ASSIGN(const ModelSpec ranked, spec_from(with(jamba(), "mamba_dt_rank", 5)));
  EXPECT_EQ(ranked.layers[0].recurrent.rank, 5u);
  ASSERT_OK_AND_ASSIGN(const ModelSpec automatic, spec_from(with(jamba(), "mamba_dt_rank", "auto")));
  EXPECT_EQ(automatic.layers[0].recurrent.rank, 2u);
}

TEST(RecurrentSpec, NemotronsLettersSayWhatLayersAre) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_from(nemotron()));
  EXPECT_TRUE(spec.layers[0].recurrent.exists() && !spec.layers[0].has_ffn);
  EXPECT_TRUE(!spec.layers[1].has_attention && spec.layers[1].has_ffn && spec.layers[1].ffn.experts == 0);
  EXPECT_TRUE(spec.layers[2].has_attention && !spec.layers[2].has_ffn);
  EXPECT_EQ(spec.layers[3].ffn.experts, 6u);
  EXPECT_EQ(spec.layers[3].ffn.activation, Activation::kReluSquared);
  EXPECT_FALSE(spec.layers[3].ffn.gated);
  EXPECT_EQ(spec.layers[3].ffn.latent_width, 0u);
  EXPECT_EQ(spec.layers[0].recurrent.norm_groups, 2u);
  ASSERT_OK_AND_ASSIGN(const ModelSpec latent, spec_from(with(nemotron(), "moe_latent_size", 12)));
  EXPECT_EQ(latent.layers[3].ffn.latent_width, 12u);
  EXPECT_EQ(weight_shape(latent, WeightRole::kUpExperts, 3), (Shape{6, 16, 12}));
  EXPECT_EQ(weight_shape(latent, WeightRole::kSharedUp, 3), (Shape{24, 32}));
  ASSERT_OK_AND_ASSIGN(const ModelSpec biased, spec_from(with(nemotron(), "use_bias", true)));
  EXPECT_TRUE(biased.layers[0].recurrent.in_bias && biased.layers[0].recurrent.out_bias);
}

// As transformers does, whatever else the file says.
TEST(RecurrentSpec, NemotronsStepHasALeastAndNothingElse) {
  Json config = nemotron();
  config.update({{"time_step_limit", {0.2, 0.3}}, {"attention_bias", true}, {"tie_word_embeddings", true}});
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_from(config));
  EXPECT_EQ(spec.layers[0].recurrent.min_step, 0.001);
  EXPECT_TRUE(std::isinf(spec.layers[0].recurrent.max_step));
  EXPECT_FALSE(spec.layers[2].attention.qkv_bias || spec.layers[2].attention.o_bias);
  EXPECT_FALSE(spec.tied_head);
  ASSERT_OK_AND_ASSIGN(const ModelSpec least, spec_from(with(nemotron(), "time_step_min", 0.25)));
  EXPECT_EQ(least.layers[0].recurrent.min_step, 0.25);
}

TEST(RecurrentSpec, TheActivationBehindAConvolutionIsTheFiles) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_from(with(nemotron(), "mamba_hidden_act", "relu")));
  EXPECT_EQ(spec.layers[0].recurrent.conv_activation, Activation::kRelu);
  ASSERT_OK_AND_ASSIGN(const ModelSpec delta, spec_from(with(qwen_next(), "hidden_act", "gelu")));
  EXPECT_EQ(delta.layers[0].recurrent.conv_activation, Activation::kGeluErf);
}

TEST(RecurrentSpec, AnInfiniteLimitIsReadInEverySpelling) {
  for (const char* limit : {"[0.001, Infinity]", R"([0.001, {"__float__": "Infinity"}])"}) {
    Json config = granite();
    ASSERT_OK_AND_ASSIGN(config["time_step_limit"], parse_config_json(limit, "The file"));
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, spec_from(config));
    EXPECT_EQ(spec.layers[0].recurrent.min_step, 0.001);
    EXPECT_TRUE(std::isinf(spec.layers[0].recurrent.max_step));
  }
  Json config = granite();
  ASSERT_OK_AND_ASSIGN(config["time_step_limit"], parse_config_json("[NaN, Infinity]", "The file"));
  EXPECT_ERROR(spec_from(config), "time_step_limit", "lower and an upper limit");
}

TEST(RecurrentSpec, ContradictionsAreRefused) {
  struct Wrong {
    Json config;
    std::vector<std::string> words;
  };
  const Wrong wrong[] = {
      {with(qwen_next(), "layer_types", {"linear_attention"}), {"1 layer_types", "4 layers"}},
      {with(qwen_next(), "layer_types", {"linear_attention", "mamba", "conv", "x"}), {"type mamba", "knows"}},
      {with(qwen_next(), "linear_num_value_heads", 5), {"5 heads in 2 groups", "multiple"}},
      {with(qwen_next(), "linear_conv_kernel_dim", 1), {"1 taps", "2 to 64"}},
      {with(qwen_next(), "linear_key_head_dim", 1 << 30), {"too large to be true"}},
      {with(qwen_next(), "hidden_act", "xielu"), {"hidden_act = xielu", "convolutions lack"}},
      {with(lfm(), "layer_types", {"conv", "conv"}), {"2 layer_types", "4 layers"}},
      {with(granite(), "layer_types", {"mamba"}), {"1 layer_types", "4 layers"}},
      {with(granite(), "mamba_expand", 3), {"mamba_expand = 3", "4 heads of 16", "hidden_size = 32"}},
      {with(granite(), "mamba_n_groups", 3), {"4 heads in 3 groups"}},
      {with(jamba(), "attn_layer_offset", 4), {"attn_layer_offset = 4", "below attn_layer_period = 4"}},
      {with(jamba(), "expert_layer_offset", 2), {"expert_layer_offset = 2"}},
      {with(jamba(), "mamba_expand", 1 << 24), {"too large to be true"}},
      {with(nemotron(), "hybrid_override_pattern", "M-*"), {"lists 3 kinds", "num_hidden_layers = 4"}},
      {with(nemotron(), "hybrid_override_pattern", "M-*x"), {"letter x"}},
      {with(nemotron(), "mamba_hidden_act", "mish"), {"mamba_hidden_act", "mish"}},
      {with(nemotron(), "time_step_min", -1), {"time_step_min = -1"}},
      {with(nemotron(), "n_group", 4), {"n_group = 4"}},
  };
  for (const Wrong& w : wrong) {
    const auto spec = spec_from(w.config);
    ASSERT_FALSE(spec.has_value()) << w.words[0];
    for (const std::string& word : w.words)
      EXPECT_NE(spec.error().message.find(word), std::string::npos) << spec.error().message;
  }
}

}  // namespace
}  // namespace doppler
