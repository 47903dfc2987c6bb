// doppler doctor --fix as a user runs it: the repaired copy is the healthy model again, and nothing half is
// ever left.
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/float16.h"
#include "base/json.h"
#include "cli/program.h"
#include "diagnosis/doctor_patients.h"
#include "formats/gguf.h"

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
      {"scaling", "llama3", config([](Json& c) { c["rope_parameters"]["factor"] = 8; })},
      {"scaling_missing", "llama3",
       config([](Json& c) { c["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}}; })},
      {"base_and_scaling", "llama3",
       config([](Json& c) { c["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}}; })},
      {"scale_and_softcap", "gemma2",
       config([](Json& c) { c["query_pre_attn_scalar"] = 1, c["attn_logit_softcapping"] = nullptr; })},
      {"window_missing", "gemma3", config([](Json& c) { c.erase("sliding_window"); })},
      {"head_of_its_own", "gemma3",
       [](PatientFolder& p) {
         p.change_json("config.json", [](Json& c) { c["tie_word_embeddings"] = false; });
         p.change_tensors([](RawTensors& all) {
           all["lm_head.weight"] = all.at("model.embed_tokens.weight");
           all.at("lm_head.weight").each([](float x) { return 10 * x * std::abs(x); });
         });
       }},
      {"gate_and_up", "llama",
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) {
           std::swap(all.at("model.layers.1.mlp.gate_proj.weight"),
                     all.at("model.layers.1.mlp.up_proj.weight"));
         });
       }},
      {"norms_of_heads", "gemma3",
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) {
           std::swap(all.at("model.layers.1.self_attn.q_norm.weight"),
                     all.at("model.layers.1.self_attn.k_norm.weight"));
         });
       }},
      {"embedding", "llama",
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) { all.at("model.embed_tokens.weight").transpose(); });
       }},
      {"layers_refused", "llama", config([](Json& c) { c["num_hidden_layers"] = 2; })},
      {"tie_refused", "llama", config([](Json& c) { c["tie_word_embeddings"] = true; })},
      {"bias_refused", "llama", config([](Json& c) { c["attention_bias"] = true; })},
      {"feed_forward_bias_refused", "llama", config([](Json& c) { c["mlp_bias"] = true; })},
      {"no_bias_refused", "glm4", config([](Json& c) { c["attention_bias"] = false; })},
      {"fewer_experts", "gpt_oss", config([](Json& c) { c["num_experts_per_tok"] = 3; })},
      {"two_refusals_and_epsilon", "llama3",
       config([](Json& c) { c["attention_bias"] = true, c["mlp_bias"] = true, c["rms_norm_eps"] = 3e-4; })},
      {"rows_in_reverse", "llama",
       tensor("mlp.down_proj.weight",
              [](RawTensor& t) { t.permute([&](std::size_t r) { return t.rows() - 1 - r; }); })},
      {"experts_turned", "glm4_moe",
       [](PatientFolder& p) {
         p.change_tensors([](RawTensors& all) {
           RawTensors before = all;
           for (const char* layer : {"1", "2"}) {
             for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
               for (int e = 0; e < 8; ++e) {
                 const auto name = [&](int i) {
                   return fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, i, part);
                 };
                 all.at(name(e)) = before.at(name((e + 1) % 8));
               }
             }
           }
         });
       }},
      {"no_tie_refused", "gemma3", config([](Json& c) { c["tie_word_embeddings"] = false; })},
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
      // A tensor of divisors is added, and a key turned off.
      {"scaling", "llama3", config([](Json& c) {
         c["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "linear"}, {"factor", 8.0}};
       })},
      {"head", "gemma3",
       [](PatientFolder& p) {
         p.change_json("config.json", [](Json& c) { c["tie_word_embeddings"] = false; });
         p.change_tensors([](RawTensors& all) {
           all["lm_head.weight"] = all.at("model.embed_tokens.weight");
           all.at("lm_head.weight").each([](float x) { return 10 * x * std::abs(x); });
         });
       }},
      {"window", "mistral", config([](Json& c) { c["sliding_window"] = 5; })},
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

// The scales of one tensor's blocks, a few per cent off, beside a recording of the floats.
TEST(DoctorFix, RepairsScalesOfBlocks) {
  PatientFolder patient("gemma3_k288");
  const TempDir dir;
  const std::string right = dir / "right.gguf", in = dir / "in.gguf", out = dir / "out.gguf";
  ASSERT_EQ(doppler({"convert", patient.path(), "-o", right, "--type", "q4_0", "--no-tokenizer"}).status, 0);
  std::string bytes = read_file(right);
  {
    ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(right));
    const TensorView* tensor = file.tensors.find("blk.1.attn_k.weight");
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->dtype, DType::kQ4_0);
    const MappedFile whole = *MappedFile::open(right);
    const std::string_view of_tensor(reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size());
    const std::size_t begin = bytes.find(of_tensor);
    ASSERT_NE(begin, std::string::npos);
    constexpr std::size_t kBlock = 18;
    for (std::size_t at = begin; at < begin + of_tensor.size(); at += kBlock) {
      std::uint16_t half = 0;
      std::memcpy(&half, &bytes[at], sizeof half);
      half = f32_to_f16(1.125f * f16_to_f32(half));
      std::memcpy(&bytes[at], &half, sizeof half);
    }
  }
  write_file(in, bytes);
  const Outcome told = doppler(
      {"doctor", in, "--reference", patient.recording(), "--backend", "reference", "--fix", out, "--json"});
  EXPECT_EQ(told.status, 0) << told.out << told.err;
  EXPECT_EQ(told.json()["before"]["findings"][0]["cause"], "weight_scaled") << told.out;
  EXPECT_TRUE(told.json()["after"]["healthy"]) << told.out;
}

// Blocks of MXFP4 whose nibbles change places: as they are published, with scales apart and several experts
// in one tensor, and in a GGUF file, where one tensor holds them, too.
TEST(DoctorFix, RepairsPackedExperts) {
  PatientFolder patient("gpt_oss");
  patient.change_tensors([](RawTensors& all) {
    for (std::byte& b : all.at("model.layers.1.mlp.experts.down_proj_blocks").bytes) b = b << 4 | b >> 4;
  });
  const TempDir dir;
  const std::string gguf = dir / "in.gguf";
  ASSERT_EQ(doppler({"convert", patient.path(), "-o", gguf, "--type", "mxfp4_moe", "--no-tokenizer"}).status,
            0);
  for (const auto& [model, out] : {std::pair{patient.path().string(), std::string(dir / "out")},
                                   {gguf, std::string(dir / "out.gguf")}}) {
    const Outcome told = doppler({"doctor", model, "--reference", patient.recording(), "--backend",
                                  "reference", "--fix", out, "--json"});
    ASSERT_EQ(told.status, 0) << told.out << told.err;
    EXPECT_EQ(told.json()["before"]["findings"][0]["cause"], "nibble_order") << told.out;
    EXPECT_TRUE(told.json()["after"]["healthy"]) << told.out;
  }
}

// What the source has: values, weights, a head, and a GGUF file's tokenizer.
TEST(DoctorFix, TakesFromTheSource) {
  const auto fixed = [](const std::string& model, const fs::path& source, const std::string& out) {
    const Outcome told = doppler(
        {"doctor", model, "--source", source.string(), "--backend", "reference", "--fix", out, "--json"});
    EXPECT_EQ(told.status, 0) << told.out << told.err;
    const Json said = told.json();
    EXPECT_FALSE(said["before"]["healthy"]) << told.out;
    EXPECT_EQ(said["not_repaired"].size(), 0u) << told.out;
    EXPECT_TRUE(said["after"]["healthy"]) << told.out;
  };
  const Patient kCases[] = {
      {"description", "gemma3", config([](Json& c) {
         c["rms_norm_eps"] = 1e-3, c["sliding_window"] = 7, c["hidden_activation"] = "silu";
         c["rope_parameters"]["full_attention"]["rope_theta"] = 1e4;
       })},
      {"scaling", "llama3", config([](Json& c) { c["rope_parameters"]["factor"] = 8; })},
      {"lost", "llama", tensor("mlp.down_proj.weight", [](RawTensor& t) { t.zero_from(0.5); })},
      {"head", "llama",
       [](PatientFolder& p) {
         p.change_json("config.json", [](Json& c) { c["tie_word_embeddings"] = true; });
         p.change_tensors([](RawTensors& all) { all.erase("lm_head.weight"); });
       }},
  };
  for (const Patient& c : kCases) {
    SCOPED_TRACE(c.name);
    PatientFolder patient(c.model);
    c.harm(patient);
    const TempDir dir;
    fixed(patient.path(), patient_source(c.model), dir / "out");
    if (std::string_view(c.name) == "description") continue;  // GGUF files have no key for the activation
    const std::string gguf = dir / "in.gguf";
    ASSERT_EQ(doppler({"convert", patient.path(), "-o", gguf, "--type", "bf16", "--no-tokenizer"}).status, 0);
    fixed(gguf, patient_source(c.model), dir / "out.gguf");
  }
}

TEST(DoctorFix, ReplacesTheTokenizerOfAGgufFile) {
  const fs::path demo = data_path("") / "../../demo";
  const TempDir dir;
  fs::create_directory(dir / "demo");
  for (const auto& entry : fs::directory_iterator(demo)) {
    if (entry.is_regular_file()) fs::copy_file(entry.path(), dir / "demo" / entry.path().filename());
  }
  std::string text = read_file(dir / "demo/chat_template.jinja");
  for (std::size_t at = 0; (at = text.find("model", at)) != std::string::npos;)
    text.replace(at, 5, "assistant");
  write_file(dir / "demo/chat_template.jinja", text);
  const std::string in = dir / "in.gguf", out = dir / "out.gguf";
  ASSERT_EQ(doppler({"convert", dir / "demo", "-o", in, "--type", "q8_0"}).status, 0);
  const Outcome told =
      doppler({"doctor", in, "--source", demo.string(), "--check", "texts", "--fix", out, "--json"});
  EXPECT_EQ(told.status, 0) << told.out << told.err;
  EXPECT_EQ(told.json()["before"]["findings"][0]["cause"], "chat_role") << told.out;
  EXPECT_TRUE(told.json()["after"]["healthy"]) << told.out;
  // Without a source it says what would help.
  const Outcome alone = doppler({"doctor", in, "--reference", (demo / "reference.safetensors").string(),
                                 "--check", "texts", "--fix", dir / "alone.gguf"});
  EXPECT_EQ(alone.status, 1);
  EXPECT_NE(alone.out.find("not repaired: chat_role: with --source"), std::string::npos) << alone.out;
}

// A single value of a tokenizer's files needs no source.
TEST(DoctorFix, SetsStopTokens) {
  const fs::path demo = data_path("") / "../../demo";
  const TempDir dir;
  fs::create_directory(dir / "demo");
  for (const auto& entry : fs::directory_iterator(demo)) {
    if (entry.is_regular_file()) fs::copy_file(entry.path(), dir / "demo" / entry.path().filename());
  }
  write_file(dir / "demo/generation_config.json", R"({"eos_token_id": 1, "pad_token_id": 0})");
  const Outcome told =
      doppler({"doctor", dir / "demo", "--reference", (demo / "reference.safetensors").string(), "--check",
               "texts", "--fix", dir / "out", "--json"});
  EXPECT_EQ(told.status, 0) << told.out << told.err;
  EXPECT_EQ(told.json()["before"]["findings"][0]["cause"], "stop_tokens") << told.out;
  EXPECT_TRUE(told.json()["after"]["healthy"]) << told.out;
}

// Values that are lost are nowhere in the files.
TEST(DoctorFix, SaysWhyNothingIsWritten) {
  PatientFolder patient("llama");
  tensor("mlp.down_proj.weight", [](RawTensor& t) { t.zero_from(0.5); })(patient);
  const TempDir dir;
  const Outcome told = doppler({"doctor", patient.path(), "--reference", patient.recording(), "--backend",
                                "reference", "--fix", dir / "out"});
  EXPECT_EQ(told.status, 1) << told.out << told.err;
  EXPECT_NE(told.out.find("not repaired: "), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("the right values are not in the files"), std::string::npos) << told.out;
  EXPECT_FALSE(fs::exists(dir / "out"));
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
