// One op run again on the oracle, from what a run or a recording has left of its inputs.
#include "diagnosis/compare/op_experiment.h"

#include <cmath>

#include "diagnosis/patient.h"

namespace doppler::diagnosis {
namespace {

using testing::Patient;

double relative_error(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size()) return HUGE_VAL;
  double error = 0, largest = 1e-30;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(got[i]) - expected[i]));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return std::isnan(error) ? HUGE_VAL : error / largest;
}

// A fixture, its plan, and experiments on its recording.
struct Bench {
  explicit Bench(const std::string& family)
      : patient(family),
        plan(*build_plan(patient.spec, patient.weights, 64)),
        rows(patient.recording),
        experiment(plan, patient.weights, rows, 1) {}
  std::size_t op(Stage stage, int layer) const { return experiment.find(stage, layer).value(); }
  // How far the op is from the recording when it runs with the change.
  double error(Stage stage, int layer, const OpChange& change = {}) {
    const auto got = experiment.run(op(stage, layer), change);
    const auto expected = experiment.recorded(op(stage, layer));
    EXPECT_TRUE(got.has_value()) << (got ? "" : got.error().message);
    return got && expected ? relative_error(*got, *expected) : HUGE_VAL;
  }

  Patient patient;
  Plan plan;
  RecordedRows rows;
  OpExperiment experiment;
};

TEST(OpExperiment, EveryOpOfEveryFamilyComputesWhatTransformersDid) {
  for (const char* family : {"llama", "llama3", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"}) {
    Bench bench(family);
    for (std::size_t op = 0; op < bench.plan.ops.size(); ++op) {
      const auto got = bench.experiment.run(op);
      ASSERT_OK(got);
      ASSERT_OK_AND_ASSIGN(const auto expected, bench.experiment.recorded(op));
      // One op alone; gemma2's softcapped scores are float32 in transformers, and tanh is steep.
      EXPECT_LT(relative_error(*got, expected), 5e-6)
          << family << " " << value_name(bench.plan, bench.plan.ops[op].outputs[0]);
    }
  }
}

TEST(OpExperiment, ACapturedRunGivesItsOwnBits) {
  for (const char* family : {"gemma3", "phi3"}) {
    const Patient patient(family);
    ASSERT_OK_AND_ASSIGN(const auto backend, patient.backend());
    CapturedRows rows;
    backend->clear(0);
    ASSERT_OK(feed(*backend, 0, patient.recording.prompt_ids, 7, true, &rows));
    EXPECT_EQ(std::vector(rows.ids().begin(), rows.ids().end()), patient.recording.prompt_ids);
    OpExperiment experiment(backend->plan(), patient.weights, rows);
    for (std::size_t op = 0; op < backend->plan().ops.size(); ++op) {
      ASSERT_OK_AND_ASSIGN(const auto got, experiment.run(op));
      ASSERT_OK_AND_ASSIGN(const auto seen, experiment.recorded(op));
      EXPECT_EQ(got, seen) << family << " "
                           << value_name(backend->plan(), backend->plan().ops[op].outputs[0]);
    }
  }
}

TEST(OpExperiment, ChangedParameters) {
  Bench bench("gemma3");
  EXPECT_GT(
      bench.error(Stage::kKNorm, 0, [](OpSetup& s) { std::get<NormParams>(s.params).weight_offset = 0; }),
      0.1);
  EXPECT_GT(bench.error(Stage::kQRope, 0,
                        [](OpSetup& s) { std::get<RopeParams>(s.params).layout = RopeLayout::kInterleaved; }),
            0.1);
  EXPECT_GT(bench.error(Stage::kQRope, 0, [](OpSetup& s) { s.positions.assign(s.tokens(), 3); }), 0.1);
  EXPECT_GT(bench.error(Stage::kQRope, 0,
                        [](OpSetup& s) {
                          for (double& f : s.rope.inverse_frequency) f *= 0.5;
                        }),
            0.1);
  EXPECT_GT(bench.error(Stage::kEmbedOut, -1, [](OpSetup& s) { std::get<EmbedParams>(s.params).scale = 1; }),
            0.1);
  EXPECT_GT(bench.error(Stage::kEmbedOut, -1, [](OpSetup& s) { std::swap(s.ids[0], s.ids[1]); }), 0.1);
}

TEST(OpExperiment, ChangedAttention) {
  Bench bench("gemma3");
  const auto params = [](OpSetup& s) -> AttentionParams& { return std::get<AttentionParams>(s.params); };
  // The keys are so large that a token leans on few of them: small changes move few values, but those far.
  EXPECT_GT(bench.error(Stage::kAttnOut, 0, [&](OpSetup& s) { params(s).window = 7; }), 1e-3);
  EXPECT_GT(bench.error(Stage::kAttnOut, 0, [&](OpSetup& s) { params(s).scale *= 2; }), 1e-3);
  EXPECT_GT(bench.error(Stage::kAttnOut, 0,
                        [](OpSetup& s) { s.sees = [](std::size_t, std::size_t) { return true; }; }),
            1e-2);
  // What the params say anyway, said otherwise.
  EXPECT_EQ(bench.error(Stage::kAttnOut, 0), bench.error(Stage::kAttnOut, 0, [&](OpSetup& s) {
    const std::size_t window = params(s).window, heads = params(s).heads;
    s.sees = [window](std::size_t token, std::size_t p) { return p <= token && p + window > token; };
    for (std::size_t h = 0; h < heads; ++h) {
      s.head_map.push_back(static_cast<std::uint32_t>(h / (heads / params(s).kv_heads)));
    }
  }));
}

TEST(OpExperiment, ChangedHeads) {
  Bench bench("llama");
  const auto map_by = [](auto&& function) {
    return [function](OpSetup& s) {
      const auto& a = std::get<AttentionParams>(s.params);
      for (std::uint32_t h = 0; h < a.heads; ++h) s.head_map.push_back(function(h, a));
    };
  };
  EXPECT_LT(bench.error(Stage::kAttnOut, 0, map_by([](std::uint32_t h, const AttentionParams& a) {
                          return h / (a.heads / a.kv_heads);
                        })),
            5e-6);
  EXPECT_GT(bench.error(Stage::kAttnOut, 0,
                        map_by([](std::uint32_t h, const AttentionParams& a) { return h % a.kv_heads; })),
            1e-2);
}

TEST(OpExperiment, ChangedWeightsAndInputs) {
  Bench bench("qwen2");
  EXPECT_GT(bench.error(Stage::kQProj, 1, [](OpSetup& s) { s.biases.clear(); }), 1e-2);
  const auto negate = [](OpSetup& s) {
    auto weight = s.read_weight();
    ASSERT_OK(weight);
    for (float& w : *weight) w = -w;
    s.set_weight(s.weights[0].shape, *weight);
  };
  EXPECT_GT(bench.error(Stage::kOProj, 1, negate), 1.9);
  EXPECT_LT(bench.error(Stage::kOProj, 1,
                        [&](OpSetup& s) {
                          negate(s);
                          for (float& x : s.inputs[0].data) x = -x;
                        }),
            5e-6);
  EXPECT_GT(bench.error(Stage::kFfnAct, 0, [](OpSetup& s) { std::swap(s.inputs[0], s.inputs[1]); }), 1e-2);
  EXPECT_GT(
      bench.error(Stage::kPostAttn, 0,
                  [](OpSetup& s) { std::fill(s.inputs[0].data.begin(), s.inputs[0].data.end(), 0.0f); }),
      1e-2);
}

// A copy outlives the setup that it was made of, with its replaced weights.
TEST(OpExperiment, SetupsCanBeCopied) {
  Bench bench("qwen2");
  OpSetup copy;
  {
    auto setup = bench.experiment.setup(bench.op(Stage::kOProj, 0));
    ASSERT_OK(setup);
    setup->set_weight(setup->weights[0].shape, *setup->read_weight());
    copy = *setup;
  }
  ASSERT_OK_AND_ASSIGN(const auto got, bench.experiment.run(copy));
  EXPECT_LT(relative_error(got, *bench.experiment.recorded(bench.op(Stage::kOProj, 0))), 5e-6);
}

// A recording without some stages.
class SomeRows final : public StageRows {
 public:
  SomeRows(const Recording& recording, std::vector<std::string> without)
      : all_(recording), without_(std::move(without)) {}
  std::span<const std::int32_t> ids() const override { return all_.ids(); }
  const TensorView* find(const std::string& key) const override {
    return std::find(without_.begin(), without_.end(), key) == without_.end() ? all_.find(key) : nullptr;
  }

 private:
  RecordedRows all_;
  std::vector<std::string> without_;
};

TEST(OpExperiment, SaysWhatIsNotRecorded) {
  Bench bench("gemma3");
  const SomeRows rows(bench.patient.recording, {"layers.1.k_rope", "layers.1.v_proj"});
  OpExperiment experiment(bench.plan, bench.patient.weights, rows);
  const std::size_t attention = bench.op(Stage::kAttnOut, 1);
  EXPECT_EQ(experiment.missing(attention), (std::vector<std::string>{"layers.1.k_rope", "layers.1.v_proj"}));
  EXPECT_ERROR(experiment.run(attention), "attention attn_out", "layer 1",
               "layers.1.k_rope, layers.1.v_proj");
  EXPECT_ERROR(experiment.recorded(bench.op(Stage::kVProj, 1)), "layers.1.v_proj is not recorded");
  EXPECT_TRUE(experiment.missing(bench.op(Stage::kAttnOut, 0)).empty());
}

// The same values under other names: the stream that enters a layer, uncapped logits.
TEST(OpExperiment, FindsStagesUnderTheirOtherNames) {
  Bench bench("gemma3");
  const SomeRows rows(bench.patient.recording, {"embed_out", "layers.0.layer_out", "layers.1.attn_input",
                                                "layers.2.attn_input", "layers.5.layer_out", "logits"});
  OpExperiment experiment(bench.plan, bench.patient.weights, rows);
  for (const auto& [stage, layer] : {std::pair{Stage::kEmbedOut, -1},
                                     {Stage::kAttnInput, 2},
                                     {Stage::kLayerOut, 5},
                                     {Stage::kLogits, -1}}) {
    ASSERT_OK_AND_ASSIGN(const auto got, rows.read(bench.plan, stage, layer));
    EXPECT_EQ(got, *bench.rows.read(bench.plan, stage, layer)) << stage_key(stage, layer);
  }
  EXPECT_EQ(experiment.missing(bench.op(Stage::kAttnNormed, 1)),
            std::vector<std::string>{"layers.0.layer_out"});
  EXPECT_TRUE(experiment.missing(bench.op(Stage::kAttnNormed, 2)).empty());
}

TEST(OpExperiment, ChangesThatFitNothing) {
  Bench bench("gemma3");
  const auto refused = [&](Stage stage, const OpChange& change) {
    return bench.experiment.run(bench.op(stage, stage == Stage::kEmbedOut ? -1 : 0), change);
  };
  // Tokens beyond a table read its first row: per-layer tables may hold fewer than the vocabulary.
  EXPECT_TRUE(refused(Stage::kEmbedOut, [](OpSetup& s) { s.ids[3] = 256; }).has_value());
  EXPECT_ERROR(refused(Stage::kEmbedOut, [](OpSetup& s) { s.ids[3] = -1; }), "the id -1 has no row");
  EXPECT_ERROR(refused(Stage::kAttnOut, [](OpSetup& s) { s.positions[3] = 20; }), "position 20 has no key");
  EXPECT_ERROR(refused(Stage::kAttnOut, [](OpSetup& s) { s.head_map = {0, 9, 0, 0}; }), "does not exist");
  EXPECT_ERROR(refused(Stage::kAttnOut, [](OpSetup& s) { std::get<AttentionParams>(s.params).heads = 3; }),
               "heads do not match");
  EXPECT_ERROR(refused(Stage::kAttnOut, [](OpSetup& s) { s.inputs[2].data.resize(32); }), "differ in number");
  EXPECT_ERROR(refused(Stage::kQProj, [](OpSetup& s) { s.set_weight({96, 96}, std::vector<float>(4)); }),
               "bytes do not fill");
  EXPECT_ERROR(refused(Stage::kQProj, [](OpSetup& s) { s.set_weight({1, 1}, {1}); }), "output x input");
  static constexpr float kTwo[] = {1, 2};
  const TensorView short_bias{"bias", DType::kF32, {2}, std::as_bytes(std::span(kTwo))};
  EXPECT_ERROR(refused(Stage::kQProj, [&](OpSetup& s) { s.biases = {short_bias}; }), "bias");
  EXPECT_ERROR(refused(Stage::kQNorm, [](OpSetup& s) { s.set_weight({1}, {1}); }), "as wide as a head");
  EXPECT_ERROR(refused(Stage::kQNorm, [](OpSetup& s) { s.heads = 7; }), "do not divide");
  EXPECT_ERROR(refused(Stage::kQNorm, [](OpSetup& s) { s.params = MatmulParams{}; }), "of another kind");
  EXPECT_ERROR(refused(Stage::kQNorm, [](OpSetup& s) { s.inputs.clear(); }), "number of inputs");
  EXPECT_ERROR(refused(Stage::kQNorm, [](OpSetup& s) { s.inputs[0].data.pop_back(); }), "one row per token");
  EXPECT_ERROR(refused(Stage::kQRope, [](OpSetup& s) { s.rope.inverse_frequency.resize(99); }), "more dims");
  EXPECT_ERROR(refused(Stage::kQRope, [](OpSetup& s) { s.positions.pop_back(); }), "differ in number");
  EXPECT_ERROR(refused(Stage::kQNorm, [](OpSetup& s) { s.kind = OpKind::kCount; }), "cannot run");
}

}  // namespace
}  // namespace doppler::diagnosis
