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
