#include "model/guess/guess.h"

#include "base/json.h"
#include "model/guess/guessed_names.h"
#include "model_fixture.h"
#include "testing.h"

namespace doppler {
namespace {

TensorStore store_of(std::map<std::string, testing::TinyTensor>& tensors) {
  TensorStore store;
  for (auto& [name, tensor] : tensors) EXPECT_TRUE(store.add(tensor.view(name)).has_value());
  return store;
}

// The roles that the guess gives to tensors of these names and shapes.
std::map<std::string, WeightRole> roles(const std::vector<std::pair<std::string, Shape>>& given) {
  std::map<std::string, testing::TinyTensor> tensors;
  for (const auto& [name, shape] : given) tensors[name] = testing::random_tensor(name, shape, 1, 0.1f);
  const TensorStore store = store_of(tensors);
  const auto patterns = find_patterns(store);
  std::map<std::string, WeightRole> found;
  EXPECT_TRUE(patterns.has_value());
  if (!patterns) return found;
  const GuessedNames names = guess_names(*patterns);
  for (const GuessedName& name : names.all()) found[name.pattern->name] = name.role;
  return found;
}

TEST(GuessedNames, ANormAfterAttentionIsJudgedByItsNeighbours) {
  const std::string post = "h.{}.post_attention_layernorm.weight";
  const auto name = [](const char* leaf) { return fmt::format("h.0.{}.weight", leaf); };
  const Shape width = {8};
  // Llama's: before the feed-forward. Gemma's: after attention. OLMo 2's: after attention, too.
  EXPECT_EQ(roles({{name("input_layernorm"), width}, {name("post_attention_layernorm"), width}})[post],
            WeightRole::kFfnNorm);
  EXPECT_EQ(roles({{name("input_layernorm"), width},
                   {name("pre_feedforward_layernorm"), width},
                   {name("post_attention_layernorm"), width}})[post],
            WeightRole::kPostAttnNorm);
  EXPECT_EQ(
      roles({{name("post_feedforward_layernorm"), width}, {name("post_attention_layernorm"), width}})[post],
      WeightRole::kPostAttnNorm);
}

TEST(GuessedNames, ProjectionsOfOneNameAreToldApartByTheirHalf) {
  auto found = roles({{"transformer.h.0.attn.c_proj.weight", {8, 8}},
                      {"transformer.h.0.mlp.c_fc.weight", {16, 8}},
                      {"transformer.h.0.mlp.c_proj.weight", {8, 16}}});
  EXPECT_EQ(found["transformer.h.{}.attn.c_proj.weight"], WeightRole::kO);
  EXPECT_EQ(found["transformer.h.{}.mlp.c_proj.weight"], WeightRole::kDown);
  EXPECT_EQ(found["transformer.h.{}.mlp.c_fc.weight"], WeightRole::kUp);
}

TEST(GuessedNames, OfTwoNumberedMatricesTheFirstGoesUp) {
  auto two =
      roles({{"layers.0.feed_forward.w1.weight", {16, 8}}, {"layers.0.feed_forward.w2.weight", {8, 16}}});
  EXPECT_EQ(two["layers.{}.feed_forward.w1.weight"], WeightRole::kUp);
  auto three = roles({{"layers.0.feed_forward.w1.weight", {16, 8}},
                      {"layers.0.feed_forward.w2.weight", {8, 16}},
                      {"layers.0.feed_forward.w3.weight", {16, 8}}});
  EXPECT_EQ(three["layers.{}.feed_forward.w1.weight"], WeightRole::kGate);
  EXPECT_EQ(three["layers.{}.feed_forward.w3.weight"], WeightRole::kUp);
}

TEST(GuessedNames, ARouterHasARowForEachExpertWhateverItIsCalled) {
  const std::string moe = "model.layers.1.mlp.";
  std::vector<std::pair<std::string, Shape>> given = {
      {"model.layers.0.mlp.gate_proj.weight", {16, 8}}, {"model.layers.0.mlp.up_proj.weight", {16, 8}},
      {"model.layers.0.mlp.down_proj.weight", {8, 16}}, {moe + "gate.weight", {3, 8}},
      {moe + "gate.e_score_correction_bias", {3}},      {moe + "shared_experts.up_proj.weight", {12, 8}},
      {moe + "shared_expert_gate.weight", {1, 8}}};
  for (int i = 0; i < 3; ++i) {
    given.emplace_back(fmt::format("{}experts.{}.gate_proj.weight", moe, i), Shape{4, 8});
    given.emplace_back(fmt::format("{}experts.{}.up_proj.weight", moe, i), Shape{4, 8});
    given.emplace_back(fmt::format("{}experts.{}.down_proj.weight", moe, i), Shape{8, 4});
  }
  auto found = roles(given);
  const std::string any = "model.layers.{}.mlp.";
  EXPECT_EQ(found[any + "gate.weight"], WeightRole::kRouter);
  EXPECT_EQ(found[any + "gate.e_score_correction_bias"], WeightRole::kRouterCorrection);
  EXPECT_EQ(found[any + "gate_proj.weight"], WeightRole::kGate);
  EXPECT_EQ(found[any + "experts.{}.gate_proj.weight"], WeightRole::kGateExperts);
  EXPECT_EQ(found[any + "experts.{}.down_proj.weight"], WeightRole::kDownExperts);
  EXPECT_EQ(found[any + "shared_experts.up_proj.weight"], WeightRole::kSharedUp);
  EXPECT_EQ(found[any + "shared_expert_gate.weight"], WeightRole::kSharedGate);
  EXPECT_EQ(found.size(), 10u);
}

TEST(GuessedNames, ExpertsMayBeNumberedLikeLlamasMatricesOrBeOneTensor) {
  auto mixtral = roles({{"layers.0.moe.gate.weight", {2, 8}},
                        {"layers.0.moe.experts.0.w1.weight", {4, 8}},
                        {"layers.0.moe.experts.0.w2.weight", {8, 4}},
                        {"layers.0.moe.experts.0.w3.weight", {4, 8}},
                        {"layers.0.moe.experts.1.w1.weight", {4, 8}},
                        {"layers.0.moe.experts.1.w2.weight", {8, 4}},
                        {"layers.0.moe.experts.1.w3.weight", {4, 8}}});
  EXPECT_EQ(mixtral["layers.{}.moe.experts.{}.w1.weight"], WeightRole::kGateExperts);
  EXPECT_EQ(mixtral["layers.{}.moe.experts.{}.w3.weight"], WeightRole::kUpExperts);
  auto stacked = roles({{"layers.0.moe.router.layer.weight", {2, 8}},
                        {"layers.0.moe.input_linear.weight", {2, 8, 8}},
                        {"layers.0.moe.output_linear.weight", {2, 8, 4}}});
  EXPECT_EQ(stacked["layers.{}.moe.router.layer.weight"], WeightRole::kRouter);
  EXPECT_EQ(stacked["layers.{}.moe.input_linear.weight"], WeightRole::kGateUpExperts);
  EXPECT_EQ(stacked["layers.{}.moe.output_linear.weight"], WeightRole::kDownExperts);
}

class Guess : public ::testing::Test {
 protected:
  Guess() : tiny_("llama") { tiny_.config["model_type"] = "nobody"; }
  Result<GuessedModel> guess() {
    store_ = tiny_.store();
    return guess_model(tiny_.config, nullptr, store_);
  }
  testing::TinyModel tiny_;
  TensorStore store_;
};

TEST_F(Guess, SaysEachReason) {
  ASSERT_OK_AND_ASSIGN(const GuessedModel model, guess());
  EXPECT_EQ(model.spec.family, "guess");
  EXPECT_EQ(model.spec.layers.size(), 3u);
  const auto reason = [&](std::string_view path) {
    for (const SpecSource& source : model.spec.sources)
      if (source.path == path) return source.source;
    return std::string();
  };
  EXPECT_EQ(reason("layers"), "guess: tensors model.layers.0 to 2");
  EXPECT_EQ(reason("ffn.width"), "guess: model.layers.{}.mlp.up_proj.weight is 48 x 32");
  EXPECT_EQ(reason("norm.kind"), "guess: epsilon is called rms_norm_eps");
  EXPECT_EQ(reason("ffn.gated"), "guess: a tensor of the gate is there");
}

TEST_F(Guess, NamesWhatItHasNoPurposeFor) {
  tiny_.tensors["model.layers.0.mixer.A_log"] = testing::random_tensor("a", {4}, 0, 1);
  EXPECT_ERROR(guess(), "model.layers.{}.mixer.A_log");
}

class GuessedExperts : public Guess {
 protected:
  // Layer 0 stays dense.
  GuessedExperts() {
    for (int layer = 1; layer < 3; ++layer) {
      const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
      std::erase_if(tiny_.tensors, [&](const auto& entry) { return entry.first.starts_with(mlp); });
      add(mlp + "gate.weight", {4, 32});
      for (int i = 0; i < 4; ++i) {
        const std::string expert = fmt::format("{}experts.{}.", mlp, i);
        add(expert + "gate_proj.weight", {16, 32});
        add(expert + "up_proj.weight", {16, 32});
        add(expert + "down_proj.weight", {32, 16});
      }
    }
  }
  void add(const std::string& name, Shape shape) {
    tiny_.tensors[name] = testing::random_tensor(name, std::move(shape), 0, 0.1f);
  }
};

TEST_F(GuessedExperts, AreOfTheLayersThatHaveThem) {
  ASSERT_OK_AND_ASSIGN(const GuessedModel model, guess());
  EXPECT_EQ(model.spec.layers[0].ffn.experts, 0u);
  EXPECT_EQ(model.spec.layers[0].ffn.width, 48u);
  for (std::size_t i = 1; i < 3; ++i) {
    const FfnSpec& ffn = model.spec.layers[i].ffn;
    EXPECT_EQ(ffn.experts, 4u);
    EXPECT_EQ(ffn.width, 16u);
    EXPECT_EQ(ffn.router.top_k, 2u);
    EXPECT_EQ(ffn.router.score, RouterScore::kSoftmax);
    EXPECT_TRUE(ffn.router.normalise);
  }
}

TEST_F(GuessedExperts, AreSentToAsKeysAndTensorsSay) {
  for (int layer = 1; layer < 3; ++layer) {
    const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
    add(mlp + "gate.e_score_correction_bias", {4});
    add(mlp + "shared_expert.gate_proj.weight", {8, 32});
    add(mlp + "shared_expert.up_proj.weight", {8, 32});
    add(mlp + "shared_expert.down_proj.weight", {32, 8});
  }
  tiny_.config["route_norm"] = false;
  tiny_.config["route_scale"] = 2.5;
  ASSERT_OK_AND_ASSIGN(const GuessedModel model, guess());
  const FfnSpec& ffn = model.spec.layers[2].ffn;
  EXPECT_TRUE(ffn.router.correction);
  EXPECT_EQ(ffn.router.score, RouterScore::kSigmoid);
  EXPECT_FALSE(ffn.router.normalise);
  EXPECT_EQ(ffn.router.scale, 2.5);
  EXPECT_EQ(ffn.shared_width, 8u);
  EXPECT_FALSE(ffn.shared_gate);
  tiny_.config["score_func"] = "softmax";
  ASSERT_OK_AND_ASSIGN(const GuessedModel other, guess());
  EXPECT_EQ(other.spec.layers[2].ffn.router.score, RouterScore::kSoftmax);
  tiny_.config["score_func"] = "tanh";
  EXPECT_ERROR(guess(), "no score of experts called tanh");
}

TEST_F(GuessedExperts, MustAllBeThere) {
  tiny_.tensors.erase("model.layers.2.mlp.experts.1.up_proj.weight");
  EXPECT_ERROR(guess(), "model.layers.2.mlp.experts.1.up_proj.weight");
  add("model.layers.2.mlp.experts.123456789.up_proj.weight", {16, 32});
  EXPECT_ERROR(guess(), "no layer has more than");
}

TEST_F(Guess, NeedsHeadsAndLayersWithoutGaps) {
  Json config = tiny_.config;
  tiny_.config.erase("num_attention_heads");
  EXPECT_ERROR(guess(), "how many heads");
  tiny_.config = config;
  std::erase_if(tiny_.tensors, [](const auto& entry) { return entry.first.starts_with("model.layers.1."); });
  EXPECT_ERROR(guess(), "none of layer 1");
}

TEST_F(Guess, BelievesWhatConfigJsonSaysOfWhatTensorsCannot) {
  tiny_.config["rope_interleaved"] = true;
  tiny_.config["qk_norm_after_rope"] = true;
  tiny_.config["norm_weight_offset"] = 1;
  tiny_.config["parallel_residual"] = true;
  ASSERT_OK_AND_ASSIGN(const GuessedModel model, guess());
  const LayerSpec& layer = model.spec.layers[0];
  EXPECT_EQ(layer.attention.rope.layout, RopeLayout::kInterleaved);
  EXPECT_TRUE(layer.attention.qk_norm_after_rope);
  EXPECT_EQ(model.spec.norm.weight_offset, 1);
  EXPECT_TRUE(layer.parallel);
}

TEST_F(Guess, UnderstandsOtherWordsForTheSameKeys) {
  const auto rename = [&](const char* from, const char* to) {
    tiny_.config[to] = tiny_.config[from];
    tiny_.config.erase(from);
  };
  rename("num_attention_heads", "n_heads");
  rename("rms_norm_eps", "norm_eps");
  rename("max_position_embeddings", "max_seq_len");
  tiny_.config.erase("head_dim");
  tiny_.config.erase("num_key_value_heads");
  ASSERT_OK_AND_ASSIGN(const GuessedModel model, guess());
  EXPECT_EQ(model.spec.context_length, 128u);
  EXPECT_EQ(model.spec.layers[0].attention.kv_heads, 2u);
  EXPECT_EQ(model.spec.layers[0].attention.head_dim, 8u);
}

}  // namespace
}  // namespace doppler
