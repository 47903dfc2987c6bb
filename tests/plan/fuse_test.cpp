// Fusion passes: what they rewrite, that nothing they swallow is lost, and that they can be switched off by
// name.
#include "plan/fuse.h"

#include <algorithm>
#include <set>

#include "model_fixture.h"

namespace doppler {
namespace {

using testing::TinyModel;

struct Fused {
  TinyModel model;
  Weights weights;
  Plan plan;
  Status status;

  Fused(const TinyModel& of, std::vector<std::string_view> passes, std::vector<std::string> disabled = {})
      : model(of) {
    auto bound = model.bind();
    auto spec = model.spec();
    if (!bound || !spec) return;
    weights = std::move(*bound);
    plan = *build_plan(*spec, weights, 64);
    status = fuse_plan(plan, weights, passes, disabled);
  }
};

std::size_t count(const Plan& plan, OpKind kind) {
  return static_cast<std::size_t>(
      std::count_if(plan.ops.begin(), plan.ops.end(), [kind](const Op& op) { return op.kind == kind; }));
}

std::set<std::string> readable_stages(const Plan& plan) {
  std::set<std::string> names;
  for (const Op& op : plan.ops) {
    for (const auto* list : {&op.outputs, &op.emits}) {
      for (const ValueId id : *list) names.insert(value_name(plan, id));
    }
  }
  return names;
}

TEST(Fuse, GatedFeedForward) {
  const TinyModel model("gemma3");
  const Fused plain(model, {}), fused(model, {"gated_ffn"});
  ASSERT_OK(fused.status);
  EXPECT_EQ(fused.plan.ops.size(), plain.plan.ops.size() - 2 * 3);
  EXPECT_EQ(count(fused.plan, OpKind::kGatedMatmul), 3u);
  EXPECT_EQ(count(fused.plan, OpKind::kGated), 0u);
  EXPECT_EQ(fused.plan.passes, (std::vector<std::string>{"gated_ffn"}));
  for (const Op& op : fused.plan.ops) {
    if (op.kind != OpKind::kGatedMatmul) continue;
    EXPECT_EQ(op.weights, (std::vector<WeightId>{fused.weights.find(WeightRole::kGate, op.layer),
                                                 fused.weights.find(WeightRole::kUp, op.layer)}));
    ASSERT_EQ(op.emits.size(), 2u);
    EXPECT_EQ(fused.plan.values[op.emits[0]].stage, Stage::kFfnGate);
    EXPECT_EQ(fused.plan.values[op.emits[1]].stage, Stage::kFfnUp);
    EXPECT_EQ(fused.plan.values[op.inputs[0]].stage, Stage::kFfnNormed);
    EXPECT_EQ(std::get<GatedParams>(op.params).activation, Activation::kGeluTanh);
  }
}

TEST(Fuse, GroupedMatmuls) {
  const TinyModel model("qwen2");
  const Fused fused(model, {"group_matmuls"});
  ASSERT_OK(fused.status);
  const auto qkv = std::find_if(fused.plan.ops.begin(), fused.plan.ops.end(),
                                [](const Op& op) { return op.outputs.size() == 3; });
  ASSERT_NE(qkv, fused.plan.ops.end());
  EXPECT_EQ(value_name(fused.plan, qkv->outputs[0]), "layers.0.q_proj");
  EXPECT_EQ(value_name(fused.plan, qkv->outputs[2]), "layers.0.v_proj");
  EXPECT_EQ(qkv->biases, (std::vector<WeightId>{fused.weights.find(WeightRole::kQBias, 0),
                                                fused.weights.find(WeightRole::kKBias, 0),
                                                fused.weights.find(WeightRole::kVBias, 0)}));
  // q k v | o | gate up | down, three times, and the head.
  EXPECT_EQ(count(fused.plan, OpKind::kMatmul), 3u * 4 + 1);
  EXPECT_TRUE(qkv->emits.empty()) << "nothing is swallowed";
}

TEST(Fuse, MixedBiasesStayInPlace) {
  Json config = testing::tiny_config("llama");
  config["mlp_bias"] = true;
  const TinyModel model("llama", config);
  const Fused fused(model, {"gated_ffn"});
  ASSERT_OK(fused.status);
  for (const Op& op : fused.plan.ops) {
    if (op.kind != OpKind::kGatedMatmul) continue;
    EXPECT_EQ(op.biases, (std::vector<WeightId>{fused.weights.find(WeightRole::kGateBias, op.layer),
                                                fused.weights.find(WeightRole::kUpBias, op.layer)}));
  }
}

TEST(Fuse, EveryStageStaysReadable) {
  for (const FamilyRule* rule : all_families()) {
    const TinyModel model{std::string(rule->name)};
    std::vector<std::string_view> all;
    for (const FusionPass& pass : all_fusion_passes()) all.push_back(pass.name);
    const Fused plain(model, {}), fused(model, all);
    ASSERT_OK(fused.status);
    EXPECT_LT(fused.plan.ops.size(), plain.plan.ops.size());
    EXPECT_EQ(readable_stages(fused.plan), readable_stages(plain.plan)) << rule->name;
  }
}

TEST(Fuse, DisabledPassesStayOff) {
  const TinyModel model("llama");
  const Fused fused(model, {"gated_ffn", "group_matmuls"}, {"gated_ffn"});
  ASSERT_OK(fused.status);
  EXPECT_EQ(count(fused.plan, OpKind::kGatedMatmul), 0u);
  EXPECT_EQ(count(fused.plan, OpKind::kGated), 3u);
  EXPECT_EQ(fused.plan.passes, (std::vector<std::string>{"group_matmuls"}));
  const Fused none(model, {"gated_ffn"}, {"gated_ffn"});
  EXPECT_EQ(none.plan.ops.size(), Fused(model, {}).plan.ops.size());
}

TEST(Fuse, AValueWithAnotherReaderIsNotSwallowed) {
  Fused fused(TinyModel("llama"), {});
  ASSERT_OK(fused.status);
  const auto gated = std::find_if(fused.plan.ops.begin(), fused.plan.ops.end(),
                                  [](const Op& op) { return op.kind == OpKind::kGated; });
  // Somebody else reads layer 0's gate as well.
  Op reader{.kind = OpKind::kAdd,
            .layer = 0,
            .inputs = {gated->inputs[0], gated->inputs[0]},
            .outputs = {static_cast<ValueId>(fused.plan.values.size())},
            .weights = {},
            .biases = {},
            .params = {},
            .emits = {}};
  fused.plan.values.push_back({48, 1, Rows::kAll, Stage::kNone, 0});
  fused.plan.ops.insert(gated + 1, reader);
  ASSERT_OK(fuse_plan(fused.plan, fused.weights, std::vector<std::string_view>{"gated_ffn"}, {}));
  EXPECT_EQ(count(fused.plan, OpKind::kGatedMatmul), 2u);
  EXPECT_EQ(count(fused.plan, OpKind::kGated), 1u);
}

TEST(Fuse, UnknownNames) {
  EXPECT_ERROR(Fused(TinyModel("llama"), {}, {"fuse_everything"}).status, "no fusion pass fuse_everything",
               "gated_ffn, group_matmuls");
  EXPECT_ERROR(Fused(TinyModel("llama"), {"fuse_everything"}).status, "no fusion pass fuse_everything");
}

}  // namespace
}  // namespace doppler
