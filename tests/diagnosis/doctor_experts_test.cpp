// What can be said of weights of three dimensions without running them: each expert's matrix by itself.
#include "base/float16.h"
#include "diagnosis/doctor_patients.h"

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
    options.only = std::move(checks);
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

}  // namespace
}  // namespace doppler::diagnosis
