// That no field of a spec can differ without being noticed: each is changed once.
#include <algorithm>
#include <set>

#include "convert/source.h"
#include "model/spec_fields.h"
#include "testing.h"

namespace doppler::convert {
namespace {

// A model of which every part means something, whether or not one could be trained.
ModelSpec everything() {
  LayerSpec layer;
  AttentionSpec& a = layer.attention;
  a = {
      .kind = AttentionKind::kSliding, .window = 8, .heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25};
  a.rope.rotary_dim = 16;
  a.qk_norm = true;
  a.alibi.max_bias = 8;
  a.query_scale.every = 4;
  a.latent.kv_rank = 8;
  FfnSpec& f = layer.ffn;
  f.activation = Activation::kXielu;
  f.width = 32, f.experts = 8, f.shared_width = 32, f.dense_width = 32;
  f.router.top_k = 2, f.router.groups = 2, f.router.normalise = true;
  f.router.score = RouterScore::kSparseMixer;
  layer.recurrent.kind = RecurrentKind::kMamba2;
  ModelSpec spec;
  spec.vocab_size = 100, spec.hidden = 64, spec.context_length = 128;
  spec.layers = {layer, layer};
  return spec;
}

void change(bool& value) {
  value = !value;
}
void change(std::string& text) {
  text += "x";
}
template <typename T>
  requires std::is_enum_v<T>
void change(T& value) {
  value = static_cast<T>(value == static_cast<T>(0) ? 1 : 0);
}
template <typename T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
void change(T& value) {
  value = value > T(1000000) ? T(1) : static_cast<T>(2 * value + 3);  // the time step's limit is infinite
}
template <typename T, std::size_t n>
void change(std::array<T, n>& list) {
  list.back() += 1;
}
template <typename T>
void change(std::vector<T>& list) {
  list.push_back(7);
}

// Changes the field of that number, if there are so many.
struct ChangeOne {
  std::size_t wanted = 0, index = 0;
  std::string path;
  template <typename T>
  void operator()(const std::string& name, T& value) {
    if (index++ != wanted) return;
    path = name;
    change(value);
  }
};

// How a model is stored, and ids that its tokenizer says.
const std::set<std::string> kStored = {"family",
                                       "described_by",
                                       "norm.weight_offset",
                                       "fused_qkv",
                                       "fused_gate_up",
                                       "fused_experts",
                                       "fused_shared",
                                       "predicting_layers",
                                       "eos_ids",
                                       "bos_id",
                                       "pad_id",
                                       "attention.latent.split_up",
                                       "ffn.latent_experts",
                                       "recurrent.in_projection",
                                       "recurrent.tiled_output"};
// One difference of the angles stands for all of these.
bool is_scaling(const std::string& path) {
  return path.starts_with("attention.rope.scaling") || path == "attention.rope.still_pairs";
}

// All fields of what `part` picks of a spec.
template <typename Part>
void expect_each_is_noticed(Part part, std::size_t at_least) {
  const ModelSpec wanted = everything();
  std::size_t count = 0;
  for (;; ++count) {
    ModelSpec got = wanted;
    ChangeOne one{.wanted = count};
    each_field(part(got), one);
    if (one.path.empty()) break;
    SCOPED_TRACE(one.path);
    if (is_scaling(one.path)) continue;
    const std::vector<std::string> found = spec_differences(wanted, got);
    const bool named = std::ranges::any_of(
        found, [&](const std::string& text) { return text.starts_with(one.path + " is "); });
    EXPECT_EQ(named, !kStored.contains(one.path)) << found.size();
  }
  EXPECT_GE(count, at_least);
}

TEST(SpecDifferences, NoticeEveryFieldOfAModel) {
  expect_each_is_noticed([](ModelSpec& spec) -> ModelSpec& { return spec; }, 27);
}

TEST(SpecDifferences, NoticeEveryFieldOfALayer) {
  expect_each_is_noticed([](ModelSpec& spec) -> LayerSpec& { return spec.layers[1]; }, 110);
}

TEST(SpecDifferences, AreNoneBetweenASpecAndItself) {
  EXPECT_EQ(spec_differences(everything(), everything()), std::vector<std::string>());
}

TEST(SpecDifferences, SayTheNumberOfLayers) {
  ModelSpec one = everything();
  one.layers.pop_back();
  EXPECT_EQ(spec_differences(everything(), one), std::vector<std::string>{"layers is 1, not 2"});
}

// The numbers of a scaling have several spellings: what turns decides.
TEST(SpecDifferences, CompareScalingsByTheirAngles) {
  const auto scaled = [](const RopeScaling& scaling) {
    ModelSpec spec = everything();
    for (LayerSpec& layer : spec.layers) layer.attention.rope.scaling = scaling;
    return spec;
  };
  const RopeScaling yarn = {.kind = RopeScalingKind::kYarn, .factor = 4, .original_context = 32};
  const ModelSpec wanted = scaled(yarn);
  EXPECT_EQ(spec_differences(wanted, scaled(yarn)).size(), 0u);
  RopeScaling other = yarn;
  other.attention_factor = 1.1;
  EXPECT_EQ(spec_differences(wanted, scaled(other)),
            std::vector<std::string>{"attention.rope.scaling is yarn, not yarn in layer 0"});
  other = yarn;
  other.beta_slow = 2;
  EXPECT_EQ(spec_differences(wanted, scaled(other)).size(), 1u);
  EXPECT_EQ(spec_differences(wanted, scaled({})).size(), 1u);
  ModelSpec still = everything();
  for (LayerSpec& layer : still.layers) layer.attention.rope.still_pairs = 2;
  EXPECT_EQ(spec_differences(everything(), still).size(), 1u);
}

// What a layer of its kind does not use may be anything.
TEST(SpecDifferences, LeaveOutWhatMeansNothing) {
  ModelSpec wanted = everything();
  for (LayerSpec& layer : wanted.layers) {
    layer.attention = {.heads = 4, .kv_heads = 4, .head_dim = 16};
    layer.ffn = {.width = 32};
    layer.recurrent = {};
  }
  ModelSpec got = wanted;
  for (LayerSpec& layer : got.layers) {
    layer.attention.window = 7;
    layer.attention.qk_norm_plain = true;
    layer.attention.rope.theta = 5;
    layer.ffn.router.top_k = 3;
    layer.ffn.xielu.beta = 1;
    layer.recurrent.heads = 9;
  }
  EXPECT_EQ(spec_differences(wanted, got), std::vector<std::string>());
}

}  // namespace
}  // namespace doppler::convert
