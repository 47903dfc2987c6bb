// The table of weights against real files: each holds exactly what the table says, and whatever is missing or
// added is named.
#include "model/weight_table.h"

#include <map>
#include <set>

#include "model_fixture.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::random_tensor;
using testing::TinyModel;
using testing::TinyTensor;

std::map<std::string, Shape> shapes_in(const TensorStore& store) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : store.tensors()) shapes[name] = tensor.shape;
  return shapes;
}

class FixtureFile : public ::testing::TestWithParam<std::string> {};

TEST_P(FixtureFile, HoldsExactlyTheTensorsOfTheTable) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path(GetParam())));
  const FamilyRule& family = *family_named(model.spec.family);
  const WeightNames& names = model.files.gguf ? family.gguf.weight_names : family.weight_names;
  std::map<std::string, Shape> wanted;
  for (const WeightTensor& tensor : weight_tensors(model.spec, names)) {
    EXPECT_TRUE(wanted.emplace(tensor.name, tensor.shape).second) << tensor.name << " comes twice";
    // What binding made of it: the tensor itself, or its parts; rope divisors stay with the spec.
    const std::span<const WeightRole> parts = tensor.info->fused_parts();
    for (const WeightRole role : parts.empty() ? std::span(&tensor.info->role, 1) : parts) {
      const WeightId id = model.weights.find(role, tensor.layer);
      if (tensor.info->kind == WeightKind::kRopeFactors || tensor.info->kind == WeightKind::kNumber) {
        EXPECT_EQ(id, kNoWeight);
      } else {
        ASSERT_NE(id, kNoWeight) << tensor.name;
        EXPECT_EQ(model.weights[id].shape, weight_shape(model.spec, role, tensor.layer)) << tensor.name;
      }
    }
  }
  EXPECT_EQ(shapes_in(model.files.tensors), wanted);
}

INSTANTIATE_TEST_SUITE_P(WeightTable, FixtureFile,
                         ::testing::Values("models/gemma2", "models/gemma3", "models/gemma3_k288",
                                           "models/llama", "models/llama3", "models/mistral", "models/phi3",
                                           "models/qwen2", "models/qwen3", "gguf/gemma2.gguf",
                                           "gguf/gemma3.gguf", "gguf/gemma3_k288.Q4_K_M.gguf",
                                           "gguf/llama.gguf", "gguf/llama3.gguf", "gguf/llama.Q4_0.gguf",
                                           "gguf/mistral.gguf", "gguf/phi3.gguf", "gguf/qwen2.gguf",
                                           "gguf/qwen3.gguf"),
                         [](const auto& test) { return testing::as_test_name(test.param); });

// Every weight that some models have, put into every family that has none: the message names it, and the flag
// that speaks against it.
TEST(WeightTable, AWeightThatTheModelHasNotIsNamed) {
  std::size_t tried = 0;
  for (const FamilyRule* family : all_families()) {
    const TinyModel whole{std::string(family->name)};
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, whole.spec());
    for (const WeightInfo& info : weight_table()) {
      const std::string name =
          numbered_name(weight_name(family->weight_names, info.role, info.per_layer() ? 1 : -1), 3);
      const std::string_view flag = unmet_condition(info.when);
      if (name.empty() || whole.tensors.contains(name) || info.role == WeightRole::kHead) continue;
      TinyModel model = whole;
      model.tensors[name] = random_tensor(name, {4}, 0, 1);
      const bool speaks = !flag.empty() && !meets(spec, info.when, 1);
      EXPECT_ERROR(model.bind(), name.c_str(), "is in the weights",
                   speaks ? std::string(flag).c_str() : "uses it");
      ++tried;
    }
  }
  EXPECT_GT(tried, 60u);
}

TEST(WeightTable, EveryRowIsWhole) {
  std::set<std::string_view> labels;
  for (const WeightInfo& info : weight_table()) {
    EXPECT_TRUE(labels.insert(info.label).second) << info.label;
    const bool in_spec = info.kind == WeightKind::kRopeFactors || info.kind == WeightKind::kNumber;
    // GGUF files hold the parts of what some folders fuse.
    const bool parts_only = !info.fused_parts().empty() && !weight_info(info.fused_parts()[0]).gguf.empty();
    // And those of all residual streams as one.
    const bool stacked = info.when == WeightCondition::kAltupOthers;
    EXPECT_EQ(info.gguf.empty() && !parts_only, info.kind == WeightKind::kNumber) << info.label;
    EXPECT_EQ(info.stage == Stage::kNone, in_spec) << info.label;
    EXPECT_NE(info.fused_parts().empty(), info.shape[0] == Size::kNone) << info.label;
    EXPECT_FALSE(weight_reason(info.role).empty()) << info.label;
    if (!info.hugging_face.empty() && !info.gguf.empty()) {
      EXPECT_EQ(info.hugging_face.contains("{}"), info.gguf.contains("{}") || stacked) << info.label;
    }
    for (const WeightRole part : info.fused_parts()) EXPECT_EQ(weight_info(part).kind, info.kind);
  }
}

TEST(WeightTable, NamesAreFoundAgain) {
  for (const NameStyle style : {NameStyle::kHuggingFace, NameStyle::kGguf}) {
    constexpr WeightRole kAll[] = {WeightRole::kRopeDivisors, WeightRole::kRopeLongFactors,
                                   WeightRole::kRopeShortFactors};
    const WeightNames names{.style = style, .own = {}, .rope_factors = kAll};
    for (const WeightInfo& info : weight_table()) {
      const int layer = info.per_layer() ? 17 : -1;
      const std::string name = numbered_name(weight_name(names, info.role, layer), 3);
      if (name.empty()) continue;
      const std::vector<NamedWeight> found = find_weights(style, name);
      const int numbered = name.contains("17") ? layer : -1;  // one name stands for a stack
      const auto same = [&](const NamedWeight& n) { return n.info == &info && n.layer == numbered; };
      EXPECT_TRUE(std::ranges::any_of(found, same)) << name;
    }
  }
  for (const char* name : {"", "model.layers..mlp.up_proj.weight", "model.layers.x.mlp.up_proj.weight",
                           "model.layers.-1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight.more",
                           "model.layers.99999999999.mlp.up_proj.weight", "more.lm_head.weight"}) {
    EXPECT_TRUE(find_weights(NameStyle::kHuggingFace, name).empty()) << name;
  }
  for (const char* name : {"model.language_model.layers.3.self_attn.q_proj.bias",
                           "language_model.model.layers.3.self_attn.q_proj.bias"}) {
    ASSERT_EQ(find_weights(NameStyle::kHuggingFace, name).size(), 1u) << name;
    EXPECT_EQ(find_weights(NameStyle::kHuggingFace, name)[0].layer, 3);
  }
  // A norm before the feed-forward in most families, a norm after attention in Gemma.
  EXPECT_EQ(find_weights(NameStyle::kHuggingFace, "model.layers.0.post_attention_layernorm.weight").size(),
            2u);
}

TEST(WeightTable, ReasonsNameFlagsAndSizes) {
  EXPECT_EQ(weight_reason(WeightRole::kQNorm), "attention.qk_norm = true and head_dim");
  EXPECT_EQ(weight_reason(WeightRole::kDown), "hidden_size and intermediate_size");
  EXPECT_EQ(weight_reason(WeightRole::kQkv),
            "num_attention_heads x head_dim, hidden_size and num_key_value_heads x head_dim");
  EXPECT_EQ(weight_reason(WeightRole::kUpExperts),
            "ffn.experts > 0, num_experts, intermediate_size and hidden_size");
}

// A llama whose feed-forward is four experts, as a GGUF file names them: three dimensions.
struct ExpertModel {
  ModelSpec spec;
  std::map<std::string, TinyTensor> tensors;

  ExpertModel() : spec(*TinyModel("llama").spec()) {
    for (LayerSpec& layer : spec.layers) layer.ffn.experts = 4;
    for (const WeightTensor& tensor : weight_tensors(spec, names()))
      tensors[tensor.name] = random_tensor(tensor.name, tensor.shape, 0, 1);
  }
  static const WeightNames& names() { return family_named("llama")->gguf.weight_names; }
  Result<Weights> bind() const {
    TensorStore store;
    for (const auto& [name, tensor] : tensors) DOPPLER_TRY(store.add(tensor.view(name)));
    return bind_weights(spec, names(), store);
  }
};

TEST(WeightTable, StacksOfExpertsBecomeAMatrixEach) {
  ExpertModel model;
  ASSERT_OK_AND_ASSIGN(const Weights weights, model.bind());
  EXPECT_EQ(weights[weights.find(WeightRole::kGateExperts, 2)].shape, (Shape{48, 32}));
  EXPECT_EQ(weights[weights.find(WeightRole::kDownExperts, 2)].shape, (Shape{32, 48}));
  EXPECT_EQ(weights[weights.find(WeightRole::kRouter, 2)].shape, (Shape{4, 32}));
  EXPECT_EQ(weights.find(WeightRole::kGate, 2), kNoWeight);
  const WeightId up = weights.find(WeightRole::kUpExperts, 0);
  EXPECT_EQ(weights.count(up), 4u);
  EXPECT_EQ(weights[up + 3].name, "blk.0.ffn_up_exps.weight[3]");
  EXPECT_EQ(weights[up + 3].data.data(),
            weights[up].data.data() + 3 * weights[up].data.size());  // a view, not a copy

  ExpertModel missing = model;
  missing.tensors.erase("blk.1.ffn_up_exps.weight");
  EXPECT_ERROR(missing.bind(), "blk.1.ffn_up_exps.weight", "4 x 48 x 32", "missing", "ffn.experts > 0");
  ExpertModel dense = model;
  dense.tensors["blk.1.ffn_gate.weight"] = random_tensor("gate", {48, 32}, 0, 1);
  EXPECT_ERROR(dense.bind(), "blk.1.ffn_gate.weight", "ffn.experts > 0");
  ExpertModel flat = model;
  flat.tensors["blk.0.ffn_up_exps.weight"].shape = {4 * 48, 32};
  EXPECT_ERROR(flat.bind(), "blk.0.ffn_up_exps.weight", "192 x 32", "4 x 48 x 32", "num_experts");
}

TEST(WeightTable, ExpertsWithATensorEachFollowEachOther) {
  ExpertModel model;
  const WeightNames& names = family_named("mixtral")->weight_names;
  std::map<std::string, TinyTensor> tensors;
  for (const WeightTensor& tensor : weight_tensors(model.spec, names))
    tensors[tensor.name] = random_tensor(tensor.name, tensor.shape, 0, 1);
  TensorStore store;
  for (const auto& [name, tensor] : tensors) ASSERT_OK(store.add(tensor.view(name)));
  ASSERT_OK_AND_ASSIGN(const Weights weights, bind_weights(model.spec, names, store));
  const WeightId down = weights.find(WeightRole::kDownExperts, 1);
  ASSERT_EQ(weights.count(down), 4u);
  EXPECT_EQ(weights[down + 2].name, "model.layers.1.block_sparse_moe.experts.2.w2.weight");
  TensorStore short_store;
  tensors.erase("model.layers.1.block_sparse_moe.experts.3.w1.weight");
  for (const auto& [name, tensor] : tensors) ASSERT_OK(short_store.add(tensor.view(name)));
  EXPECT_ERROR(bind_weights(model.spec, names, short_store), "experts.3.w1.weight", "missing");
}

}  // namespace
}  // namespace doppler
