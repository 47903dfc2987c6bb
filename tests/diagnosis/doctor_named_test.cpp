// Real files with real faults: the doctor names the cause, and names nothing else.
#include "base/json.h"
#include "diagnosis/doctor_patients.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::examine;
using testing::PatientFolder;
using testing::RawTensor;
using testing::RawTensors;

struct Case {
  const char* name;
  const char* model;
  const char* cause;
  const char* stage;  // of the finding; empty: none is asked for
  int layer;
  std::function<void(PatientFolder&)> harm;
};

std::function<void(PatientFolder&)> config(std::function<void(Json&)> change) {
  return [change = std::move(change)](PatientFolder& patient) { patient.change_json("config.json", change); };
}

std::function<void(PatientFolder&)> tensors(std::function<void(RawTensors&)> change) {
  return [change = std::move(change)](PatientFolder& patient) { patient.change_tensors(change); };
}

std::string weight(int layer, const char* name) {
  return fmt::format("model.layers.{}.{}.weight", layer, name);
}

std::function<void(PatientFolder&)> tensor(std::string name, std::function<void(RawTensor&)> change) {
  return tensors(
      [name = std::move(name), change = std::move(change)](RawTensors& all) { change(all.at(name)); });
}

std::function<void(PatientFolder&)> swap(std::string a, std::string b) {
  return tensors([a, b](RawTensors& all) { std::swap(all.at(a), all.at(b)); });
}

void set_theta(Json& config, const char* kind, double theta) {
  Json& parameters = config["rope_parameters"];
  (kind == nullptr ? parameters : parameters[kind])["rope_theta"] = theta;
}

std::size_t ggufs_order(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % 2) * dim / 2 + i / 2;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      // Values of config.json
      {"norm_eps", "llama", "norm_eps", "attn_normed", 0, config([](Json& c) { c["rms_norm_eps"] = 1e-6; })},
      {"norm_eps_of_gemma", "gemma3", "norm_eps", "attn_normed", 0, config([](Json& c) { c["rms_norm_eps"] = 1e-5; })},
      {"theta", "qwen3", "rope_theta", "q_rope", 0, config([](Json& c) { set_theta(c, nullptr, 10000); })},
      {"theta_local", "gemma3", "rope_theta", "q_rope", 0, config([](Json& c) { set_theta(c, "sliding_attention", 1e6); })},
      {"scaling_missing", "llama3", "rope_scaling", "q_rope", 0, config([](Json& c) { c["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}}; })},
      {"scaling_linear", "llama3", "rope_scaling", "q_rope", 0, config([](Json& c) { c["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "linear"}, {"factor", 32.0}}; })},
      {"rotary_dims", "phi3", "rope_dims", "q_rope", 0, config([](Json& c) { c["rope_parameters"]["partial_rotary_factor"] = 0.5; })},
      {"window", "gemma3", "sliding_window", "attn_out", 0, config([](Json& c) { c["sliding_window"] = 7; })},
      {"window_missing", "mistral", "sliding_window", "attn_out", 0, config([](Json& c) { c["sliding_window"] = nullptr; })},
      {"window_beyond_the_prompt", "demo", "sliding_window", "attn_out", 0, config([](Json& c) { c["sliding_window"] = 12; })},
      {"layer_types", "gemma3", "layer_types", "q_rope", 0, config([](Json& c) { c["layer_types"][0] = "full_attention"; })},
      {"query_scalar", "gemma2", "attention_scale", "attn_out", 0, config([](Json& c) { c["query_pre_attn_scalar"] = 100; })},
      {"softcap", "gemma2", "attention_softcap", "attn_out", 0, config([](Json& c) { c["attn_logit_softcapping"] = nullptr; })},
      {"final_softcap", "gemma2", "final_softcap", "logits_final", -1, config([](Json& c) { c["final_logit_softcapping"] = nullptr; })},
      {"activation", "gemma3", "activation", "ffn_act", 0, config([](Json& c) { c["hidden_activation"] = "silu"; })},
      {"heads", "llama", "head_grouping", "q_rope", 0, config([](Json& c) {
         c["num_attention_heads"] = 8, c["num_key_value_heads"] = 4, c["head_dim"] = 16;
       })},
      {"tied", "llama", "tied_head", "", -1, config([](Json& c) { c["tie_word_embeddings"] = true; })},
      {"layers", "llama", "layer_count", "", -1, config([](Json& c) { c["num_hidden_layers"] = 2; })},
      {"family_without_qk_norm", "qwen3", "qk_norm_missing", "", -1, config([](Json& c) { c["model_type"] = "llama"; })},
      {"family_without_bias", "qwen2", "bias_missing", "", -1, config([](Json& c) { c["model_type"] = "llama"; })},
      // Tensors
      {"truncated_file", "llama", "truncated_weight", "", -1, [](PatientFolder& p) { p.truncate("model.safetensors", 0.7); }},
      {"truncated_tensor", "llama", "truncated_weight", "ffn_out", 1, tensor(weight(1, "mlp.down_proj"), [](RawTensor& t) { t.zero_from(0.5); })},
      {"nan", "llama", "weight_nan", "ffn_up", 2, tensor(weight(2, "mlp.up_proj"), [](RawTensor& t) { t.bytes[100] = std::byte{0xc0}, t.bytes[101] = std::byte{0x7f}; })},
      {"transposed", "llama", "weight_transposed", "q_proj", 1, tensor(weight(1, "self_attn.q_proj"), [](RawTensor& t) { t.transpose(); })},
      {"rotary_rows", "llama", "weight_permuted", "q_proj", 0, tensor(weight(0, "self_attn.q_proj"), [](RawTensor& t) {
         t.permute([](std::size_t r) { return ggufs_order(r, 32); });
       })},
      {"shifted", "llama", "weight_shifted", "v_proj", 1, tensor(weight(1, "self_attn.v_proj"), [](RawTensor& t) {
         t.permute([&](std::size_t r) { return (r + 1) % t.rows(); });
       })},
      {"stale", "llama", "stale_weight", "o_proj", 2, tensors([](RawTensors& all) {
         all[weight(2, "self_attn.o_proj")] = all[weight(1, "self_attn.o_proj")];
       })},
      {"swapped_layers", "llama", "tensor_swapped", "ffn_out", 0, swap(weight(0, "mlp.down_proj"), weight(2, "mlp.down_proj"))},
      {"swapped_norms", "qwen3", "tensor_swapped", "q_norm", 1, swap(weight(1, "self_attn.q_norm"), weight(1, "self_attn.k_norm"))},
      {"gate_and_up", "llama", "gate_up_swapped", "ffn_gate", 1, swap(weight(1, "mlp.gate_proj"), weight(1, "mlp.up_proj"))},
      {"dtype", "llama", "wrong_dtype", "k_proj", 1, tensor(weight(1, "self_attn.k_proj"), [](RawTensor& t) { t.dtype = DType::kF16; })},
      {"scaled", "qwen2", "weight_scaled", "v_proj", 1, tensor(weight(1, "self_attn.v_proj"), [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"norms_plus_one", "gemma3", "norm_weight_offset", "attn_normed", 0, tensors([](RawTensors& all) {
         for (auto& [name, t] : all) {
           if (name.find("norm") != std::string::npos) t.each([](float x) { return x + 1; });
         }
       })},
      {"embedding_rows", "demo", "weight_shifted", "embed_out", -1, tensor("model.embed_tokens.weight", [](RawTensor& t) {
         t.permute([&](std::size_t r) { return (r + t.rows() - 1) % t.rows(); });
       })},
      // Small weights, which are measured
      {"layer_norm_scaled", "phi", "weight_scaled", "attn_normed", 1, tensor(weight(1, "input_layernorm"), [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"layer_norm_bias", "nemotron", "weight_scaled", "ffn_normed", 1, tensor("model.layers.1.post_attention_layernorm.bias", [](RawTensor& t) { t.each([](float x) { return -x; }); })},
      {"norm_and_bias_exchanged", "nemotron", "tensor_swapped", "attn_normed", 1, swap("model.layers.1.input_layernorm.bias", "model.layers.1.input_layernorm.weight")},
      {"norm_of_all_heads", "olmo3", "weight_scaled", "q_norm", 1, tensor(weight(1, "self_attn.q_norm"), [](RawTensor& t) { t.each([](float x) { return -2 * x; }); })},
      {"taps", "lfm2", "weight_scaled", "conv_out", 1, tensor("model.layers.1.conv.conv.weight", [](RawTensor& t) { t.each([](float x) { return -x; }); })},
      {"step_bias", "qwen3_5", "weight_scaled", "delta_decay", 1, tensor("model.layers.1.linear_attn.dt_bias", [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"layer_scalar", "gemma4_ple", "weight_wrong", "layer_out", 1, tensor("model.layers.1.layer_scalar", [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"norm_eps_beside_norms_without_weight", "gemma4_keqv", "norm_eps", "attn_normed", 0, config([](Json& c) { c["rms_norm_eps"] = 3e-5; })},
      // Experts, one of them
      {"expert_scaled", "deepseek_v3", "weight_scaled", "ffn_up", 1, tensor("model.layers.1.mlp.experts.2.down_proj.weight", [](RawTensor& t) { t.each([](float x) { return 2 * x; }); })},
      {"expert_wrong", "deepseek_v3", "weight_wrong", "ffn_experts", 1, tensor("model.layers.1.mlp.experts.2.up_proj.weight", [](RawTensor& t) { t.each([](float x) { return x * x; }); })},
      {"expert_gate_and_up", "qwen3_next", "gate_up_swapped", "ffn_gate", 1, swap("model.layers.1.mlp.experts.2.gate_proj.weight", "model.layers.1.mlp.experts.2.up_proj.weight")},
      {"fewer_experts", "gpt_oss", "router_choice", "router_ids", 0, config([](Json& c) { c["num_experts_per_tok"] = 3; })},
      // Rotations of other kinds
      {"yarn_factor", "gpt_oss", "rope_scaling", "q_rope", 0, config([](Json& c) { c["rope_parameters"]["factor"] = 44.0; })},
      {"interleaved_latent", "deepseek_v3", "rope_layout", "q_rope", 0, config([](Json& c) { c["rope_interleave"] = false; })},
      {"proportional", "gemma4_keqv", "rope_dims", "q_rope", -2, config([](Json& c) { c["rope_parameters"]["full_attention"]["rope_type"] = "default"; })},
      {"kinds_of_layers_that_turn", "exaone4", "layer_types", "attn_out", 2, config([](Json& c) {
         c["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention"};
       })},
      // Text
      {"merges", "demo", "merges_dropped", "", -1, [](PatientFolder& p) {
         p.change_json("tokenizer.json", [](Json& t) { t["model"]["merges"] = Json::array(); });
       }},
      {"bos", "demo", "bos_missing", "", -1, [](PatientFolder& p) {
         p.change_json("tokenizer.json", [](Json& t) { t["post_processor"] = nullptr; });
         p.change_json("tokenizer_config.json", [](Json& t) { t["add_bos_token"] = false; });
       }},
      {"merges_in_reverse", "demo", "merges_order", "", -1, [](PatientFolder& p) {
         p.change_json("tokenizer.json", [](Json& t) {
           auto& merges = t["model"]["merges"];
           std::reverse(merges.begin(), merges.end());
         });
       }},
      {"stops_at_a_word", "demo", "stop_tokens", "", -1, [](PatientFolder& p) {
         p.change_json("generation_config.json", [](Json& g) { g["eos_token_id"] = 900; });
       }},
      {"template_forgets", "demo", "chat_template", "", -1, [](PatientFolder& p) {
         testing::write_file(p.path() / "chat_template.jinja", "{{ bos_token }}{{ messages[-1]['content'] }}");
       }},
      {"markers_as_text", "demo", "special_tokens", "", -1, [](PatientFolder& p) {
         p.change_json("tokenizer.json", [](Json& t) { t["added_tokens"] = Json::array(); });
       }},
      {"heads_of_another_size", "demo", "tensor_shape", "q_norm", 0, config([](Json& c) {
         c["num_attention_heads"] = 8, c["num_key_value_heads"] = 4, c["head_dim"] = 32;
       })},
      {"two_bos", "demo", "double_bos", "", -1, [](PatientFolder& p) {
         const std::string text = testing::read_file(p.path() / "chat_template.jinja");
         testing::write_file(p.path() / "chat_template.jinja", "{{- bos_token -}}" + text);
       }},
  };
  return kCases;
}

class Named : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Named, AndNothingElse) {
  const Case& c = cases()[GetParam()];
  PatientFolder patient(c.model);
  c.harm(patient);
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), patient.recording()));
  ASSERT_FALSE(diagnosis.healthy());
  const Finding& first = diagnosis.findings[0];
  EXPECT_EQ(first.cause, c.cause) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  if (*c.stage != '\0') {
    EXPECT_EQ(first.stage, c.stage) << all_findings(diagnosis);
  }
  if (*c.stage != '\0' && c.layer != -2) {
    EXPECT_EQ(first.layer, c.layer);
  }
  EXPECT_GT(first.confidence, 0.3);
  EXPECT_FALSE(first.repair.empty());
}

INSTANTIATE_TEST_SUITE_P(Doctor, Named, ::testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& test) { return cases()[test.param].name; });

// Without the truth the files still tell something.
TEST(DoctorAlone, SeesWhatTheWeightsShow) {
  for (const char* name : {"nan", "truncated_tensor", "stale", "merges"}) {
    const auto found =
        std::ranges::find_if(cases(), [&](const Case& c) { return std::string(c.name) == name; });
    PatientFolder patient(found->model);
    found->harm(patient);
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), {}));
    ASSERT_FALSE(diagnosis.healthy()) << name;
    EXPECT_EQ(diagnosis.findings[0].cause, found->cause) << all_findings(diagnosis);
  }
}

TEST(DoctorAlone, FindsShiftedEmbeddingsByTheirNeighbours) {
  const auto found =
      std::ranges::find_if(cases(), [](const Case& c) { return std::string(c.name) == "embedding_rows"; });
  PatientFolder patient("demo");
  found->harm(patient);
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), {}));
  ASSERT_FALSE(diagnosis.healthy());
  EXPECT_EQ(diagnosis.findings[0].cause, "weight_shifted");
}

TEST(Doctor, ReportsIndependentFaultsOnceEach) {
  PatientFolder patient("gemma3");
  patient.change_json("config.json", [](Json& c) {
    c["hidden_activation"] = "silu";
    c["query_pre_attn_scalar"] = 64;
  });
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), patient.recording()));
  ASSERT_EQ(diagnosis.findings.size(), 2u) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].cause, "attention_scale");
  EXPECT_EQ(diagnosis.findings[1].cause, "activation");
  EXPECT_EQ(diagnosis.findings[1].places, 7u);
}

// Cohere multiplies logits, Granite divides them.
TEST(Doctor, NamesAWrongScaleOfLogits) {
  for (const auto& [model, key] : {std::pair{"cohere", "logit_scale"}, {"granite", "logits_scaling"}}) {
    PatientFolder patient(model);
    double own = 0;
    patient.change_json("config.json", [&](Json& c) { own = c[key], c[key] = 1 / own; });
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), patient.recording()));
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, "logit_scale") << all_findings(diagnosis);
    EXPECT_NE(diagnosis.findings[0].repair.find(fmt::format("{} in config.json to {}", key, own)),
              std::string::npos)
        << diagnosis.findings[0].repair;
  }
}

TEST(Doctor, SaysInJsonWhatItFound) {
  PatientFolder patient("llama");
  patient.change_json("config.json", [](Json& c) { c["rms_norm_eps"] = 1e-6; });
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine(patient.path(), patient.recording()));
  const Json json = to_json(diagnosis);
  EXPECT_EQ(json["healthy"], false);
  ASSERT_EQ(json["findings"].size(), 1u);
  for (const char* key : {"stage", "layer", "cause", "explanation", "repair", "confidence"})
    EXPECT_TRUE(json["findings"][0].contains(key)) << key;
  EXPECT_NE(json["findings"][0]["explanation"].get<std::string>().find("agrees when epsilon is 1e-05"),
            std::string::npos);
}

TEST(Doctor, RefusesChecksThatDoNotExist) {
  EXPECT_ERROR(diagnose({}, {.only = {"nose"}}), "no check nose", "tied_head");
}

}  // namespace
}  // namespace doppler::diagnosis
