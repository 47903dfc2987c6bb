// check_plan: a plan with one thing wrong never reaches a backend.
#include <functional>

#include "model_fixture.h"
#include "plan/plan.h"

namespace doppler {
namespace {

class CheckPlan : public ::testing::Test {
 protected:
  CheckPlan() : model_("gemma3") {
    auto spec = model_.spec();
    auto weights = model_.bind();
    EXPECT_TRUE(spec && weights);
    weights_ = std::move(*weights);
    auto plan = build_plan(*spec, weights_, 64);
    EXPECT_TRUE(plan.has_value());
    plan_ = std::move(*plan);
  }
  // Index of the op that writes a stage of layer 0, or of no layer.
  std::size_t at(Stage stage) const {
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      if (plan_.values[plan_.ops[i].outputs[0]].stage == stage && plan_.ops[i].layer <= 0) return i;
    }
    ADD_FAILURE() << "no op writes " << stage_name(stage);
    return 0;
  }
  Status with(const std::function<void(Plan&)>& change) const {
    Plan plan = plan_;
    change(plan);
    return check_plan(plan, weights_);
  }
  Status with(Stage stage, const std::function<void(Op&)>& change) const {
    return with([&](Plan& plan) { change(plan.ops[at(stage)]); });
  }
  Value& out(Plan& plan, Stage stage) const { return plan.values[plan.ops[at(stage)].outputs[0]]; }

  testing::TinyModel model_;
  Weights weights_;
  Plan plan_;
};

TEST_F(CheckPlan, TheBuildersPlanPasses) {
  ASSERT_OK(check_plan(plan_, weights_));
}

TEST_F(CheckPlan, OrderOfWritingAndReading) {
  EXPECT_ERROR(with([&](Plan& p) { std::swap(p.ops[at(Stage::kQProj)], p.ops[at(Stage::kQNorm)]); }),
               "rms_norm, layer 0", "reads layers.0.q_proj before it is written");
  EXPECT_ERROR(with([&](Plan& p) { p.ops.push_back(p.ops.back()); }), "writes logits_final a second time");
  EXPECT_ERROR(with([&](Plan& p) { p.ops.pop_back(); }), "never writes its logits");
  EXPECT_ERROR(with([&](Plan& p) { p.logits = 100000; }), "never writes its logits");
  EXPECT_ERROR(with([&](Plan& p) { p.ops.clear(); }), "never writes its logits");
  EXPECT_ERROR(with(Stage::kQProj, [](Op& op) { op.inputs = {90000}; }), "reads a value that does not exist");
  EXPECT_ERROR(with(Stage::kQProj, [](Op& op) { op.outputs = {90000}; }),
               "writes a value that does not exist");
}

TEST_F(CheckPlan, EmittedValues) {
  const ValueId scores = plan_.ops[at(Stage::kAttnOut)].emits[0];
  EXPECT_ERROR(with(Stage::kOProj, [&](Op& op) { op.inputs = {scores}; }),
               "reads layers.0.attn_scores before it is written");
  EXPECT_ERROR(with(Stage::kAttnOut, [&](Op& op) { op.emits = {scores, scores}; }),
               "layers.0.attn_scores a second time");
  EXPECT_ERROR(with(Stage::kOProj, [&](Op& op) { op.emits = op.inputs; }), "layers.0.attn_out a second time");
}

TEST_F(CheckPlan, FormOfOps) {
  EXPECT_ERROR(with(Stage::kPostAttn, [](Op& op) { op.inputs.pop_back(); }), "add", "number of inputs");
  EXPECT_ERROR(with(Stage::kQNorm, [](Op& op) { op.weights.push_back(0); }), "rms_norm", "number of weights");
  EXPECT_ERROR(with(Stage::kQRope, [](Op& op) { op.weights = {0}; }), "rope", "number of weights");
  EXPECT_ERROR(with(Stage::kQNorm, [](Op& op) { op.params = std::monostate{}; }),
               "parameters of another kind");
  EXPECT_ERROR(with(Stage::kAttnOut, [](Op& op) { op.params = NormParams{}; }), "parameters of another kind");
  EXPECT_ERROR(with(Stage::kQProj, [](Op& op) { op.outputs.clear(); }), "number of outputs");
  EXPECT_ERROR(with(Stage::kQProj, [](Op& op) { op.weights.push_back(0); }), "one weight per output");
  EXPECT_ERROR(with(Stage::kQProj, [](Op& op) { op.biases = {0, 0}; }), "biases that do not match");
  EXPECT_ERROR(with(Stage::kQProj, [](Op& op) { op.weights = {kNoWeight}; }), "weight that does not exist");
}

TEST_F(CheckPlan, ShapesOfWeights) {
  const auto id = [&](WeightRole role) { return weights_.find(role, 0); };
  EXPECT_ERROR(with(Stage::kQProj, [&](Op& op) { op.weights = {id(WeightRole::kK)}; }), "not output x input");
  EXPECT_ERROR(with(Stage::kOProj, [&](Op& op) { op.weights = {id(WeightRole::kDown)}; }),
               "not output x input");
  EXPECT_ERROR(with(Stage::kAttnNormed, [&](Op& op) { op.weights = {id(WeightRole::kQNorm)}; }),
               "weight of the wrong width");
  EXPECT_ERROR(with(Stage::kQNorm, [&](Op& op) { op.weights = {id(WeightRole::kAttnNorm)}; }),
               "weight of the wrong width");
  EXPECT_ERROR(with(Stage::kEmbedOut, [&](Op& op) { op.weights = {id(WeightRole::kQ)}; }),
               "embedding of the wrong shape");
  EXPECT_ERROR(with(Stage::kQProj, [&](Op& op) { op.biases = {id(WeightRole::kQNorm)}; }),
               "bias of the wrong width");
  EXPECT_ERROR(with(Stage::kQProj, [&](Op& op) { op.biases = {90000}; }), "bias of the wrong width");
}

TEST_F(CheckPlan, Widths) {
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kQProj).width = 40; }), "not output x input");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kQNorm).width = 40; }), "changes the width");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kQNorm).heads = 3; }), "changes the width");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kQNorm).heads = 0; }), "of no heads");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kPostAttn).width = 40; }), "different widths");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kFfnAct).width = 40; }), "different widths");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kQRope).heads = 8; }), "more dims than a head has");
  EXPECT_ERROR(with(Stage::kQRope, [](Op& op) { op.params = RopeParams{.table = 9}; }),
               "rope table that does not exist");
  EXPECT_ERROR(with([](Plan& p) { p.vocab_size = 65; }), "embedding of the wrong shape");
}

TEST_F(CheckPlan, Attention) {
  const auto attention = [&](const std::function<void(AttentionParams&)>& change) {
    return with(Stage::kAttnOut, [&](Op& op) { change(std::get<AttentionParams>(op.params)); });
  };
  EXPECT_ERROR(attention([](auto& a) { a.heads = 8; }), "heads that do not match");
  EXPECT_ERROR(attention([](auto& a) { a.kv_heads = 0; }), "heads that do not match");
  EXPECT_ERROR(attention([](auto& a) { a.head_dim = 0; }), "heads that do not match");
  EXPECT_ERROR(attention([](auto& a) { a.heads = 0x20000004; }),
               "heads that do not match");  // 2^32 and a little
  EXPECT_ERROR(attention([](auto& a) { a.window = 9; }), "does not match its layer in the cache");
  EXPECT_ERROR(with(Stage::kAttnOut, [](Op& op) { op.layer = 3; }), "no layer in the cache");
  EXPECT_ERROR(with(Stage::kAttnOut, [](Op& op) { op.layer = -1; }), "no layer in the cache");
  EXPECT_ERROR(with([](Plan& p) { p.kv_layers[0].head_dim = 4; }), "does not match its layer in the cache");
}

TEST_F(CheckPlan, RowsOfTokens) {
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kEmbedOut).rows = Rows::kWanted; }), "changes which tokens");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kQProj).rows = Rows::kWanted; }), "changes which tokens");
  EXPECT_ERROR(with([&](Plan& p) { out(p, Stage::kPreFinalNorm).rows = Rows::kAll; }), "select",
               "changes which tokens");
  EXPECT_ERROR(with([&](Plan& p) {
                 const ValueId normed = p.ops[at(Stage::kFinalNorm)].outputs[0],
                               logits = p.ops[at(Stage::kPreFinalNorm)].inputs[0];
                 Op sum{.kind = OpKind::kAdd,
                        .inputs = {normed, logits},
                        .outputs = {static_cast<ValueId>(p.values.size())},
                        .weights = {},
                        .biases = {},
                        .params = AddParams{},
                        .emits = {}};
                 p.values.push_back({32, 1, Rows::kWanted, Stage::kNone, -1});
                 p.ops.push_back(sum);
               }),
               "rows for different tokens");
  EXPECT_ERROR(with([&](Plan& p) { p.logits = p.ops[at(Stage::kFinalNorm)].outputs[0]; }),
               "one row of the vocabulary");
}

TEST_F(CheckPlan, NamesOfValues) {
  EXPECT_EQ(value_name(plan_, plan_.ops[at(Stage::kQProj)].outputs[0]), "layers.0.q_proj");
  EXPECT_EQ(value_name(plan_, plan_.logits), "logits_final");
  Plan plan = plan_;
  plan.values.push_back({});
  EXPECT_EQ(value_name(plan, static_cast<ValueId>(plan.values.size() - 1)),
            fmt::format("v{}", plan.values.size() - 1));
}

}  // namespace
}  // namespace doppler
