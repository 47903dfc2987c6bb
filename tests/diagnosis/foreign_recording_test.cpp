// Recordings that are not of the model, or not as it computes: recognised before anything of the model is
// blamed.
#include <cmath>
#include <list>

#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/doctor_patients.h"
#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::data_path;
using testing::PatientFolder;
using testing::RawTensor;
using testing::RawTensors;

Result<Recording> recording_of(const char* model) {
  return open_recording(data_path("models") / model / "reference.safetensors");
}

Result<Diagnosis> examine(const Loaded& loaded, const Recording& recording) {
  return diagnose(subject_of(loaded, "reference"),
                  {.reference = &recording, .seconds = 600, .only = {"recording", "truth", "choices"}});
}

// A copy of a recording whose tensors are changed; it keeps the memory.
class Changed {
 public:
  explicit Changed(const Recording& from) {
    for (const auto& [name, tensor] : from.tensors.tensors())
      tensors_[name] = {tensor.dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()}};
    metadata_ = from.tensors.metadata();
  }
  RawTensors& tensors() { return tensors_; }
  Result<Recording> read() {
    TensorStore store;
    for (const auto& [name, tensor] : tensors_)
      DOPPLER_TRY(store.add({name, tensor.dtype, tensor.shape, tensor.bytes}));
    for (const auto& [key, value] : metadata_) store.add_metadata(key, value);
    return read_recording(std::move(store), "changed");
  }

 private:
  RawTensors tensors_;
  std::map<std::string, std::string> metadata_;
};

void each_float(RawTensor& tensor, const std::function<float(float)>& change) {
  for (std::size_t at = 0; at + 4 <= tensor.bytes.size(); at += 4) {
    float x;
    std::memcpy(&x, &tensor.bytes[at], 4);
    x = change(x);
    std::memcpy(&tensor.bytes[at], &x, 4);
  }
}

void expect_mismatch(const Diagnosis& diagnosis, std::string_view words) {
  ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].cause, "reference_mismatch");
  EXPECT_NE(diagnosis.findings[0].explanation.find(words), std::string::npos) << all_findings(diagnosis);
}

// Between experts of the same score rounding decides, and either choice is right; between others it is not.
TEST(NearChoices, OfExpertsAreNoDifference) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/glm4_moe"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording recorded, recording_of("glm4_moe"));
  for (const bool near : {false, true}) {
    SCOPED_TRACE(near);
    Changed changed(recorded);
    auto& ids = changed.tensors()["layers.1.router_ids"];
    auto& logits = changed.tensors()["layers.1.router_logits"];
    const std::size_t experts = logits.shape[1], chosen = ids.shape[1];
    std::vector<float> of_token(chosen), scores(experts);
    std::memcpy(of_token.data(), ids.bytes.data(), chosen * sizeof(float));
    std::memcpy(scores.data(), logits.bytes.data(), experts * sizeof(float));
    // The first token's last choice is another expert, which was not chosen.
    std::size_t other = 0;
    while (std::ranges::find(of_token, static_cast<float>(other)) != of_token.end()) ++other;
    if (near) scores[other] = scores[static_cast<std::size_t>(of_token.back())];
    of_token.back() = static_cast<float>(other);
    std::memcpy(ids.bytes.data(), of_token.data(), chosen * sizeof(float));
    std::memcpy(logits.bytes.data(), scores.data(), experts * sizeof(float));
    ASSERT_OK_AND_ASSIGN(const Recording recording, changed.read());
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("reference", loaded.model->spec,
                                                          loaded.model->weights, {.context = 64}));
    ASSERT_OK_AND_ASSIGN(const Comparison comparison,
                         compare_run(*backend, loaded.model->spec, recording, {}));
    const auto stage = std::ranges::find(comparison.stages, "layers.1.router_ids", &StageComparison::key);
    ASSERT_NE(stage, comparison.stages.end());
    EXPECT_EQ(stage->near_choices, near ? 1u : 0u);
    EXPECT_EQ(stage->error == 0, near);
  }
}

TEST(ForeignRecording, OfAnotherSize) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/llama3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording recording, recording_of("gemma3"));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
  expect_mismatch(diagnosis, "a model of another size");
}

// Some rope types turn otherwise beyond the context, so a base that a longer recording shows is no repair.
TEST(ForeignRecording, LongerThanTheContext) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/llama3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording recording, recording_of("llama3"));
  for (const bool beyond : {false, true}) {
    Subject subject = subject_of(loaded, "reference");
    ASSERT_OK(inject("rope_theta_default", subject));
    if (beyond) subject.spec.context_length = static_cast<std::uint32_t>(recording.prompt_ids.size()) - 1;
    ASSERT_OK_AND_ASSIGN(
        const Diagnosis diagnosis,
        diagnose(subject, {.reference = &recording, .seconds = 600, .only = {"recording", "truth"}}));
    ASSERT_FALSE(diagnosis.findings.empty());
    const Finding& first = diagnosis.findings[0];
    EXPECT_EQ(first.cause, "rope_theta") << all_findings(diagnosis);
    EXPECT_EQ(first.repair.starts_with("Record a prompt of at most "), beyond) << first.repair;
    EXPECT_EQ(first.fixes.empty(), beyond);
    EXPECT_EQ(first.confidence <= 0.5, beyond) << first.confidence;
  }
}

// The same sizes and names, and every weight another.
TEST(ForeignRecording, OfAnotherModel) {
  PatientFolder other("llama3");
  other.change_tensors([](RawTensors& all) {
    for (auto& [name, tensor] : all) {
      if (tensor.shape.size() == 2)
        tensor.permute([&](std::size_t r) { return (r * 7 + 3) % tensor.rows(); });
      if (tensor.shape.size() == 2) tensor.each([n = 0](float x) mutable { return ++n % 3 == 0 ? -x : x; });
    }
  });
  ASSERT_OK_AND_ASSIGN(const Loaded theirs, testing::load_patient(other.path(), 64));
  ASSERT_OK_AND_ASSIGN(const Recording own, recording_of("llama3"));
  const testing::TempDir folder;
  ASSERT_OK(record_run(*theirs.backend, {.prompt_ids = own.prompt_ids}, folder / "theirs.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(folder / "theirs.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/llama3"), 64));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
  expect_mismatch(diagnosis, "not of this model");
}

TEST(ForeignRecording, OfShiftedIds) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/qwen3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording right, recording_of("qwen3"));
  Changed changed(right);
  auto& ids = changed.tensors().at("prompt_ids").bytes;
  const std::size_t size = ids.size() / right.prompt_ids.size();
  std::rotate(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size), ids.end());
  ASSERT_OK_AND_ASSIGN(const Recording recording, changed.read());
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
  expect_mismatch(diagnosis, "shifted");
}

// Ids of another numbering: the table is the head, too, and as that it gives the recorded logits.
TEST(ForeignRecording, OfOtherIds) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/gemma3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording right, recording_of("gemma3"));
  for (const std::size_t changed_ids : {std::size_t{1}, right.prompt_ids.size()}) {
    Changed changed(right);
    auto& ids = changed.tensors().at("prompt_ids").bytes;
    const std::size_t size = ids.size() / right.prompt_ids.size();
    for (std::size_t i = 0; i < changed_ids; ++i) ids[i * size] = std::byte(right.prompt_ids[i] ^ 1);
    ASSERT_OK_AND_ASSIGN(const Recording recording, changed.read());
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
    expect_mismatch(diagnosis, "gives the recorded logits");
  }
}

// As few as two sizes that differ are another model's.
TEST(ForeignRecording, OfOtherHeadsAndLayers) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/gemma3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording recording, recording_of("gemma2"));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
  expect_mismatch(diagnosis, "heads of keys");
}

// Stages in 16 bits are read as the floats that they are, and judged with their rounding.
TEST(ForeignRecording, StoredIn16Bits) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/qwen2"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording right, recording_of("qwen2"));
  for (const DType type : {DType::kF16, DType::kBF16}) {
    Changed changed(right);
    for (auto& [name, tensor] : changed.tensors()) {
      if (tensor.dtype != DType::kF32) continue;
      std::vector<std::byte> narrow;
      for (std::size_t at = 0; at < tensor.bytes.size(); at += 4) {
        float x;
        std::memcpy(&x, &tensor.bytes[at], 4);
        const std::uint16_t half = type == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
        const auto* bytes = reinterpret_cast<const std::byte*>(&half);
        narrow.insert(narrow.end(), bytes, bytes + 2);
      }
      tensor.dtype = type, tensor.bytes = std::move(narrow);
    }
    ASSERT_OK_AND_ASSIGN(const Recording recording, changed.read());
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
    EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
    EXPECT_NE(diagnosis.checks[0].text.find("rounded to"), std::string::npos) << diagnosis.checks[0].text;
  }
}

TEST(ForeignRecording, CutShort) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/llama"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording right, recording_of("llama"));
  Changed changed(right);
  const std::size_t tokens = right.prompt_ids.size(), kept = tokens - 5;
  for (auto& [name, tensor] : changed.tensors()) {
    if (tensor.shape[0] != tokens || name == "greedy_ids" || name == "decode_logits") continue;
    tensor.bytes.resize(tensor.bytes.size() / tokens * kept);
    tensor.shape[0] = kept;
  }
  ASSERT_OK_AND_ASSIGN(const Recording recording, changed.read());
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
  expect_mismatch(diagnosis, "was cut");
}

// Values rounded to 16 bits are judged with that rounding, and a fault beyond it is still found.
TEST(ForeignRecording, RoundedTo16Bits) {
  for (const bool bf16 : {true, false}) {
    for (const char* model : {"llama3", "qwen2", "gemma3"}) {
      SCOPED_TRACE(model);
      ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models") / model, 64));
      ASSERT_OK_AND_ASSIGN(const Recording right, recording_of(model));
      Changed changed(right);
      for (auto& [name, tensor] : changed.tensors()) {
        if (tensor.dtype != DType::kF32) continue;
        each_float(tensor,
                   [&](float x) { return bf16 ? bf16_to_f32(f32_to_bf16(x)) : f16_to_f32(f32_to_f16(x)); });
      }
      ASSERT_OK_AND_ASSIGN(const Recording recording, changed.read());
      ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
      EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
      EXPECT_NE(diagnosis.checks[0].text.find(bf16 ? "rounded to bfloat16" : "rounded to float16"),
                std::string::npos)
          << diagnosis.checks[0].text;
      Subject sick = subject_of(loaded, "reference");
      for (LayerSpec& layer : sick.spec.layers) layer.attention.scale *= 2;
      ASSERT_OK_AND_ASSIGN(
          const Diagnosis found,
          diagnose(sick, {.reference = &recording, .seconds = 600, .only = {"recording", "truth"}}));
      ASSERT_FALSE(found.healthy());
      EXPECT_EQ(found.findings[0].stage, "attn_out") << all_findings(found);
    }
  }
}

// A recording of the same model's coarser weights, of which its header tells.
TEST(ForeignRecording, OfACoarserQuantisation) {
  ASSERT_OK_AND_ASSIGN(const Loaded coarse, testing::load_patient(data_path("gguf/llama.Q4_0.gguf"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording own, recording_of("llama"));
  const testing::TempDir folder;
  ASSERT_OK(record_run(
      *coarse.backend,
      {.prompt_ids = own.prompt_ids, .metadata = model_metadata("llama.Q4_0.gguf", coarse.model->weights)},
      folder / "coarse.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(folder / "coarse.safetensors"));
  for (const char* file : {"models/llama", "gguf/llama.Q8_0.gguf"}) {
    SCOPED_TRACE(file);
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path(file), 64));
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(loaded, recording));
    EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
    EXPECT_NE(diagnosis.checks[1].text.find("coarser weights"), std::string::npos)
        << diagnosis.checks[1].text;
  }
}

}  // namespace
}  // namespace doppler::diagnosis
