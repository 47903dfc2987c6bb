// Recordings as people have them, with fewer stages than a model computes: healthy models have no finding,
// whatever is left out; a fault is found in the layer, or among the ops, that the recording can tell apart.
#include <algorithm>

#include "diagnosis/compare/thinned.h"
#include "diagnosis/doctor_patients.h"
#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::data_path;

// What the checks that read a recording say of it.
Result<Diagnosis> examine_partly(const Loaded& loaded, const Recording& recording,
                                 const std::string& fault = {}, double seconds = 600) {
  Subject subject = subject_of(loaded, "reference");
  if (!fault.empty()) {
    DOPPLER_TRY(inject(fault, subject));
  }
  return diagnose(subject, {.reference = &recording, .seconds = seconds, .only = {"recording", "truth"}});
}

struct ThinnedModel {
  const char *file, *recording;  // below tests/data; of which model
};
constexpr ThinnedModel kPartlyRecorded[] = {
    {"models/llama", "llama"},
    {"models/llama3", "llama3"},
    {"models/mistral", "mistral"},
    {"models/qwen2", "qwen2"},
    {"models/qwen3", "qwen3"},
    {"models/phi3", "phi3"},
    {"models/gemma2", "gemma2"},
    {"models/gemma3", "gemma3"},
    {"models/gemma3_k288", "gemma3_k288"},
    {"models/cohere", "cohere"},      // attention and feed-forward side by side: a sum without a name
    {"models/glm4_moe", "glm4_moe"},  // experts, and what every token goes through beside them
    {"models/qwen3_5", "qwen3_5"},    // recurrent layers, and attention with a gate
    {"models/mamba2", "mamba2"},
    {"models/deepseek_v3", "deepseek_v3"},  // keys that hold the values
    {"models/gemma4_ple", "gemma4_ple"},    // keys and values of another layer
    {"gguf/llama.gguf", "llama"},
    {"gguf/gemma3.gguf", "gemma3"},
    // Quantised: the recording is of the float weights.
    {"gguf/llama.Q8_0.gguf", "llama"},
    {"gguf/llama.Q4_0.gguf", "llama"},
    {"gguf/gemma3_k288.Q4_K_M.gguf", "gemma3_k288"},
};

class HealthyPartly : public ::testing::TestWithParam<ThinnedModel> {};

TEST_P(HealthyPartly, HasNoFinding) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path(GetParam().file), 64));
  ASSERT_OK_AND_ASSIGN(const Recording whole,
                       open_recording(data_path("models") / GetParam().recording / "reference.safetensors"));
  for (const Thinning& thinning : all_thinnings()) {
    SCOPED_TRACE(thinning.name);
    ASSERT_OK_AND_ASSIGN(const Recording recording, thin(whole, thinning));
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_partly(loaded, recording));
    EXPECT_TRUE(diagnosis.healthy()) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.checks.back().state, CheckState::kOk) << diagnosis.checks.back().text;
    EXPECT_FALSE(diagnosis.untested.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Doctor, HealthyPartly, ::testing::ValuesIn(kPartlyRecorded),
                         [](const auto& test) { return testing::as_test_name(test.param.file); });

struct PartlyRecorded {
  const char *fault, *model, *thinning;
  const char* cause;
  const char* place;  // the finding's stage, or among those that it says it cannot tell apart
};
constexpr PartlyRecorded kPartlyFaulty[] = {
    // A number of the description, wrong in every layer.
    {"rope_theta_default", "llama3", "hidden_states", "rope_theta", "layers.0.q_rope"},
    {"rope_theta_default", "llama3", "block_outputs", "rope_theta", "layers.0.q_rope"},
    {"rope_theta_default", "llama3", "no_qkv", "rope_theta", "layers.0.q_rope"},
    {"rope_theta_default", "llama3", "logits", "rope_theta", "layers.0.q_rope"},
    {"rope_theta_default", "llama3", "one_layer", "rope_theta", "layers.1.q_rope"},
    {"norm_offset_missing", "gemma3", "hidden_named", "norm_weight_offset", "layers.0.attn_normed"},
    {"norm_eps_large", "qwen3", "hidden_states", "norm_eps", "layers.0.attn_normed"},
    {"attention_scale_twice", "llama3", "hidden_states", "attention_scale", "layers.0.attn_out"},
    {"window_one_small", "gemma3", "hidden_states", "sliding_window", "layers.0.attn_out"},
    {"activation_wrong", "qwen3", "hidden_states", "activation", "layers.0.ffn_act"},
    {"activation_wrong", "cohere", "hidden_states", "activation", "layers.0.ffn_act"},
    {"activation_wrong", "glm4_moe", "hidden_states", "activation", "layers.0.ffn_act"},
    {"qk_norm_missing", "qwen3", "hidden_states", "qk_norm_missing", "layers.0.q_norm"},
    {"post_attn_norm_missing", "gemma3", "hidden_states", "post_norm_missing", "layers.0.post_attn_norm"},
    {"final_norm_offset", "gemma3", "hidden_states", "norm_weight_offset", "final_norm"},
    {"embedding_scale_missing", "gemma3", "block_outputs", "embedding_scale", "embed_out"},
    // Along norms that have no weights.
    {"shared_expert_ungated", "qwen3_next", "hidden_states", "shared_expert_gate", "layers.0.ffn_shared"},
    // One weight, in layer 1.
    {"k_v_swapped", "llama3", "hidden_states", "tensor_swapped", "layers.1.k_proj"},
    {"stale_layer", "llama3", "hidden_states", "stale_weight", "layers.1.o_proj"},
    {"rotary_rows_permuted", "llama3", "hidden_states", "rope_layout", "layers.0.q_proj"},
    {"bf16_read_as_f16", "llama3", "hidden_states", "wrong_dtype", "layers.1.k_proj"},
    {"weight_doubled", "llama3", "hidden_states", "weight_scaled", "layers.1.v_proj"},
    // What no repair names is found in its layer, and nothing is blamed that is not recorded.
    {"sign_flip", "llama3", "hidden_states", "unknown", "layers.1.ffn_up"},
};

class SickPartly : public ::testing::TestWithParam<PartlyRecorded> {};

TEST_P(SickPartly, IsFoundAsFarAsTheRecordingTells) {
  const PartlyRecorded& p = GetParam();
  const auto folder = data_path("models") / p.model;
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(folder, 64));
  ASSERT_OK_AND_ASSIGN(const Recording whole, open_recording(folder / "reference.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, thin(whole, *find_thinning(p.thinning)));
  // What nothing repairs is not searched to the end, which changes nothing of what is found.
  const double seconds = std::string_view(p.cause) == "unknown" ? 3 : 600;
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_partly(loaded, recording, p.fault, seconds));
  ASSERT_FALSE(diagnosis.healthy());
  const Finding& first = diagnosis.findings[0];
  EXPECT_EQ(first.cause, p.cause) << all_findings(diagnosis);
  const auto stage = stage_from_name(first.stage);
  ASSERT_TRUE(stage) << first.stage;
  EXPECT_TRUE(stage_key(*stage, first.layer) == p.place || std::ranges::count(first.among, p.place) == 1)
      << all_findings(diagnosis);
}

INSTANTIATE_TEST_SUITE_P(Doctor, SickPartly, ::testing::ValuesIn(kPartlyFaulty), [](const auto& test) {
  return std::string(test.param.fault) + "_" + test.param.model + "_" + test.param.thinning;
});

// What the recording cannot show is said, also of a healthy model.
// With logits alone, what a model leaves out and has weights for is among what may be wrong; so are weights
// that would show the same.
TEST(PartialRecording, LogitsAloneLeaveWhatIsLeftOutOrTheSame) {
  constexpr std::pair<const char*, const char*> kCases[] = {{"layer_left_out", "layers.2.attn_input"},
                                                            {"gate_up_swapped", "layers.0.ffn_gate"}};
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/llama3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording whole,
                       open_recording(data_path("models/llama3") / "reference.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, thin(whole, *find_thinning("logits")));
  for (const auto& [fault, place] : kCases) {
    SCOPED_TRACE(fault);
    constexpr double kSeconds = 3;  // what nothing explains takes all
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_partly(loaded, recording, fault, kSeconds));
    ASSERT_FALSE(diagnosis.healthy());
    const Finding& first = diagnosis.findings[0];
    EXPECT_NE(std::ranges::find(first.among, place), first.among.end()) << all_findings(diagnosis);
  }
}

TEST(PartialRecording, TellsWhatItCannotTest) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/mistral"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording whole,
                       open_recording(data_path("models/mistral/reference.safetensors")));
  ASSERT_OK_AND_ASSIGN(const Recording recording, thin(whole, *find_thinning("one_layer")));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_partly(loaded, recording));
  const auto says = [&](std::string_view words) {
    return std::ranges::any_of(diagnosis.untested, [&](const std::string& s) { return s.contains(words); });
  };
  EXPECT_TRUE(says("nothing recorded depends on them"));
  EXPECT_TRUE(says("positions from"));
}

// The last of transformers' hidden_states is normed: known by its rows' length.
TEST(PartialRecording, KnowsANormedLastLayer) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models/gemma3"), 64));
  ASSERT_OK_AND_ASSIGN(const Recording whole,
                       open_recording(data_path("models/gemma3/reference.safetensors")));
  ASSERT_OK_AND_ASSIGN(const Recording recording, thin(whole, *find_thinning("hidden_states")));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_partly(loaded, recording));
  EXPECT_NE(diagnosis.checks[0].text.find("layers.6.layer_out is normed already"), std::string::npos)
      << diagnosis.checks[0].text;
}

}  // namespace
}  // namespace doppler::diagnosis
