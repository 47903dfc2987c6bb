// Faults of layers that keep a state, of latent attention, of heads that rotate in part, and of multipliers:
// they show where the table says, and the doctor names them beside recordings of transformers.
#include <algorithm>

#include "diagnosis/doctor_patients.h"
#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;

struct StateFault {
  const char *fault, *model;
  const char* repair;  // some of its words
};
constexpr StateFault kStateFaults[] = {
    {"convolution_reversed", "mamba2", "oldest first"},
    {"convolution_reversed", "lfm2", "oldest first"},
    {"convolution_late", "lfm2", "zeros in front"},
    {"convolution_late", "qwen3_5", "zeros in front"},
    {"convolution_bias_missing", "mamba2", "conv1d.bias"},
    {"decay_not_logarithms", "mamba2", "a folder A_log"},
    {"decay_not_logarithms", "qwen3_5", "a folder A_log"},
    {"decay_not_logarithms", "jamba", "Convert model.layers.3.mamba.A_log again"},
    {"decay_sign", "nemotron_h", "exp(-exp(A_log) step)"},
    {"decay_sign", "qwen3_5", "exp(-exp(A_log) step)"},
    {"decay_without_exp", "mamba2", "exp(-exp(A_log) step)"},
    {"decay_rate_missing", "qwen3_next", "exp(-exp(A_log) step)"},
    {"decay_in_16_bits", "mamba2", "float32"},
    {"decay_in_16_bits", "qwen3_5", "float32"},
    {"step_bias_missing", "mamba2", "mixer.dt_bias to the time step"},
    {"step_bias_missing", "jamba", "dt_proj.bias to the time step"},
    {"step_bias_missing", "qwen3_5", "dt_bias to the time step"},
    {"state_not_reset", "mamba2", "after clear()"},
    {"state_not_reset", "qwen3_5", "after clear()"},
    {"state_not_carried", "jamba", "from step to step"},
    {"state_not_carried", "lfm2", "from step to step"},
    {"states_shared", "qwen3_5", "slots share nothing"},
    {"latent_norm_missing", "deepseek_v3", "self_attn.kv_a_layernorm.weight before anything reads it"},
    {"query_latent_norm_missing", "deepseek_v3", "self_attn.q_a_layernorm.weight before anything reads it"},
    {"latent_rope_on_first_dims", "deepseek_v3", "Rotate dims 16 to 23"},
    {"rope_on_last_dims", "phi", "Rotate dims 0 to 7"},
    {"rope_on_last_dims", "qwen3_next", "Rotate dims 0 to 5"},
    {"yarn_attention_factor_missing", "gpt_oss", "attention factor is 1.34657"},
    {"yarn_range_rounded", "gpt_oss", "rounded otherwise"},
    {"yarn_range_rounded", "deepseek_v3", "rounded otherwise"},
    {"residual_scale_missing", "granite", "Set residual_multiplier"},
    {"logit_scale_missing", "granite", "Set logits_scaling in config.json to 4"},
    {"logit_scale_missing", "cohere", "Set logit_scale in config.json to 0.25"},
    {"shared_expert_ungated", "qwen3_next", "mlp.shared_expert_gate.weight"},
};

void expect_named_on(const StateFault& row, const char* backend) {
  SCOPED_TRACE(fmt::format("{} in {} on {}", row.fault, row.model, backend));
  const auto folder = testing::patient_source(row.model);
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(folder, 64));
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(folder / "reference.safetensors"));
  Subject subject = subject_of(loaded, backend);
  subject.options.threads = 1;
  subject.options.gpu_setup.tune = false;
  ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject(row.fault, subject));
  ASSERT_OK_AND_ASSIGN(
      const Diagnosis diagnosis,
      diagnose(subject, {.reference = &recording,
                         .seconds = 600,
                         .only = {"recording", "truth", "ops", "again", "decode", "batch"}}));
  ASSERT_FALSE(diagnosis.findings.empty());
  const Finding& finding = diagnosis.findings[0];
  const auto info = std::ranges::find(all_faults(), row.fault, &FaultInfo::name);
  EXPECT_EQ(finding.cause, info->cause) << all_findings(diagnosis);
  EXPECT_NE(finding.repair.find(row.repair), std::string::npos) << describe(finding);
  const auto stage = stage_from_name(finding.stage);
  const std::string key = stage ? stage_key(*stage, finding.layer) : finding.stage;
  EXPECT_TRUE(key == place.key() || std::ranges::find(finding.among, place.key()) != finding.among.end())
      << place.key() << ", said " << key;
}

TEST(DoctorStates, FaultsAreNamedOnTheReference) {
  for (const StateFault& row : kStateFaults) expect_named_on(row, "reference");
}

TEST(DoctorStates, FaultsAreNamedOnTheCpu) {
  for (const StateFault& row : kStateFaults) expect_named_on(row, "cpu");
}

#if DOPPLER_GPU
// Those of execution, once each; descriptions and weights are judged beside the recording alone.
TEST(DoctorStates, FaultsOfExecutionAreNamedOnTheGpu) {
  std::vector<std::string_view> seen;
  for (const StateFault& row : kStateFaults) {
    const auto info = std::ranges::find(all_faults(), row.fault, &FaultInfo::name);
    if (info->kind != FaultKind::kExecution || std::ranges::find(seen, info->name) != seen.end()) continue;
    seen.push_back(info->name);
    expect_named_on(row, "gpu");
  }
  EXPECT_EQ(seen.size(), 9u);
}
#endif

}  // namespace
}  // namespace doppler::diagnosis
