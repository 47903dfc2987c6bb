// Comparison of any two runs, and what it says of where a difference comes from.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "diagnosis/compare/compare_json.h"
#include "diagnosis/compare/compare_recordings.h"
#include "diagnosis/compare/compare_states.h"
#include "diagnosis/compare/logits_agreement.h"
#include "diagnosis/patient.h"
#include "diagnosis/report/report_text.h"

namespace doppler::diagnosis {
namespace {

using testing::Patient;

const StageComparison& stage_of(const Comparison& comparison, const std::string& key) {
  for (const StageComparison& c : comparison.stages) {
    if (c.key == key) return c;
  }
  ADD_FAILURE() << "no stage " << key;
  return comparison.stages.front();
}

// Layer 2 norms its keys otherwise than the model does.
void change_norm_of_keys(Patient& patient) {
  patient.site().change_plan([](Plan& plan) {
    for (Op& op : plan.ops) {
      if (op.layer == 2 && plan.values[op.outputs[0]].stage == Stage::kKNorm)
        std::get<NormParams>(op.params).weight_offset = 0;
    }
  });
}

// A wrong op of the backend: its own error, told apart from what it passes on.
TEST(Blame, AWrongOpOfTheBackend) {
  const Patient patient("gemma3", [](const TapEvent& event, std::span<float> data) {
    if (event.stage == Stage::kOProj && event.layer == 1) data[3 * event.width + 5] += 0.25f;
  });
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, "layers.1.o_proj");
  EXPECT_EQ(first->disagreement(), Disagreement::kExecution);
  ASSERT_FALSE(first->worst.empty());
  EXPECT_EQ(first->worst[0].token, 3u);
  EXPECT_EQ(first->worst[0].index, 5u);
  EXPECT_NEAR(first->worst[0].found - first->worst[0].expected, 0.25, 1e-4);
  EXPECT_EQ(first->execution->first_bad_token, 3u);
  EXPECT_EQ(first->execution->worst[0].index, 5u);
  EXPECT_GT(first->token_errors[3], 100 * first->token_errors[2]);
  EXPECT_TRUE(first->description->agrees());
  EXPECT_LT(*first->inherited, 1e-5);
  const StageComparison& after = stage_of(*comparison, "layers.2.q_proj");
  EXPECT_TRUE(after.execution->agrees()) << "a right op with wrong inputs";
  EXPECT_EQ(after.disagreement(), Disagreement::kTotal);
  EXPECT_GT(*after.inherited, 0.9 * after.error);
}

// A wrong description: the backend does what it is told, but the recording's own values say otherwise.
TEST(Blame, AWrongDescription) {
  Patient patient("gemma3");
  change_norm_of_keys(patient);
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, "layers.2.k_norm");
  EXPECT_EQ(first->disagreement(), Disagreement::kDescription);
  EXPECT_EQ(first->execution->error, 0);
}

// Far too small for the tolerance of a whole run, but not for one op.
TEST(Blame, AFaultBelowTheTolerance) {
  const Patient patient("gemma3", [](const TapEvent& event, std::span<float> data) {
    if (event.stage == Stage::kFfnUp && event.layer == 0) data[7] *= 1.0005f;
  });
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  ASSERT_NE(comparison->first_divergence(), nullptr);
  EXPECT_EQ(comparison->first_divergence()->key, "layers.0.ffn_up");
}

// What is no stage cannot be compared, but what reads it can: there the fault is told, and not as one of the
// total.
TEST(Blame, AWrongOpWithoutAName) {
  Patient patient("qwen3_next");
  patient.site().run_with([](const BackendOptions&) {
    auto fault = std::make_unique<faults::HookFault>();
    fault->watches = [](Stage stage, int layer) { return stage == Stage::kNone && layer == 0; };
    fault->change = [](const Fault::Computed& computed, Stage, int) {
      computed.data[3] *= 1.01f;
      return true;
    };
    return fault;
  });
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->layer, 0);
  EXPECT_EQ(first->disagreement(), Disagreement::kExecution) << first->key;
  EXPECT_GT(first->execution->unrecorded, 0u);
  const std::vector<std::string> verdict = verdict_of(*comparison);
  EXPECT_TRUE(std::ranges::any_of(verdict, [](const std::string& sentence) {
    return sentence.contains("(or the one before it, which is not recorded)");
  })) << verdict.front();
}

// Between two stages that are recorded, what is not is computed anew: a wrong op there is told at the next
// one.
TEST(Blame, AWrongDescriptionThatIsNotRecorded) {
  Patient patient("gemma3");
  const TensorStore all = patient.recording.tensors;  // keeps the file that the views point into
  patient.recording.tensors = {};
  for (const auto& [name, tensor] : all.tensors()) {
    if (!name.starts_with("layers.2.k_") && !name.starts_with("layers.2.qkv") && name != "layers.2.v_proj")
      ASSERT_OK(patient.recording.tensors.add(tensor));
  }
  const auto healthy = patient.compare();
  ASSERT_OK(healthy);
  EXPECT_TRUE(healthy->agrees()) << healthy->first_divergence()->key;
  for (const StageComparison& c : healthy->stages) EXPECT_TRUE(c.explained) << c.key << " " << c.untold;
  change_norm_of_keys(patient);
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, "layers.2.attn_out");
  EXPECT_EQ(first->disagreement(), Disagreement::kDescription);
  EXPECT_EQ(first->description->unrecorded, 4u);  // k_proj, k_norm, k_rope, v_proj
  EXPECT_EQ(first->execution->unrecorded, 0u);
}

// A state has no op that could be judged: where those of its layer are right, it may be twice as far off as
// the worst of their stages.
TEST(Blame, AStateMayBeAsFarOffAsItsLayersRightOps) {
  const Patient patient("mamba2");
  ASSERT_OK_AND_ASSIGN(const auto backend, patient.backend());
  ASSERT_OK(feed(*backend, 0, patient.recording.prompt_ids, 0, true, nullptr));
  const auto agrees_with = [&](bool explained, double error) {
    std::vector<StageComparison> stages;
    for (int layer = 0; layer < static_cast<int>(patient.spec.layers.size()); ++layer)
      stages.push_back({.key = "layer_out", .layer = layer, .error = error, .explained = explained});
    EXPECT_TRUE(compare_states(*backend, patient.recording, 0, stages).has_value());
    EXPECT_GT(stages.size(), patient.spec.layers.size()) << "no state is recorded";
    return std::ranges::none_of(stages,
                                [](const StageComparison& c) { return c.first_bad_token.has_value(); });
  };
  EXPECT_FALSE(agrees_with(false, 1e-3));
  EXPECT_FALSE(agrees_with(true, 0));
  EXPECT_TRUE(agrees_with(true, 1e-3));
}

// Each op within its rounding: that the sum of all exceeds a tolerance is no fault, unless somebody asks.
TEST(Blame, RoundingThatAddsUpIsExplained) {
  StageComparison c{.key = "logits", .stage = Stage::kLogits, .first_bad_token = 0};
  EXPECT_EQ(c.disagreement(), Disagreement::kTotal);
  c.explained = true;
  EXPECT_EQ(c.disagreement(), Disagreement::kNone);
  c.execution = OpError{.first_bad_token = 2};
  EXPECT_EQ(c.disagreement(), Disagreement::kExecution);
}

TEST(Blame, NanIsFarFromEverything) {
  const Patient patient("llama", [](const TapEvent& event, std::span<float> data) {
    if (event.stage == Stage::kVProj && event.layer == 0) data[0] = NAN;
  });
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  const StageComparison* first = comparison->first_divergence();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key, "layers.0.v_proj");
  EXPECT_EQ(first->disagreement(), Disagreement::kExecution);
  EXPECT_FALSE(std::isfinite(first->execution->excess));
  // NaN in, NaN out: the ops after it are right.
  EXPECT_TRUE(stage_of(*comparison, "layers.0.o_proj").execution->agrees());
  EXPECT_TRUE(comparison_json(*comparison, "reference")["first_divergence"]["execution"]["excess"].is_null());
}

TEST(Blame, StagesThatLackTheirInputsSaySo) {
  Patient patient("gemma3");
  const TensorStore all = patient.recording.tensors;  // keeps the file that the views point into
  patient.recording.tensors = {};
  for (const char* key : {"prompt_ids", "layers.0.q_rope", "layers.0.attn_out"}) {
    ASSERT_OK(patient.recording.tensors.add(*all.find(key)));
  }
  patient.recording.greedy_ids.clear();
  const auto comparison = patient.compare();
  ASSERT_OK(comparison);
  EXPECT_TRUE(comparison->agrees());
  const StageComparison& c = stage_of(*comparison, "layers.0.attn_out");
  EXPECT_FALSE(c.description.has_value());
  EXPECT_TRUE(c.execution.has_value()) << "this run has all its stages";
  EXPECT_NE(c.untold.find("layers.0.k_rope, layers.0.v_proj"), std::string::npos) << c.untold;
}

class AnyTwo : public ::testing::Test {
 protected:
  AnyTwo() : patient_("gemma3") {}
  Recording run(std::vector<std::int32_t> ids, std::uint32_t steps = 3, const std::string& backend = "cpu") {
    auto made =
        make_backend(backend, patient_.spec, patient_.weights, {.context = 64, .disabled_passes = {}});
    auto captured = capture_run(**made, {.prompt_ids = std::move(ids),
                                         .decode_steps = steps,
                                         .greedy_ids = {},
                                         .metadata = {{"weights", describe_weights(patient_.weights)}}});
    EXPECT_TRUE(captured.has_value());
    return std::move(*captured);
  }
  ComparedModel model() const { return {.spec = patient_.spec, .weights = patient_.weights, .context = 64}; }
  Patient patient_;
};

TEST_F(AnyTwo, TwoBackendsAgree) {
  const Recording cpu = run({2, 9, 40, 7}), reference = run({2, 9, 40, 7}, 3, "reference");
  const ComparedModel compared = model();
  for (const ComparedModel* known : {static_cast<const ComparedModel*>(nullptr), &compared}) {
    ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_recordings(cpu, reference, known, {}));
    EXPECT_TRUE(comparison.agrees());
    EXPECT_GT(comparison.stages.size(), 100u);
    EXPECT_EQ(comparison.decode_steps, 4u);
    EXPECT_EQ(comparison.found, "doppler cpu");
    EXPECT_EQ(comparison.expected, "doppler reference");
    EXPECT_TRUE(comparison.not_shared.empty());
    EXPECT_EQ(comparison.stages.front().execution.has_value(), known != nullptr);
    ASSERT_TRUE(comparison.prompt_logits && comparison.decode_logits);
    EXPECT_EQ(comparison.prompt_logits->rows, 4u);
    EXPECT_EQ(comparison.prompt_logits->top1_equal, 4u);
    EXPECT_LT(comparison.decode_logits->largest_kl, 1e-6);
  }
}

TEST_F(AnyTwo, WhatDoesNotBelongTogether) {
  const Recording a = run({2, 9, 40, 7}), b = run({2, 9, 41, 7}), c = run({2, 9, 40});
  EXPECT_ERROR(compare_recordings(a, b, nullptr, {}), "different prompts", "at place 2", "40", "41");
  EXPECT_ERROR(compare_recordings(a, c, nullptr, {}), "4 and 3 tokens");
  Recording bare;
  bare.prompt_ids = a.prompt_ids;
  ASSERT_OK(bare.tensors.add(*a.tensors.find("prompt_ids")));
  EXPECT_ERROR(compare_recordings(a, bare, nullptr, {}), "share no stage");
  const Patient other("llama");
  auto backend = other.backend();
  ASSERT_OK(backend);
  ASSERT_OK_AND_ASSIGN(const Recording llama, capture_run(**backend, {.prompt_ids = a.prompt_ids}));
  EXPECT_ERROR(compare_recordings(a, llama, nullptr, {}), "wide", "computes");
}

TEST_F(AnyTwo, StagesOfOneAlone) {
  const Recording a = run({2, 9, 40, 7});
  Recording less;
  less.prompt_ids = a.prompt_ids;
  for (const char* key : {"prompt_ids", "embed_out", "layers.0.q_rope"}) {
    ASSERT_OK(less.tensors.add(*a.tensors.find(key)));
  }
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_recordings(less, a, nullptr, {}));
  EXPECT_TRUE(comparison.agrees());
  EXPECT_EQ(comparison.stages.size(), 2u);
  EXPECT_GT(comparison.not_shared.size(), 100u);
}

// Free runs that chose different tokens are compared up to there.
TEST_F(AnyTwo, DecodingIsComparedWhileTheTokensAreTheSame) {
  const Recording a = run({2, 9, 40, 7}, 5);
  Recording b = run({2, 9, 40, 7}, 5);
  b.greedy_ids[2] = (b.greedy_ids[2] + 1) % 256;
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_recordings(a, b, nullptr, {}));
  EXPECT_EQ(comparison.decode_steps, 3u);  // the prompt's answer, steps 0 and 1; step 2 was fed another token
  EXPECT_EQ(comparison.top1_equal, 2u);
  EXPECT_FALSE(comparison.agrees());
}

TEST_F(AnyTwo, TooLongToKeep) {
  auto made = make_backend("cpu", patient_.spec, patient_.weights, {.context = 64, .disabled_passes = {}});
  ASSERT_OK(made);
  EXPECT_ERROR(capture_run(**made, {.prompt_ids = std::vector<std::int32_t>(1'000'000, 5)}), "1000000 tokens",
               "--reference");
}

TEST(Logits, KnownDistributions) {
  LogitsMeter meter;
  EXPECT_FALSE(meter.result().has_value());
  const float half = std::log(0.5f), most = std::log(0.9f), few = std::log(0.1f);
  meter.add(std::vector{half, half}, std::vector{most, few});
  meter.add(std::vector{1.0f, 0.0f}, std::vector{1.0f, 0.0f});
  meter.add(std::vector{0.0f, 0.1f}, std::vector{0.1f, 0.05f});
  ASSERT_TRUE(meter.result().has_value());
  const LogitsAgreement result = meter.result().value();
  const double expected = 0.9 * std::log(0.9 / 0.5) + 0.1 * std::log(0.1 / 0.5);
  EXPECT_NEAR(result.largest_kl, expected, 1e-6);
  EXPECT_EQ(result.largest_kl_row, 0u);
  EXPECT_EQ(result.rows, 3u);
  EXPECT_EQ(result.top1_equal, 2u);  // of equals the lower id is likeliest
  EXPECT_NEAR(result.smallest_margin, 0.05, 1e-6);
  EXPECT_EQ(result.first_unsure, 2u);
  meter.add(std::vector{NAN, 0.0f}, std::vector{1.0f, 0.0f});
  EXPECT_FALSE(std::isfinite(meter.result()->largest_kl));
}

}  // namespace
}  // namespace doppler::diagnosis
