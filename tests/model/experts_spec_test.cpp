// What families with experts read of their keys, and what they refuse.
#include "base/json.h"
#include "model/family.h"
#include "testing.h"

namespace doppler {
namespace {

Json small(std::string_view type) {
  return {{"model_type", type},       {"vocab_size", 32},
          {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}

Result<ModelSpec> read(Json config) {
  return read_spec(config, nullptr);
}

TEST(ExpertSpec, TheSameNumberHasSeveralNames) {
  for (const char* key : {"num_local_experts", "num_experts"}) {
    Json config = small("qwen3_moe");
    config.update(
        {{key, 6}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 16}, {"mlp_only_layers", {1}}});
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, read(config));
    EXPECT_EQ(spec.layers[0].ffn.experts, 6u) << key;
    EXPECT_EQ(spec.layers[0].ffn.width, 16u);
    EXPECT_EQ(spec.layers[0].ffn.router.top_k, 3u);
    EXPECT_EQ(spec.layers[1].ffn.experts, 0u);
    EXPECT_EQ(spec.layers[1].ffn.width, 48u);
  }
}

TEST(ExpertSpec, DenseLayersComeFirstOrInBetween) {
  Json glm = small("glm4_moe");
  glm.update({{"first_k_dense_replace", 2}, {"n_routed_experts", 8}, {"num_experts_per_tok", 2}});
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, read(glm));
  EXPECT_EQ(spec.layers[1].ffn.experts, 0u);
  EXPECT_EQ(spec.layers[2].ffn.experts, 8u);
  EXPECT_GT(spec.layers[2].ffn.shared_width, 0u);
  EXPECT_EQ(spec.layers[1].ffn.shared_width, 0u);
  Json qwen = small("qwen3_moe");
  qwen["decoder_sparse_step"] = 2;
  ASSERT_OK_AND_ASSIGN(const ModelSpec sparse, read(qwen));
  EXPECT_EQ(sparse.layers[0].ffn.experts, 0u);
  EXPECT_GT(sparse.layers[1].ffn.experts, 0u);
}

TEST(ExpertSpec, OlmoesCutIsOfQueriesKeysAndValues) {
  Json config = small("olmoe");
  ASSERT_OK_AND_ASSIGN(const ModelSpec without, read(config));
  EXPECT_EQ(without.layers[0].attention.qkv_clip, 0);
  config["clip_qkv"] = 8;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, read(config));
  EXPECT_EQ(spec.layers[3].attention.qkv_clip, 8);
  config["clip_qkv"] = -1;
  EXPECT_ERROR(read(config), "clip_qkv = -1", "positive");
}

// transformers' class has the number itself.
TEST(ExpertSpec, GptOssHasOneLimit) {
  Json config = small("gpt_oss");
  config["swiglu_limit"] = 3;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, read(config));
  EXPECT_EQ(spec.layers[0].ffn.clamp, 7);
}

TEST(ExpertSpec, MiniMaxRotatesWhatEitherKeySays) {
  const auto dims = [](Json more) {
    Json config = small("minimax_m2");
    config["head_dim"] = 16;
    config.update(more);
    const Result<ModelSpec> spec = read(config);
    return spec ? spec->layers[0].attention.rope.rotary_dim : 0;
  };
  EXPECT_EQ(dims(Json::object()), 16u);
  EXPECT_EQ(dims({{"rotary_dim", 8}}), 8u);
  EXPECT_EQ(dims({{"partial_rotary_factor", 0.25}}), 4u);
  EXPECT_EQ(dims({{"partial_rotary_factor", 0.25}, {"rotary_dim", 8}}), 4u);
  EXPECT_EQ(
      dims({{"rotary_dim", 8}, {"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.25}}}}),
      4u);
}

TEST(ExpertSpec, NumbersThatContradictEachOtherAreRefused) {
  Json more = small("mixtral");
  more.update({{"num_local_experts", 4}, {"num_experts_per_tok", 5}});
  EXPECT_ERROR(read(more), "num_experts_per_tok = 5", "num_local_experts = 4");
  Json none = small("mixtral");
  none["num_local_experts"] = 0;
  EXPECT_ERROR(read(none), "num_local_experts = 0", "between 1");
  Json many = small("mixtral");
  many["num_local_experts"] = 1 << 20;
  EXPECT_ERROR(read(many), "num_local_experts = 1048576", "4 layers");
  Json groups = small("glm4_moe");
  groups.update({{"n_routed_experts", 8}, {"num_experts_per_tok", 4}, {"n_group", 4}, {"topk_group", 1}});
  EXPECT_ERROR(read(groups), "n_group = 4", "topk_group = 1", "4 of 8 experts");
  Json three = small("phimoe");
  three["num_experts_per_tok"] = 3;  // of which its class takes no notice
  ASSERT_OK_AND_ASSIGN(const ModelSpec mixer, read(three));
  EXPECT_EQ(mixer.layers[0].ffn.router.top_k, 2u);
}

}  // namespace
}  // namespace doppler
