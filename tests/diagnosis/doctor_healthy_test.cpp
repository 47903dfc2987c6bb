// Healthy models: nothing is found, whatever the family, the file's type and the backend; with the recording
// of transformers, where the file holds the same model, and without.
#include <set>

#include "diagnosis/doctor_patients.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::data_path;
using testing::examine;

struct HealthyCase {
  const char* file;       // below tests/data, or demo
  const char* recording;  // of which model; empty: none
};
constexpr HealthyCase kCases[] = {
    {"models/llama", "llama"},
    {"models/llama3", "llama3"},
    {"models/mistral", "mistral"},
    {"models/qwen2", "qwen2"},
    {"models/qwen3", "qwen3"},
    {"models/phi3", "phi3"},
    {"models/gemma2", "gemma2"},
    {"models/gemma3", "gemma3"},
    {"models/gemma3_k288", "gemma3_k288"},
    {"models/mamba2", "mamba2"},
    {"models/qwen3_next", "qwen3_next"},
    {"models/jamba", "jamba"},
    {"models/nemotron_h", "nemotron_h"},
    {"demo", "demo"},
    {"gguf/llama.gguf", "llama"},
    {"gguf/llama3.gguf", "llama3"},
    {"gguf/qwen2.gguf", "qwen2"},
    {"gguf/qwen3.gguf", "qwen3"},
    {"gguf/phi3.gguf", "phi3"},
    {"gguf/gemma3.gguf", "gemma3"},
    // llama.cpp's files lack the window of this one and the query scalar of that: no truth to hold against
    // them.
    {"gguf/mistral.gguf", ""},
    {"gguf/gemma2.gguf", ""},
    // Quantised: the recording is of the float weights.
    {"gguf/llama.Q8_0.gguf", "llama"},
    {"gguf/llama.Q5_1.gguf", "llama"},
    {"gguf/llama.Q4_0.gguf", "llama"},
    {"gguf/gemma3_k288.Q4_0.gguf", "gemma3_k288"},
    {"gguf/gemma3_k288.Q4_K_M.gguf", "gemma3_k288"},
    {"gguf/llama_k256.Q4_K_M.gguf", ""},
    {"gguf/llama_k256.Q2_K.gguf", ""},
    {"gguf/llama_k256.IQ4_XS.gguf", ""},
};

class Healthy : public ::testing::TestWithParam<std::tuple<std::string, HealthyCase>> {};

TEST_P(Healthy, HasNoFinding) {
  const auto& [backend, c] = GetParam();
  const std::string file = c.file, recording = c.recording;
  const auto model = file == "demo" ? testing::patient_source(file) : data_path(file);
  ASSERT_OK_AND_ASSIGN(
      const Diagnosis diagnosis,
      examine(model,
              recording.empty() ? std::filesystem::path()
                                : testing::patient_source(recording) / "reference.safetensors",
              backend));
  EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
  for (const CheckResult& check : diagnosis.checks) {
    EXPECT_NE(check.state, CheckState::kFinding) << check.name << " " << check.text;
    if (check.name == "ops") {
      EXPECT_EQ(check.state, CheckState::kOk) << check.text;
    }
    if (check.name == "truth" && !recording.empty()) {
      EXPECT_EQ(check.state, CheckState::kOk) << check.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Doctor, Healthy, ::testing::Combine(::testing::Values("reference", "cpu"), ::testing::ValuesIn(kCases)),
    [](const auto& test) {
      return testing::as_test_name(std::get<0>(test.param) + "_" + std::get<1>(test.param).file);
    });

// A machine that lacks a GPU says nothing of a model; a backend that fails by itself is no sign of health.
TEST(Doctor, TellsABackendThatFailsFromOneThatTheMachineLacks) {
  LoadOptions load;
  load.backend = "reference";
  ASSERT_OK_AND_ASSIGN(const auto loaded, load_all(data_path("models/llama"), load));
  for (const ErrorCode code : {ErrorCode::kNotFound, ErrorCode::kInternal}) {
    Subject subject = subject_of(loaded, "cpu");
    subject.backend = [code](const Subject&, const BackendOptions&) -> Result<std::unique_ptr<Backend>> {
      return fail(code, "This backend does not start.");
    };
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, diagnose(subject, {}));
    EXPECT_EQ(diagnosis.healthy(), code == ErrorCode::kNotFound);
    if (code != ErrorCode::kInternal || diagnosis.findings.empty()) continue;
    EXPECT_EQ(diagnosis.findings[0].cause, "unknown");
    EXPECT_NE(diagnosis.findings[0].explanation.find("does not start"), std::string::npos);
  }
}

// A list of causes is a promise to scripts: ids are unique, and every one has sentences.
TEST(Causes, HaveUniqueIdsAndSentences) {
  std::set<std::string_view> seen;
  for (const Cause& cause : all_causes()) {
    EXPECT_TRUE(seen.insert(cause.id).second) << cause.id;
    EXPECT_TRUE(cause.explanation.ends_with('.')) << cause.id;
    EXPECT_TRUE(cause.repair.ends_with('.')) << cause.id;
    EXPECT_EQ(find_cause(cause.id), &cause);
  }
  EXPECT_EQ(find_cause("bad_luck"), nullptr);
}

}  // namespace
}  // namespace doppler::diagnosis
