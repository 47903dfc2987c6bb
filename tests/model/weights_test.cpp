// Binding: every tensor that a spec needs is there, of the right shape, and used; each contradiction names
// both sides.
#include <algorithm>

#include "model_fixture.h"

namespace doppler {
namespace {

using testing::random_tensor;
using testing::TinyModel;

TEST(Weights, EveryFamilyBindsAndLoads) {
  for (const FamilyRule* rule : all_families()) {
    const TinyModel model{std::string(rule->name)};
    ASSERT_OK(model.bind());
    const bool arranged = !rule->weight_names.transposed.empty();          // arrange_test.cpp
    const bool columns = !rule->weight_names.expert_columns.down.empty();  // expert_files_test.cpp
    if (arranged || columns) continue;
    const testing::TempDir dir;
    ASSERT_OK(model.write(dir.path()));
    ASSERT_OK_AND_ASSIGN(const Model loaded, load_model(dir.path()));
    EXPECT_EQ(loaded.spec.family, rule->name);
    for (int layer = 0; layer < 3; ++layer) {
      const LayerSpec& l = loaded.spec.layers[static_cast<std::size_t>(layer)];
      const auto has = [&](WeightRole role) { return loaded.weights.find(role, layer) != kNoWeight; };
      const AttentionSpec& a = l.attention;
      const bool own = l.has_attention && !a.is_latent() && a.has_own_kv();
      EXPECT_EQ(has(WeightRole::kO), l.has_attention) << rule->name;
      EXPECT_EQ(has(WeightRole::kQ), l.has_attention && a.latent.q_rank == 0) << rule->name;
      EXPECT_EQ(has(WeightRole::kK), own) << rule->name;
      EXPECT_EQ(has(WeightRole::kV), own && !a.keys_as_values) << rule->name;
      EXPECT_EQ(has(WeightRole::kKvDown), l.has_attention && a.is_latent()) << rule->name;
      EXPECT_EQ(has(WeightRole::kMixerOut), l.recurrent.exists()) << rule->name;
      const bool experts = l.has_ffn && l.ffn.experts > 0, dense = l.has_ffn && !experts;
      EXPECT_EQ(has(WeightRole::kUp) && has(WeightRole::kDown), dense) << rule->name;
      EXPECT_EQ(has(WeightRole::kUpExperts) && has(WeightRole::kDownExperts), experts) << rule->name;
      EXPECT_EQ(has(WeightRole::kGate), dense && l.ffn.gated) << rule->name;
      EXPECT_EQ(has(WeightRole::kGateExperts), experts && l.ffn.gated) << rule->name;
    }
  }
}

TEST(Weights, MissingTensors) {
  for (const FamilyRule* rule : all_families()) {
    const TinyModel whole{std::string(rule->name)};
    for (const auto& [name, tensor] : whole.tensors) {
      // One expert stands for all of a family that has a hundred.
      if (name.contains(".experts.") && !name.contains(".experts.0.")) continue;
      TinyModel model = whole;
      model.tensors.erase(name);
      EXPECT_ERROR(model.bind(), name.c_str(), "missing", describe_shape(tensor.shape).c_str());
    }
  }
}

TEST(Weights, WrongShapes) {
  for (const char* family : {"llama", "phi3", "gemma3", "qwen2"}) {
    const TinyModel whole{family};
    for (const auto& [name, tensor] : whole.tensors) {
      TinyModel model = whole;
      Shape shape = tensor.shape;
      shape.back() += 1;
      model.tensors[name] = random_tensor(name, shape, 0, 1);
      EXPECT_ERROR(model.bind(), name.c_str(), describe_shape(shape).c_str(),
                   describe_shape(tensor.shape).c_str());
    }
  }
  TinyModel transposed("llama");
  std::swap(transposed.tensors["model.layers.1.self_attn.k_proj.weight"].shape[0],
            transposed.tensors["model.layers.1.self_attn.k_proj.weight"].shape[1]);
  EXPECT_ERROR(transposed.bind(), "layers.1.self_attn.k_proj.weight", "32 x 16", "16 x 32",
               "num_key_value_heads");
}

TEST(Weights, TensorsThatNothingUses) {
  for (const char* name : {"model.layers.0.self_attn.sieve", "model.layers.3.mlp.up_proj.weight", "extra",
                           "model.layers.x.self_attn.q_norm.weight"}) {
    TinyModel model("llama");
    model.tensors[name] = random_tensor(name, {8}, 0, 1);
    EXPECT_ERROR(model.bind(), name, "nothing in the llama family", "num_hidden_layers = 3");
  }
}

TEST(Weights, FlagsThatContradictTensors) {
  struct Case {
    const char* family;
    const char* tensor;
    Shape shape;
    const char* flag;
  };
  const Case cases[] = {
      {"llama", "self_attn.q_norm.weight", {8}, "attention.qk_norm = false"},
      {"llama", "self_attn.k_norm.weight", {8}, "attention.qk_norm = false"},
      {"llama", "self_attn.q_proj.bias", {32}, "attention.qkv_bias = false"},
      {"mistral", "self_attn.v_proj.bias", {16}, "attention.qkv_bias = false"},
      {"qwen2", "self_attn.o_proj.bias", {32}, "attention.o_bias = false"},
      {"qwen3", "self_attn.k_proj.bias", {16}, "attention.qkv_bias = false"},
      {"llama", "mlp.down_proj.bias", {32}, "ffn.bias = false"},
      {"llama", "pre_feedforward_layernorm.weight", {32}, "post_attn_norm = false"},
      {"qwen3", "post_feedforward_layernorm.weight", {32}, "post_ffn_norm = false"},
  };
  for (const Case& c : cases) {
    TinyModel model(c.family);
    const std::string name = fmt::format("model.layers.1.{}", c.tensor);
    model.tensors[name] = random_tensor(name, c.shape, 0, 1);
    EXPECT_ERROR(model.bind(), name.c_str(), c.flag, c.family);
  }
}

TEST(Weights, FlagsWhoseTensorsAreMissing) {
  TinyModel qwen("qwen2");
  qwen.tensors.erase("model.layers.2.self_attn.k_proj.bias");
  EXPECT_ERROR(qwen.bind(), "model.layers.2.self_attn.k_proj.bias", "missing", "qwen2",
               "attention.qkv_bias = true");
  TinyModel llama("llama");
  llama.config["attention_bias"] = true;
  EXPECT_ERROR(llama.bind(), "model.layers.0.self_attn.q_proj.bias", "attention.qkv_bias = true");
  llama.config["attention_bias"] = false;
  llama.config["mlp_bias"] = true;
  EXPECT_ERROR(llama.bind(), "model.layers.0.mlp.gate_proj.bias", "ffn.bias = true");
  TinyModel gemma("gemma3");
  gemma.tensors.erase("model.layers.1.post_feedforward_layernorm.weight");
  EXPECT_ERROR(gemma.bind(), "model.layers.1.post_feedforward_layernorm.weight", "post_ffn_norm = true");
  TinyModel qwen3("qwen3");
  qwen3.tensors.erase("model.layers.0.self_attn.q_norm.weight");
  EXPECT_ERROR(qwen3.bind(), "model.layers.0.self_attn.q_norm.weight", "attention.qk_norm = true");
}

Json changed(const std::string& family, const Json& values) {
  Json config = testing::tiny_config(family);
  config.update(values);
  return config;
}

TEST(Weights, ProjectionsToALatentMayHaveBiases) {
  for (const char* family : {"deepseek_v2", "deepseek_v3", "mistral4", "glm4_moe_lite"}) {
    const TinyModel model(family, changed(family, {{"attention_bias", true}}));
    ASSERT_OK_AND_ASSIGN(const Weights weights, model.bind());
    for (const WeightRole role : {WeightRole::kQDownBias, WeightRole::kKvDownBias, WeightRole::kOBias})
      EXPECT_NE(weights.find(role, 1), kNoWeight) << family;
    EXPECT_EQ(weights.find(WeightRole::kQBias, 1), kNoWeight) << family;
    // Queries that have no latent have no bias.
    const TinyModel direct(family, changed(family, {{"attention_bias", true}, {"q_lora_rank", nullptr}}));
    ASSERT_OK_AND_ASSIGN(const Weights without, direct.bind());
    EXPECT_EQ(without.find(WeightRole::kQDownBias, 1), kNoWeight) << family;
    EXPECT_NE(without.find(WeightRole::kKvDownBias, 1), kNoWeight) << family;
  }
}

TEST(Weights, DeepseekV2sDenseAndSharedFeedForwardsMayHaveBiases) {
  const TinyModel model("deepseek_v2", changed("deepseek_v2", {{"mlp_bias", true}}));
  ASSERT_OK_AND_ASSIGN(const Weights weights, model.bind());
  EXPECT_NE(weights.find(WeightRole::kDownBias, 0), kNoWeight);
  EXPECT_NE(weights.find(WeightRole::kSharedDownBias, 1), kNoWeight);
}

TEST(Weights, BiasesOfKeysAndValuesAreWhereTheirProjectionsAre) {
  const TinyModel model("gemma4", changed("gemma4", {{"attention_bias", true}, {"attention_k_eq_v", true}}));
  ASSERT_OK_AND_ASSIGN(const Weights weights, model.bind());
  EXPECT_NE(weights.find(WeightRole::kVBias, 0), kNoWeight);
  EXPECT_NE(weights.find(WeightRole::kKBias, 1), kNoWeight);
  EXPECT_EQ(weights.find(WeightRole::kVBias, 1), kNoWeight);  // values are the keys' projection
  EXPECT_EQ(weights.find(WeightRole::kKBias, 2), kNoWeight);  // both are an earlier layer's
  EXPECT_NE(weights.find(WeightRole::kQBias, 2), kNoWeight);
}

TEST(Weights, PhisNormsOfHeadsHaveBiases) {
  const TinyModel model("phi", changed("phi", {{"qk_layernorm", true}}));
  ASSERT_OK_AND_ASSIGN(const Weights weights, model.bind());
  EXPECT_TRUE(model.tensors.contains("model.layers.2.self_attn.q_layernorm.bias"));
  EXPECT_NE(weights.find(WeightRole::kQNormBias, 2), kNoWeight);
  EXPECT_NE(weights.find(WeightRole::kKNormBias, 2), kNoWeight);
}

TEST(Weights, Gemma3nsStreamMayGoUnscaled) {
  TinyModel model("gemma3n");
  model.config["altup_correct_scale"] = false;  // checkpoints keep the tensor
  ASSERT_OK_AND_ASSIGN(const Weights weights, model.bind());
  EXPECT_EQ(weights.find(WeightRole::kAltupOutScale, 0), kNoWeight);
}

TEST(Weights, TiedAndUntiedHeads) {
  TinyModel tied("gemma3");
  ASSERT_OK_AND_ASSIGN(const Weights shared, tied.bind());
  EXPECT_EQ(shared.find(WeightRole::kHead), shared.find(WeightRole::kTokenEmbedding));
  tied.tensors["lm_head.weight"] = tied.tensors["model.embed_tokens.weight"];
  ASSERT_OK(tied.bind());  // written twice, and the same
  tied.tensors["lm_head.weight"].bytes[5] ^= std::byte{1};
  EXPECT_ERROR(tied.bind(), "lm_head.weight", "model.embed_tokens.weight", "tie_word_embeddings = true",
               "differs");
  TinyModel untied("llama");
  untied.tensors.erase("lm_head.weight");
  EXPECT_ERROR(untied.bind(), "lm_head.weight", "missing", "tie_word_embeddings = false");
}

TEST(Weights, DTypesThatCannotBeComputedWith) {
  TinyModel model("llama");
  auto& tensor = model.tensors["model.layers.0.mlp.up_proj.weight"];
  tensor.dtype = DType::kI8;
  tensor.bytes.resize(48 * 32);
  EXPECT_ERROR(model.bind(), "model.layers.0.mlp.up_proj.weight", "I8", "F32, F16 and BF16");
}

TEST(Weights, FusedTensorsAreSlicedInOrder) {
  const TinyModel model("phi3");
  const TensorStore store = model.store();
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, model.spec());
  ASSERT_OK_AND_ASSIGN(const Weights weights,
                       bind_weights(spec, testing::rule_of("phi3").weight_names, store));
  const TensorView* qkv = store.find("model.layers.1.self_attn.qkv_proj.weight");
  const TensorView* gate_up = store.find("model.layers.1.mlp.gate_up_proj.weight");
  const auto starts_at = [&](WeightRole role, const TensorView& whole, std::size_t row, std::size_t rows) {
    const TensorView& part = weights[weights.find(role, 1)];
    EXPECT_EQ(part.shape, (Shape{rows, 32}));
    EXPECT_EQ(part.data.data(), whole.data.data() + row * 32 * sizeof(float)) << part.name;
    EXPECT_EQ(part.name, fmt::format("{}[{}:{}]", whole.name, row, row + rows));
  };
  starts_at(WeightRole::kQ, *qkv, 0, 32);
  starts_at(WeightRole::kK, *qkv, 32, 16);
  starts_at(WeightRole::kV, *qkv, 48, 16);
  starts_at(WeightRole::kGate, *gate_up, 0, 48);
  starts_at(WeightRole::kUp, *gate_up, 48, 48);
}

// Multimodal checkpoints keep the language model under a longer name, with vision tensors beside it.
TEST(Weights, LanguageModelInsideAMultimodalOne) {
  for (const std::string& prefix :
       {std::string("language_model.model."), std::string("model.language_model.")}) {
    TinyModel model("gemma3");
    std::map<std::string, testing::TinyTensor> renamed;
    for (auto& [name, tensor] : model.tensors) renamed[prefix + name.substr(6)] = std::move(tensor);
    for (const char* vision :
         {"vision_tower.vision_model.encoder.weight", "multi_modal_projector.mm_input_projection_weight",
          "model.vision_tower.x", "model.multi_modal_projector.y"}) {
      renamed[vision] = random_tensor(vision, {3, 5}, 0, 1);
    }
    model.tensors = renamed;
    model.config = {{"model_type", "gemma3"}, {"text_config", model.config}};
    ASSERT_OK(model.bind());
    model.tensors[prefix + "layers.0.self_attn.q_proj.bias"] = random_tensor("bias", {32}, 0, 1);
    EXPECT_ERROR(model.bind(), "layers.0.self_attn.q_proj.bias", "attention.qkv_bias = false");
    model.tensors.erase(prefix + "layers.0.self_attn.q_proj.bias");
    model.tensors.erase(prefix + "norm.weight");
    EXPECT_ERROR(model.bind(), (prefix + "norm.weight").c_str(), "missing");
  }
}

TEST(Weights, StoredRotaryFrequenciesAreSurplus) {
  TinyModel model("llama");
  model.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = random_tensor("inv_freq", {4}, 0, 1);
  ASSERT_OK(model.bind());
}

}  // namespace
}  // namespace doppler
