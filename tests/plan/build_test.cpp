// The builder turns a spec into the stages of DESIGN section 4, in order, for every family.
#include "model_fixture.h"
#include "plan/plan.h"

namespace doppler {
namespace {

using testing::TinyModel;

Result<Plan> plan_of(const TinyModel& model) {
  DOPPLER_ASSIGN(const ModelSpec spec, model.spec());
  DOPPLER_ASSIGN(const Weights weights, model.bind());
  return build_plan(spec, weights, 64);
}

// Stage names in the order in which they are written; emitted ones in brackets.
std::string stages(const Plan& plan, int layer) {
  std::string text;
  for (const Op& op : plan.ops) {
    if (op.layer != layer) continue;
    for (const ValueId id : op.emits) text += fmt::format("[{}] ", stage_name(plan.values[id].stage));
    for (const ValueId id : op.outputs) text += fmt::format("{} ", stage_name(plan.values[id].stage));
  }
  return text;
}

const Op& op_writing(const Plan& plan, Stage stage, int layer) {
  for (const Op& op : plan.ops) {
    for (const ValueId id : op.outputs) {
      if (plan.values[id].stage == stage && plan.values[id].layer == layer) return op;
    }
  }
  ADD_FAILURE() << "nothing writes " << stage_key(stage, layer);
  return plan.ops[0];
}

TEST(BuildPlan, StagesOfEachFamily) {
  const std::string two_norms =
      "attn_normed q_proj k_proj v_proj q_rope k_rope [attn_scores] attn_out o_proj post_attn "
      "ffn_normed ffn_gate ffn_up ffn_act ffn_out layer_out ";
  const std::string qk_norms =
      "attn_normed q_proj k_proj v_proj q_norm k_norm q_rope k_rope [attn_scores] attn_out o_proj post_attn "
      "ffn_normed ffn_gate ffn_up ffn_act ffn_out layer_out ";
  const std::string sandwich =
      "attn_normed q_proj k_proj v_proj q_rope k_rope [attn_scores] attn_out o_proj post_attn_norm post_attn "
      "ffn_normed ffn_gate ffn_up ffn_act ffn_out post_ffn_norm layer_out ";
  const std::string everything =
      "attn_normed q_proj k_proj v_proj q_norm k_norm q_rope k_rope [attn_scores] attn_out o_proj "
      "post_attn_norm "
      "post_attn ffn_normed ffn_gate ffn_up ffn_act ffn_out post_ffn_norm layer_out ";
  const std::pair<const char*, std::string> families[] = {
      {"llama", two_norms}, {"mistral", two_norms}, {"qwen2", two_norms},  {"phi3", two_norms},
      {"qwen3", qk_norms},  {"gemma2", sandwich},   {"gemma3", everything}};
  for (const auto& [family, expected] : families) {
    const TinyModel model(family);
    ASSERT_OK_AND_ASSIGN(const Plan plan, plan_of(model));
    for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(stages(plan, layer), expected) << family;
    EXPECT_EQ(stages(plan, -1), "embed_out pre_final_norm final_norm logits logits_final ") << family;
    EXPECT_EQ(plan.ops.front().kind, OpKind::kEmbed);
    EXPECT_EQ(plan.ops.back().outputs[0], plan.logits);
    EXPECT_EQ(plan.vocab_size, 64u);
    EXPECT_TRUE(plan.passes.empty());
  }
}

TEST(BuildPlan, StagesComeInTheOrderOfTheTable) {
  const TinyModel model("gemma3");
  ASSERT_OK_AND_ASSIGN(const Plan plan, plan_of(model));
  for (int layer = 0; layer < 3; ++layer) {
    Stage last = Stage::kNone;
    for (const Op& op : plan.ops) {
      if (op.layer != layer) continue;
      EXPECT_LT(last, plan.values[op.outputs[0]].stage);
      last = plan.values[op.outputs[0]].stage;
    }
  }
}

TEST(BuildPlan, CarriesTheSpecsNumbers) {
  const TinyModel model("gemma3");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, model.spec());
  ASSERT_OK_AND_ASSIGN(const Plan plan, plan_of(model));
  EXPECT_EQ(std::get<EmbedParams>(plan.ops[0].params).scale, spec.embedding_scale);
  for (const Stage norm : {Stage::kAttnNormed, Stage::kQNorm, Stage::kKNorm, Stage::kPostAttnNorm,
                           Stage::kFfnNormed, Stage::kPostFfnNorm}) {
    const auto& params = std::get<NormParams>(op_writing(plan, norm, 1).params);
    EXPECT_EQ(params.weight_offset, 1) << stage_name(norm);
    EXPECT_EQ(params.eps, 1e-6);
  }
  EXPECT_EQ(std::get<NormParams>(op_writing(plan, Stage::kFinalNorm, -1).params).weight_offset, 1);
  const auto window = [&](int layer) {
    return std::get<AttentionParams>(op_writing(plan, Stage::kAttnOut, layer).params).window;
  };
  EXPECT_EQ(window(0), 4u);
  EXPECT_EQ(window(1), 0u);
  ASSERT_EQ(plan.kv_layers.size(), 3u);
  EXPECT_EQ(plan.kv_layers[0].window, 4u);
  EXPECT_EQ(plan.kv_layers[1].window, 0u);
  EXPECT_EQ(plan.kv_layers[0].kv_heads, 2u);
  EXPECT_EQ(std::get<GatedParams>(op_writing(plan, Stage::kFfnAct, 0).params).activation,
            Activation::kGeluTanh);
  // Two thetas, two tables; queries and keys of a layer share one.
  ASSERT_EQ(plan.rope_tables.size(), 2u);
  const auto table = [&](Stage stage, int layer) {
    return std::get<RopeParams>(op_writing(plan, stage, layer).params).table;
  };
  EXPECT_EQ(table(Stage::kQRope, 0), table(Stage::kKRope, 2));
  EXPECT_NE(table(Stage::kQRope, 0), table(Stage::kQRope, 1));
}

TEST(BuildPlan, BiasesGoWhereTheModelHasThem) {
  const TinyModel qwen("qwen2");
  ASSERT_OK_AND_ASSIGN(const Plan plan, plan_of(qwen));
  for (const Stage stage : {Stage::kQProj, Stage::kKProj, Stage::kVProj}) {
    EXPECT_EQ(op_writing(plan, stage, 0).biases.size(), 1u);
  }
  for (const Stage stage : {Stage::kOProj, Stage::kFfnGate, Stage::kFfnOut}) {
    EXPECT_TRUE(op_writing(plan, stage, 0).biases.empty());
  }
  Json config = testing::tiny_config("llama");
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const TinyModel llama("llama", config);
  ASSERT_OK_AND_ASSIGN(const Plan all, plan_of(llama));
  for (const Stage stage : {Stage::kQProj, Stage::kOProj, Stage::kFfnGate, Stage::kFfnUp, Stage::kFfnOut}) {
    EXPECT_EQ(op_writing(all, stage, 2).biases.size(), 1u) << stage_name(stage);
  }
}

TEST(BuildPlan, HeadAndEmbeddingShareATiedWeight) {
  const TinyModel tied("gemma2"), untied("llama");
  ASSERT_OK_AND_ASSIGN(const Plan shared, plan_of(tied));
  EXPECT_EQ(op_writing(shared, Stage::kLogits, -1).weights, shared.ops[0].weights);
  EXPECT_EQ(std::get<SoftcapParams>(shared.ops.back().params).cap, 30);
  ASSERT_OK_AND_ASSIGN(const Plan separate, plan_of(untied));
  EXPECT_NE(op_writing(separate, Stage::kLogits, -1).weights, separate.ops[0].weights);
  EXPECT_EQ(std::get<SoftcapParams>(separate.ops.back().params).cap, 0);
}

TEST(Stages, NamesGoBothWays) {
  for (const StageInfo& info : all_stages()) {
    EXPECT_EQ(stage_from_name(info.name), info.stage);
    EXPECT_EQ(stage_name(info.stage), info.name);
    EXPECT_EQ(&stage_info(info.stage), &info) << "the table stands in the order of the enum";
    EXPECT_FALSE(info.meaning.empty());
    const std::string key = info.per_layer ? "layers.7." + std::string(info.name) : std::string(info.name);
    EXPECT_EQ(stage_key(info.stage, 7), key);
  }
  EXPECT_EQ(all_stages().size(), static_cast<std::size_t>(Stage::kCount) - 1);
}

TEST(Stages, AliasAndUnknownNames) {
  EXPECT_EQ(stage_from_name("ffn_in"), Stage::kFfnNormed);
  for (const char* name : {"", "ffn", "Q_proj", "q_proj ", "layers.0.q_proj", "kNone"}) {
    EXPECT_EQ(stage_from_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace doppler
