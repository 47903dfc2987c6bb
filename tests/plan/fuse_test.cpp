// Fusion passes: what they rewrite, that nothing they swallow is lost, and that they can be switched off by
// name.
#include "plan/fuse.h"

#include <algorithm>
#include <functional>
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
      for (const ValueId id : *list) {
        if (plan.values[id].stage != Stage::kNone) names.insert(value_name(plan, id));
      }
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
    // A layer of Mamba alone has one product that reads its norm, and nothing to join.
    if (!rule->name.starts_with("mamba")) {
      EXPECT_LT(fused.plan.ops.size(), plain.plan.ops.size()) << rule->name;
    }
    // Of latent attention, keys and values as heads have them are for those who look at the whole plan.
    std::set<std::string> readable = readable_stages(plain.plan);
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, model.spec());
    for (int layer = 0; spec.layers[0].attention.is_latent() && layer < 3; ++layer) {
      for (const Stage stage : {Stage::kKProj, Stage::kVProj, Stage::kKRope})
        readable.erase(stage_key(stage, layer));
    }
    EXPECT_EQ(readable_stages(fused.plan), readable) << rule->name;
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
            .params = AddParams{},
            .emits = {}};
  fused.plan.values.push_back({48, 1, Rows::kAll, Stage::kNone, 0});
  fused.plan.ops.insert(gated + 1, reader);
  ASSERT_OK(fuse_plan(fused.plan, fused.weights, std::vector<std::string_view>{"gated_ffn"}, {}));
  EXPECT_EQ(count(fused.plan, OpKind::kGatedMatmul), 2u);
  EXPECT_EQ(count(fused.plan, OpKind::kGated), 1u);
}

// The stages of the ops of each group, so that groups can be read as text.
std::vector<std::string> groups_of(const Plan& plan, std::vector<std::string_view> passes,
                                   const std::function<bool(const OpGroup&)>& takes) {
  std::vector<std::string> texts;
  std::size_t next = 0;
  const auto groups = group_ops(
      plan, passes, [&](const OpGroup& group) -> Result<bool> { return group.pass.empty() || takes(group); });
  EXPECT_TRUE(groups.has_value());
  for (const OpGroup& group : *groups) {
    EXPECT_EQ(group.first, next) << "groups follow each other";
    next = group.first + group.count;
    std::string text(group.pass);
    for (std::size_t i = group.first; i < next; ++i)
      text += fmt::format(" {}", stage_name(plan.values[plan.ops[i].outputs[0]].stage));
    texts.push_back(std::move(text));
  }
  EXPECT_EQ(next, plan.ops.size()) << "together they are the plan";
  return texts;
}

constexpr std::string_view kDecodePasses[] = {kPassGroupMatmuls, kPassDecodeAttention, kPassDecodeHead,
                                              kPassDecodeProduct};
const std::vector<std::string_view> kDecodeGroups = {kPassDecodeAttention, kPassDecodeHead,
                                                     kPassDecodeProduct};

TEST(Groups, OfATokenAreFiveKernelsALayer) {
  Fused fused(TinyModel("gemma3"), {std::begin(kDecodePasses), std::end(kDecodePasses)});
  ASSERT_OK(fused.status);
  const std::vector<std::string> texts =
      groups_of(fused.plan, kDecodeGroups, [](const OpGroup&) { return true; });
  ASSERT_EQ(texts.size(), 1u + 3 * 4 + 1);
  EXPECT_EQ(texts[0], " embed_out");
  EXPECT_EQ(texts[1], "decode_product attn_normed q_proj");
  EXPECT_EQ(texts[2], "decode_attention q_norm k_norm q_rope k_rope attn_out o_proj");
  EXPECT_EQ(texts[3], "decode_product post_attn_norm post_attn ffn_normed ffn_gate ffn_act");
  EXPECT_EQ(texts[4], " ffn_out");
  EXPECT_EQ(texts[5], "decode_product post_ffn_norm layer_out attn_normed q_proj");
  EXPECT_EQ(texts.back(),
            "decode_head post_ffn_norm layer_out pre_final_norm final_norm logits logits_final");
}

TEST(Groups, OfExpertsAreTheirChoiceAndTheirProducts) {
  const std::vector<std::string_view> passes = {kPassDecodeRoute, kPassDecodeExperts};
  Fused fused(TinyModel("mixtral"), {kPassGroupMatmuls, kPassDecodeRoute, kPassDecodeExperts});
  ASSERT_OK(fused.status);
  const auto count = [](const std::vector<std::string>& texts, std::string_view text) {
    return std::count(texts.begin(), texts.end(), text);
  };
  const auto all = [](const OpGroup&) { return true; };
  std::vector<std::string> texts = groups_of(fused.plan, passes, all);
  const auto layers = static_cast<std::ptrdiff_t>(fused.plan.kv_layers.size());
  EXPECT_EQ(count(texts, "decode_route router_ids router_weights"), layers);
  EXPECT_EQ(count(texts, "decode_experts ffn_gate ffn_act ffn_experts ffn_out"), layers);
  // Whoever else reads the activations needs them in memory.
  const auto gated = std::ranges::find(fused.plan.ops, OpKind::kGated, &Op::kind);
  const auto select = std::ranges::find(fused.plan.ops, OpKind::kSelect, &Op::kind);
  select->inputs[0] = gated->outputs[0];
  texts = groups_of(fused.plan, passes, all);
  EXPECT_EQ(count(texts, "decode_experts ffn_gate ffn_act ffn_experts ffn_out"), layers - 1);
}

TEST(Groups, OfADeltaRuleAreWhatItReadsAndTheNormOfWhatItGives) {
  const std::vector<std::string_view> passes = {kPassDecodeDelta, kPassDecodeGatedNorm};
  Fused fused(TinyModel("qwen3_5"), {kPassGroupMatmuls, kPassDecodeDelta, kPassDecodeGatedNorm});
  ASSERT_OK(fused.status);
  const auto count_of = [&](std::string_view pass) {
    const auto groups = group_ops(fused.plan, passes, [](const OpGroup&) -> Result<bool> { return true; });
    EXPECT_TRUE(groups.has_value());
    return std::ranges::count(*groups, pass, &OpGroup::pass);
  };
  const auto layers = static_cast<std::ptrdiff_t>(count(fused.plan, OpKind::kDeltaRule));
  ASSERT_GT(layers, 0);
  EXPECT_EQ(count_of(kPassDecodeDelta), layers);
  EXPECT_EQ(count_of(kPassDecodeGatedNorm), layers);
  // Whoever else reads the columns before their norm needs them in memory, and so the norm before its gate.
  const auto select = std::ranges::find(fused.plan.ops, OpKind::kSelect, &Op::kind);
  const auto columns = std::ranges::find(fused.plan.ops, OpKind::kColumns, &Op::kind);
  select->inputs[0] = columns->outputs[0];
  EXPECT_EQ(count_of(kPassDecodeDelta), layers - 1);
  const auto rule = std::ranges::find(fused.plan.ops, OpKind::kDeltaRule, &Op::kind);
  select->inputs[0] = (rule + 1)->outputs[0];
  EXPECT_EQ(count_of(kPassDecodeGatedNorm), layers - 1);
}

TEST(Groups, ThatAreNotTakenBecomeSmaller) {
  Fused fused(TinyModel("gemma3"), {std::begin(kDecodePasses), std::end(kDecodePasses)});
  ASSERT_OK(fused.status);
  const std::vector<std::string> texts = groups_of(fused.plan, kDecodeGroups, [](const OpGroup& group) {
    return !group.has(Part::kPostNorm) && !group.has(Part::kQNorm);
  });
  EXPECT_EQ(texts[2], " q_norm");
  EXPECT_EQ(texts[3], " k_norm");
  EXPECT_EQ(texts[4], "decode_attention q_rope k_rope attn_out o_proj");
  EXPECT_EQ(texts[5], " post_attn_norm");
  EXPECT_EQ(texts[6], "decode_product post_attn ffn_normed ffn_gate ffn_act");
}

TEST(Groups, HaveOnlyWhatTheirKernelsCanSwallow) {
  const auto texts_of = [](const std::function<void(Plan&)>& change) {
    Fused fused(TinyModel("gemma3"), {std::begin(kDecodePasses), std::end(kDecodePasses)});
    change(fused.plan);
    return groups_of(fused.plan, kDecodeGroups, [](const OpGroup&) { return true; });
  };
  const auto op = [](Plan& plan, Stage stage) -> Op& {
    return *std::find_if(plan.ops.begin(), plan.ops.end(),
                         [&](const Op& o) { return plan.values[o.outputs[0]].stage == stage; });
  };
  const auto has = [](const std::vector<std::string>& texts, std::string_view text) {
    return std::count(texts.begin(), texts.end(), text);
  };
  // Norms that are computed together have one epsilon.
  auto texts = texts_of([&](Plan& p) { std::get<NormParams>(op(p, Stage::kKNorm).params).eps = 0.5; });
  EXPECT_EQ(has(texts, " q_norm"), 1);
  EXPECT_EQ(has(texts, "decode_attention q_rope k_rope attn_out o_proj"), 1);
  texts = texts_of([&](Plan& p) { std::get<NormParams>(op(p, Stage::kPostAttnNorm).params).eps = 0.5; });
  EXPECT_EQ(has(texts, "decode_product post_attn ffn_normed ffn_gate ffn_act"), 1);
  // A kernel turns queries and keys alike.
  texts = texts_of(
      [&](Plan& p) { std::get<RopeParams>(op(p, Stage::kQRope).params).layout = RopeLayout::kInterleaved; });
  EXPECT_EQ(has(texts, " k_rope"), 1);
  EXPECT_EQ(has(texts, "decode_attention attn_out o_proj"), 1);
  // Heads are normed one by one.
  texts = texts_of([&](Plan& p) { p.values[op(p, Stage::kQNorm).outputs[0]].heads = 1; });
  EXPECT_EQ(has(texts, " q_norm"), 1);
  // What another op reads is not swallowed.
  texts = texts_of([&](Plan& p) { op(p, Stage::kFfnNormed).inputs = op(p, Stage::kPostAttnNorm).outputs; });
  EXPECT_EQ(has(texts, " post_attn_norm"), 1);
  // Gate and up in their order, both.
  texts =
      texts_of([&](Plan& p) { std::swap(op(p, Stage::kFfnAct).inputs[0], op(p, Stage::kFfnAct).inputs[1]); });
  EXPECT_EQ(has(texts, "decode_product post_attn_norm post_attn ffn_normed ffn_gate"), 1);
  texts = texts_of([&](Plan& p) { op(p, Stage::kFfnAct).inputs.resize(1); });
  EXPECT_EQ(has(texts, " ffn_act"), 1);
  // The head's kernel adds no bias, and leaves the plan's logits.
  texts = texts_of([&](Plan& p) { op(p, Stage::kLogits).biases = {0}; });
  EXPECT_EQ(texts.back(), " logits_final");
  texts = texts_of([&](Plan& p) { p.logits = op(p, Stage::kLogits).outputs[0]; });
  EXPECT_EQ(texts.back(), " logits_final");
}

TEST(Groups, OfPassesThatAreOffAreOpsAlone) {
  Fused fused(TinyModel("gemma3"), {std::begin(kDecodePasses), std::end(kDecodePasses)},
              {"decode_product", "decode_head"});
  ASSERT_OK(fused.status);
  EXPECT_TRUE(has_pass(fused.plan, "decode_attention"));
  EXPECT_FALSE(has_pass(fused.plan, "decode_product"));
  for (const std::string& text : groups_of(fused.plan, kDecodeGroups, [](const OpGroup&) { return true; }))
    EXPECT_TRUE(text.starts_with(" ") || text.starts_with("decode_attention")) << text;
}

TEST(Fuse, UnknownNames) {
  EXPECT_ERROR(Fused(TinyModel("llama"), {}, {"fuse_everything"}).status, "no fusion pass fuse_everything",
               "gated_ffn, group_matmuls");
  EXPECT_ERROR(Fused(TinyModel("llama"), {"fuse_everything"}).status, "no fusion pass fuse_everything");
}

}  // namespace
}  // namespace doppler
