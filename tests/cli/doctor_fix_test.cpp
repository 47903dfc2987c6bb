// doppler doctor --fix as a user runs it: the repaired copy is the healthy model again, and nothing half is
// ever left.
#include "base/json.h"
#include "cli/program.h"
#include "diagnosis/doctor_patients.h"

namespace doppler::testing {
namespace {

namespace fs = std::filesystem;

struct Patient {
  const char* name;
  const char* model;
  std::function<void(PatientFolder&)> harm;
};

std::function<void(PatientFolder&)> config(std::function<void(Json&)> change) {
  return [change = std::move(change)](PatientFolder& p) { p.change_json("config.json", change); };
}
std::function<void(PatientFolder&)> tensor(const char* name, std::function<void(RawTensor&)> change) {
  return [=](PatientFolder& p) {
    p.change_tensors([&](RawTensors& all) { change(all.at(fmt::format("model.layers.1.{}", name))); });
  };
}

const std::vector<Patient>& patients() {
  static const std::vector<Patient> kPatients = {
      {"eps", "llama", config([](Json& c) { c["rms_norm_eps"] = 1e-6; })},
      {"theta", "gemma3",
       config([](Json& c) { c["rope_parameters"]["sliding_attention"]["rope_theta"] = 1e6; })},
      {"window", "gemma3", config([](Json& c) { c["sliding_window"] = 7; })},
      {"kinds", "gemma3", config([](Json& c) { c["layer_types"][0] = "full_attention"; })},
      {"activation", "gemma3", config([](Json& c) { c["hidden_activation"] = "silu"; })},
      {"scale", "gemma2", config([](Json& c) { c["query_pre_attn_scalar"] = 100; })},
      {"softcap", "gemma2", config([](Json& c) { c["attn_logit_softcapping"] = nullptr; })},
      {"type", "llama", tensor("self_attn.k_proj.weight", [](RawTensor& t) { t.dtype = DType::kF16; })},
      {"norm_type", "llama", tensor("input_layernorm.weight", [](RawTensor& t) { t.dtype = DType::kF16; })},
      {"transposed", "llama", tensor("self_attn.q_proj.weight", [](RawTensor& t) { t.transpose(); })},
      {"doubled", "llama",
       tensor("self_attn.v_proj.weight", [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"bias", "qwen2",
       tensor("self_attn.k_proj.bias", [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"fused", "phi3",
       tensor("mlp.gate_up_proj.weight",
              [](RawTensor& t) {
                t.permute([&](std::size_t r) { return r / 2 + (r % 2 == 0 ? 0 : t.rows() / 2); });
              })},
  };
  return kPatients;
}

class Fixed : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Fixed, IsTheHealthyModelAgain) {
  const Patient& c = patients()[GetParam()];
  PatientFolder patient(c.model);
  c.harm(patient);
  const TempDir dir;
  const std::string out = dir / "fixed";
  const Outcome told = doppler({"doctor", patient.path(), "--reference", patient.recording(), "--backend",
                                "reference", "--fix", out, "--json"});
  ASSERT_EQ(told.status, 0) << told.out << told.err;
  const Json said = told.json();
  EXPECT_FALSE(said["before"]["healthy"]);
  EXPECT_FALSE(said["before"]["findings"][0]["fixes"].empty());
  EXPECT_TRUE(said["after"]["healthy"]) << told.out;
  ASSERT_OK_AND_ASSIGN(const TensorStore right,
                       open_safetensors(patient_source(c.model) / "model.safetensors"));
  ASSERT_OK_AND_ASSIGN(const TensorStore fixed, open_safetensors(out + "/model.safetensors"));
  ASSERT_EQ(right.tensors().size(), fixed.tensors().size());
  for (const auto& [name, tensor] : right.tensors()) {
    const TensorView* other = fixed.find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_EQ(other->dtype, tensor.dtype) << name;
    EXPECT_TRUE(std::ranges::equal(other->data, tensor.data)) << name;
  }
  EXPECT_EQ(parse_json(read_file(out + "/config.json"), "").value(),
            parse_json(read_file(patient_source(c.model) / "config.json"), "").value());
}

INSTANTIATE_TEST_SUITE_P(DoctorFix, Fixed, ::testing::Range<std::size_t>(0, patients().size()),
                         [](const auto& param) { return patients()[param.param].name; });

// In GGUF's own keys, and with the rows in the file's order.
TEST(DoctorFix, RepairsGguf) {
  const Patient kCases[] = {
      {"eps", "gemma3", config([](Json& c) { c["rms_norm_eps"] = 1e-5; })},
      {"kinds", "gemma3", config([](Json& c) { c["layer_types"][0] = "full_attention"; })},
      {"rows", "llama3",
       tensor("self_attn.q_proj.weight",
              [](RawTensor& t) {
                t.permute([](std::size_t r) { return r - r % 32 + r % 2 * 16 + r % 32 / 2; });
              })},
      {"doubled", "llama3",
       tensor("self_attn.k_proj.weight", [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
  };
  for (const Patient& c : kCases) {
    SCOPED_TRACE(c.name);
    PatientFolder patient(c.model);
    c.harm(patient);
    const TempDir dir;
    const std::string file = dir / "in.gguf", out = dir / "out.gguf";
    ASSERT_EQ(doppler({"convert", patient.path(), "-o", file, "--type", "bf16", "--no-tokenizer"}).status, 0);
    const Outcome told = doppler({"doctor", file, "--reference", patient.recording(), "--backend",
                                  "reference", "--fix", out, "--json"});
    EXPECT_EQ(told.status, 0) << told.out << told.err;
    EXPECT_TRUE(told.json()["after"]["healthy"]) << told.out;
    if (std::string_view(c.name) == "eps") {
      EXPECT_EQ(told.json()["before"]["findings"][0]["fixes"][0]["key"],
                "gemma3.attention.layer_norm_rms_epsilon");
    }
  }
}

TEST(DoctorFix, RefusesWhatExists) {
  PatientFolder patient("llama");
  const TempDir dir;
  write_file(dir / "mine", "precious");
  const Outcome told = doppler({"doctor", patient.path(), "--fix", dir / "mine"});
  EXPECT_EQ(told.status, 2) << told.out;
  EXPECT_NE(told.err.find("exists already"), std::string::npos) << told.err;
  EXPECT_EQ(read_file(dir / "mine"), "precious");
}

TEST(DoctorFix, WritesNothingWhereThereIsNothingToWrite) {
  PatientFolder healthy("llama"), damaged("llama");
  damaged.change_tensors(
      [](RawTensors& all) { all.at("model.layers.1.mlp.down_proj.weight").zero_from(0.5); });
  const TempDir dir;
  const Outcome well = doppler({"doctor", healthy.path(), "--reference", healthy.recording(), "--backend",
                                "reference", "--fix", dir / "out"});
  EXPECT_EQ(well.status, 0) << well.err;
  EXPECT_NE(well.out.find("nothing to repair"), std::string::npos) << well.out;
  const Outcome ill = doppler({"doctor", damaged.path(), "--reference", damaged.recording(), "--backend",
                               "reference", "--fix", dir / "out"});
  EXPECT_EQ(ill.status, 1) << ill.err;
  EXPECT_NE(ill.out.find("not repaired: truncated_weight"), std::string::npos) << ill.out;
  EXPECT_FALSE(fs::exists(dir / "out"));
}

// Files that may grow to 100 KB only, as on a disk that is full then: neither the copy nor a part of it
// stays.
TEST(DoctorFix, AFullDiskLeavesNothing) {
  PatientFolder patient("llama");
  patient.change_json("config.json", [](Json& c) { c["rms_norm_eps"] = 1e-6; });
  const TempDir dir;
  const std::string gguf = dir / "in.gguf";
  ASSERT_EQ(doppler({"convert", patient.path(), "-o", gguf, "--type", "bf16", "--no-tokenizer"}).status, 0);
  for (const auto& [model, out] : {std::pair{patient.path().string(), std::string(dir / "out")},
                                   {gguf, std::string(dir / "out.gguf")}}) {
    Program program(
        {"doctor", model, "--reference", patient.recording(), "--backend", "reference", "--fix", out}, "",
        100 << 10);
    const Outcome told = program.wait();
    EXPECT_NE(told.status, 0) << told.out;
    EXPECT_NE(told.err.find(out), std::string::npos) << told.err;
    for (const auto& entry : fs::directory_iterator(dir.path()))
      EXPECT_EQ(entry.path().filename(), "in.gguf");
  }
}

}  // namespace
}  // namespace doppler::testing
