// A converted model beside the one that it was made of: values, texts, float tensors and quantised ones.
#include "base/json.h"
#include "convert/convert.h"
#include "convert/mix.h"
#include "diagnosis/doctor_patients.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::PatientFolder;
using testing::RawTensor;
using testing::RawTensors;

Result<Diagnosis> beside(const std::filesystem::path& model, const std::filesystem::path& source) {
  DOPPLER_ASSIGN(const Loaded ours, testing::load_patient(model));
  DOPPLER_ASSIGN(const Loaded theirs, testing::load_patient(source));
  return diagnose(subject_of(ours, "cpu"), {.source = &theirs, .seconds = 240, .only = {"source", "texts"}});
}

std::string source_weight(int layer, const char* name) {
  return fmt::format("model.layers.{}.{}.weight", layer, name);
}

std::function<void(PatientFolder&)> source_tensor(std::string name, std::function<void(RawTensor&)> change) {
  return [name = std::move(name), change = std::move(change)](PatientFolder& patient) {
    patient.change_tensors([&](RawTensors& all) { change(all.at(name)); });
  };
}
std::function<void(PatientFolder&)> source_config(std::function<void(Json&)> change) {
  return [change = std::move(change)](PatientFolder& patient) { patient.change_json("config.json", change); };
}

struct SourceCase {
  const char* name;
  const char* model;
  const char* cause;
  const char* stage;
  int layer;
  std::function<void(PatientFolder&)> harm;
};

const std::vector<SourceCase>& source_cases() {
  static const std::vector<SourceCase> kCases = {
      {"eps", "llama", "norm_eps", "attn_normed", 0,
       source_config([](Json& c) { c["rms_norm_eps"] = 1e-3; })},
      {"theta", "qwen3", "rope_theta", "q_rope", 0,
       source_config([](Json& c) { c["rope_parameters"]["rope_theta"] = 10000; })},
      {"window", "gemma3", "sliding_window", "attn_out", 0,
       source_config([](Json& c) { c["sliding_window"] = 7; })},
      {"activation", "gemma3", "activation", "ffn_act", 0,
       source_config([](Json& c) { c["hidden_activation"] = "silu"; })},
      {"transposed", "llama", "weight_transposed", "q_proj", 1,
       source_tensor(source_weight(1, "self_attn.q_proj"), [](RawTensor& t) { t.transpose(); })},
      {"rotary_rows", "llama", "weight_permuted", "q_proj", 0,
       source_tensor(source_weight(0, "self_attn.q_proj"),
                     [](RawTensor& t) {
                       t.permute([](std::size_t r) { return r / 32 * 32 + (r % 2) * 16 + r % 32 / 2; });
                     })},
      {"shifted", "llama", "weight_shifted", "v_proj", 1,
       source_tensor(source_weight(1, "self_attn.v_proj"),
                     [](RawTensor& t) { t.permute([&](std::size_t r) { return (r + 1) % t.rows(); }); })},
      {"scaled", "qwen2", "weight_scaled", "v_proj", 1,
       source_tensor(source_weight(1, "self_attn.v_proj"),
                     [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"truncated", "llama", "truncated_weight", "ffn_out", 1,
       source_tensor(source_weight(1, "mlp.down_proj"), [](RawTensor& t) { t.zero_from(0.5); })},
      {"one_value", "llama", "weight_wrong", "ffn_up", 2,
       source_tensor(source_weight(2, "mlp.up_proj"),
                     [](RawTensor& t) { t.bytes[4001] ^= std::byte{0x80}; })},
      {"gate_and_up", "llama", "gate_up_swapped", "ffn_gate", 1,
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) {
           std::swap(all.at(source_weight(1, "mlp.gate_proj")), all.at(source_weight(1, "mlp.up_proj")));
         });
       }},
      {"stale", "llama", "stale_weight", "o_proj", 2,
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) {
           all[source_weight(2, "self_attn.o_proj")] = all[source_weight(1, "self_attn.o_proj")];
         });
       }},
      {"norms_plus_one", "gemma3", "norm_weight_offset", "attn_normed", 0,
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) {
           for (auto& [name, t] : all) {
             if (name.find("norm") != std::string::npos) t.each([](float x) { return x + 1; });
           }
         });
       }},
      {"stop_tokens", "demo", "stop_tokens", "", -1,
       [](PatientFolder& p) {
         p.change_json("generation_config.json", [](Json& g) { g["eos_token_id"] = 1; });
       }},
  };
  return kCases;
}

TEST(DoctorSource, NamesWhatDiffersAndNothingElse) {
  for (const SourceCase& c : source_cases()) {
    SCOPED_TRACE(c.name);
    PatientFolder patient(c.model);
    c.harm(patient);
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, beside(patient.path(), testing::patient_source(c.model)));
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, c.cause) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].stage, c.stage);
    EXPECT_EQ(diagnosis.findings[0].layer, c.layer);
  }
}

// What quantising keeps of a fault: the other axis, another row, a factor that the blocks' own loss hides.
TEST(DoctorSource, NamesFaultsBeneathQuantising) {
  const SourceCase kCases[] = {
      {"transposed", "gemma3_k288", "weight_transposed", "o_proj", 1,
       source_tensor(source_weight(1, "self_attn.o_proj"), [](RawTensor& t) { t.transpose(); })},
      {"rows", "gemma3_k288", "weight_shifted", "embed_out", -1,
       source_tensor("model.embed_tokens.weight",
                     [](RawTensor& t) { t.permute([&](std::size_t r) { return (r + 1) % t.rows(); }); })},
      {"factor", "llama", "weight_scaled", "v_proj", 1,
       source_tensor(source_weight(1, "self_attn.v_proj"),
                     [](RawTensor& t) { t.each([](float x) { return 1.05f * x; }); })},
      // One matrix of the folder, two of the file.
      {"latent", "deepseek_v3", "weight_scaled", "k_proj", 1,
       source_tensor(source_weight(1, "self_attn.kv_b_proj"),
                     [](RawTensor& t) { t.each([](float x) { return 1.5f * x; }); })},
  };
  for (const SourceCase& c : kCases) {
    SCOPED_TRACE(c.name);
    PatientFolder patient(c.model);
    c.harm(patient);
    const testing::TempDir folder;
    const auto file = folder / "q4_0.gguf";
    ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix("Q4_0"));
    ASSERT_OK(convert::convert_model(patient.path(), *mix, file, {.with_tokenizer = false}));
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, beside(file, testing::patient_source(c.model)));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings[0].cause, c.cause) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].stage, c.stage);
    EXPECT_EQ(diagnosis.findings[0].layer, c.layer);
  }
}

TEST(DoctorSource, FindsNothingInFaithfulConversions) {
  testing::TempDir folder;
  for (const char* type : {"F16", "BF16", "Q8_0", "Q4_0"}) {
    SCOPED_TRACE(type);
    for (const char* model :
         {"demo", "llama", "gemma3", "qwen3", "qwen3_5", "qwen3_next", "gemma4_keqv", "deepseek_v3"}) {
      SCOPED_TRACE(model);
      const auto file = folder / fmt::format("{}.{}.gguf", model, type);
      ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix(type));
      ASSERT_OK(convert::convert_model(testing::patient_source(model), *mix, file,
                                       {.with_tokenizer = model == std::string("demo")}));
      ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, beside(file, testing::patient_source(model)));
      EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
    }
  }
  for (const char* model :
       {"llama", "llama3", "qwen2", "qwen3", "phi3", "gemma3"}) {  // llama.cpp's converter
    SCOPED_TRACE(model);
    ASSERT_OK_AND_ASSIGN(
        const Diagnosis diagnosis,
        beside(testing::data_path(fmt::format("gguf/{}.gguf", model)), testing::patient_source(model)));
    EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
  }
}

// A coarser type than the tensors' names say is one finding, whatever the number of tensors.
TEST(DoctorSource, TellsOneCauseOnce) {
  PatientFolder patient("llama");
  patient.change_tensors([](RawTensors& all) {
    for (auto& [name, t] : all) {
      if (name.find("proj") == std::string::npos) continue;
      t.each([](float x) { return x > 0 ? 0.05F : -0.05F; });
    }
  });
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, beside(patient.path(), testing::patient_source("llama")));
  ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  EXPECT_GT(diagnosis.findings[0].places, 10u);
}

}  // namespace
}  // namespace doppler::diagnosis
