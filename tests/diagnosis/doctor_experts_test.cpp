// What can be said of weights of three dimensions without running them, each expert's matrix by itself; and
// faults of experts, beside a recording.
#include <algorithm>

#include "base/float16.h"
#include "diagnosis/compare/thinned.h"
#include "diagnosis/doctor_patients.h"
#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;

constexpr std::uint64_t kExperts = 3, kRows = 8, kCols = 64;

// A llama with experts in its second layer that no op uses yet.
struct ExpertPatient {
  Loaded loaded;
  std::vector<float> values;

  ExpertPatient() : values(kExperts * kRows * kCols) {
    LoadOptions load;
    load.backend = "reference";
    auto opened = load_all(testing::data_path("models/llama"), load);
    EXPECT_TRUE(opened.has_value());
    loaded = std::move(*opened);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1f + static_cast<float>(i * 37 % 101);
  }
  std::span<float> expert(std::uint64_t index) {
    return std::span(values).subspan(index * kRows * kCols, kRows * kCols);
  }
  Result<Diagnosis> examine(std::vector<std::string> checks = {"weights", "layers"}) {
    Subject subject = subject_of(loaded, "reference");
    subject.weights.add(WeightRole::kUpExperts, 1,
                        {"up_exps", DType::kF32, {kExperts, kRows, kCols}, std::as_bytes(std::span(values))});
    DoctorOptions options;
    options.only = std::move(checks), options.seconds = 600;
    return diagnose(subject, options);
  }
};

// One check alone: a lost expert has another scale than the others, too.
void expect_finding(ExpertPatient& patient, const std::string& check, const std::string& cause,
                    const std::string& says) {
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, patient.examine({check}));
  ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  const Finding& finding = diagnosis.findings[0];
  EXPECT_EQ(finding.cause, cause);
  EXPECT_EQ(finding.stage, "ffn_up");
  EXPECT_EQ(finding.layer, 1);
  EXPECT_NE(finding.explanation.find(says), std::string::npos) << finding.explanation;
}

TEST(DoctorExperts, HealthyOnesHaveNoFinding) {
  ExpertPatient patient;
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, patient.examine());
  EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
}

TEST(DoctorExperts, AValueThatIsNoNumberIsFoundInItsMatrix) {
  ExpertPatient patient;
  patient.expert(2)[3 * kCols + 5] = std::numeric_limits<float>::quiet_NaN();
  expect_finding(patient, "weights", "weight_nan", "1 of the 512 values of up_exps[2] (layer 1)");
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, patient.examine());
  EXPECT_NE(diagnosis.findings[0].explanation.find("in row 3, column 5"), std::string::npos);
}

TEST(DoctorExperts, AnExpertThatIsLostIsFound) {
  ExpertPatient patient;
  std::ranges::fill(patient.expert(0), 0.0f);  // the tensor's end is whole
  expect_finding(patient, "weights", "truncated_weight", "up_exps[0] (layer 1) is zero throughout");
}

TEST(DoctorExperts, TwoEqualExpertsAreFound) {
  ExpertPatient patient;
  std::ranges::copy(patient.expert(0), patient.expert(1).begin());
  expect_finding(patient, "layers", "stale_weight",
                 "up_exps[1] (layer 1) equals up_exps[0] (layer 1) byte for byte");
}

struct ExpertFault {
  const char *fault, *model;
  const char* repair;  // some of its words
};
constexpr ExpertFault kExpertFaults[] = {
    {"router_softmax_order", "gpt_oss", "norm_topk_prob to true"},
    {"router_not_normalised", "glm4_moe", "norm_topk_prob in config.json to true"},
    {"router_scale_missing", "glm4_moe", "routed_scaling_factor in config.json to 1.5"},
    {"router_correction_missing", "glm4_moe", "e_score_correction_bias"},
    {"expert_up_offset_missing", "gpt_oss", "up + 1"},
    {"sinks_missing", "gpt_oss", "model.layers.0.self_attn.sinks"},
    {"experts_permuted", "gpt_oss", "number that the router gives it"},
    {"experts_permuted", "glm4_moe", "number that the router gives it"},
    {"experts_interleaved", "gpt_oss", "Part gate_up_proj in the middle"},
    {"experts_interleaved", "glm4_moe", "Part gate_up_proj in the middle"},
    {"experts_not_interleaved", "gpt_oss", "Part gate_up_proj by turns"},
    {"experts_not_interleaved", "glm4_moe", "Part gate_up_proj by turns"},
    {"mxfp4_nibbles_exchanged", "gpt_oss", "nibble"},
    {"mxfp4_nibbles_apart", "gpt_oss", "nibble"},
};

void expect_named(const Diagnosis& diagnosis, const char* fault, const FaultPlace& place,
                  const char* repair) {
  ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  const Finding& finding = diagnosis.findings[0];
  const auto info = std::ranges::find(all_faults(), fault, &FaultInfo::name);
  EXPECT_EQ(finding.cause, info->cause) << describe(finding);
  EXPECT_NE(finding.repair.find(repair), std::string::npos) << describe(finding);
  const auto stage = stage_from_name(finding.stage);
  const std::string key = stage ? stage_key(*stage, finding.layer) : finding.stage;
  EXPECT_TRUE(key == place.key() || std::ranges::find(finding.among, place.key()) != finding.among.end())
      << place.key() << ", said " << key;
}

// transformers computes all experts of a token in one step, so that its recordings have no gate of one: the
// doctor judges the chain from what the feed-forward reads.
TEST(DoctorExperts, FaultsAreNamedBesideARecordingOfTransformers) {
  for (const auto& [fault, model, repair] : kExpertFaults) {
    SCOPED_TRACE(fmt::format("{} in {}", fault, model));
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(testing::patient_source(model), 64));
    ASSERT_OK_AND_ASSIGN(const Recording recording,
                         open_recording(testing::patient_source(model) / "reference.safetensors"));
    Subject subject = subject_of(loaded, "reference");
    ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject(fault, subject));
    ASSERT_OK_AND_ASSIGN(
        const Diagnosis diagnosis,
        diagnose(subject, {.reference = &recording, .seconds = 600, .only = {"recording", "truth"}}));
    expect_named(diagnosis, fault, place, repair);
  }
}

// Doppler's own recordings have every stage: single ops are judged. And layers alone: the longest chains.
TEST(DoctorExperts, FaultsAreNamedBesideRecordingsOfMoreAndOfLess) {
  const testing::TempDir folder;
  for (const char* model : {"gpt_oss", "glm4_moe"}) {
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(testing::patient_source(model), 64));
    ASSERT_OK_AND_ASSIGN(const Recording theirs,
                         open_recording(testing::patient_source(model) / "reference.safetensors"));
    const auto file = folder / fmt::format("{}.safetensors", model);
    ASSERT_OK(record_run(*loaded.backend, {.prompt_ids = theirs.prompt_ids, .decode_steps = 1}, file));
    ASSERT_OK_AND_ASSIGN(const Recording whole, open_recording(file));
    ASSERT_OK_AND_ASSIGN(const Recording layers, thin(theirs, *find_thinning("hidden_states")));
    for (const ExpertFault& row : kExpertFaults) {
      if (std::string_view(row.model) != model) continue;
      for (const Recording* recording : {&whole, &layers}) {
        SCOPED_TRACE(fmt::format("{} in {}, {}", row.fault, model, recording == &whole ? "whole" : "layers"));
        Subject subject = subject_of(loaded, "reference");
        ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject(row.fault, subject));
        ASSERT_OK_AND_ASSIGN(
            const Diagnosis diagnosis,
            diagnose(subject, {.reference = recording, .seconds = 600, .only = {"recording", "truth"}}));
        expect_named(diagnosis, row.fault, place, row.repair);
      }
    }
  }
}

// The fixture's values never reach its limit: said, and no limit is missed. With a lower one it is.
TEST(DoctorExperts, ALimitIsNamedWhereValuesReachIt) {
  ASSERT_OK_AND_ASSIGN(const Recording theirs,
                       open_recording(testing::patient_source("gpt_oss") / "reference.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Loaded as_it_is, testing::load_patient(testing::patient_source("gpt_oss"), 64));
  ASSERT_OK_AND_ASSIGN(
      const Diagnosis healthy,
      diagnose(subject_of(as_it_is, "reference"), {.reference = &theirs, .seconds = 600, .only = {"truth"}}));
  EXPECT_TRUE(healthy.healthy()) << all_findings(healthy);
  EXPECT_TRUE(std::ranges::any_of(healthy.untested, [](const std::string& line) {
    return line.find("the activation's limit of 7") != std::string::npos;
  }));

  ASSERT_OK_AND_ASSIGN(const Loaded lower, testing::load_patient(testing::patient_source("gpt_oss"), 64));
  for (LayerSpec& layer : lower.model->spec.layers) layer.ffn.clamp = 0.5;
  ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("reference", lower.model->spec, lower.model->weights,
                                                        {.context = 64, .max_step_tokens = 64}));
  const testing::TempDir own;
  const auto file = own / "limited.safetensors";
  ASSERT_OK(record_run(*backend, {.prompt_ids = theirs.prompt_ids, .decode_steps = 1}, file));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(file));
  Subject subject = subject_of(lower, "reference");
  ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject("expert_clamp_missing", subject));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis,
                       diagnose(subject, {.reference = &recording, .seconds = 600, .only = {"truth"}}));
  expect_named(diagnosis, "expert_clamp_missing", place, "Limit gate and up to 0.5.");
}

}  // namespace
}  // namespace doppler::diagnosis
