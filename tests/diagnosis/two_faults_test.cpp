// Two faults at once: in one op, where neither repair alone restores agreement, and in two, of which both are
// found.
#include "diagnosis/compare/thinned.h"
#include "diagnosis/doctor_patients.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::data_path;

struct TwoFaults {
  const char *name, *model;
  void (*harm)(ModelSpec& spec);
  const char *cause, *stage, *repair;  // of the first finding; part of its repair
  std::size_t findings = 1;
};
constexpr TwoFaults kTwoFaults[] = {
    {"base_and_scaling", "llama3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers)
         layer.attention.rope.theta = 10000, layer.attention.rope.scaling = {};
     },
     "rope_theta", "q_rope", "Set rope_theta to 500000 (it is 10000), and rope_scaling"},
    {"scale_and_softcap", "gemma2",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers) layer.attention.scale = 1, layer.attention.softcap = 0;
     },
     "attention_scale", "attn_out", "and attn_logit_softcapping to 50"},
    {"offset_and_epsilon", "gemma3", [](ModelSpec& spec) { spec.norm = {.eps = 1e-3, .weight_offset = 0}; },
     "norm_weight_offset", "attn_normed",
     "Set rms_norm_weight_offset to 1 (it is 0) and rms_norm_eps to 1e-06"},
    {"scale_and_activation", "qwen3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers) layer.attention.scale *= 2;
       for (LayerSpec& layer : spec.layers) layer.ffn.activation = Activation::kGeluTanh;
     },
     "attention_scale", "attn_out", "query_pre_attn_scalar", 2},
    {"base_and_dims", "llama3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers)
         layer.attention.rope.theta = 10000, layer.attention.rope.rotary_dim /= 2;
     },
     "rope_theta", "q_rope", "Set rope_theta to 500000 (it is 10000), and partial_rotary_factor to 1"},
    {"layout_and_scaling", "llama3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers)
         layer.attention.rope.layout = RopeLayout::kInterleaved, layer.attention.rope.scaling = {};
     },
     "rope_scaling", "q_rope", "llama3's with the factor 32 from 64 and pairs lie half a head apart"},
    {"scale_and_window", "llama3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers)
         layer.attention.scale = 1, layer.attention.window = 8,
         layer.attention.kind = AttentionKind::kSliding;
     },
     "attention_scale", "attn_out", "and sliding_window to null (it is 8)"},
    // A window on every layer is a window, not the other kind of layers, although the base is wrong, too.
    {"base_and_window", "llama3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers) {
         layer.attention.rope.theta = 10000, layer.attention.window = 8;
         layer.attention.kind = AttentionKind::kSliding;
       }
     },
     "rope_theta", "q_rope", "500000", 2},
};

class TwoAtOnce : public ::testing::TestWithParam<TwoFaults> {};

TEST_P(TwoAtOnce, AreBothNamed) {
  const TwoFaults& two = GetParam();
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models") / two.model));
  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       open_recording(data_path("models") / two.model / "reference.safetensors"));
  Subject subject = subject_of(loaded, "reference");
  two.harm(subject.spec);
  ASSERT_OK_AND_ASSIGN(
      const Diagnosis diagnosis,
      diagnose(subject, {.reference = &recording, .seconds = 600, .only = {"recording", "truth"}}));
  ASSERT_EQ(diagnosis.findings.size(), two.findings) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].cause, two.cause) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].stage, two.stage) << all_findings(diagnosis);
  EXPECT_NE(diagnosis.findings[0].repair.find(two.repair), std::string::npos) << all_findings(diagnosis);
}

INSTANTIATE_TEST_SUITE_P(Doctor, TwoAtOnce, ::testing::ValuesIn(kTwoFaults),
                         [](const auto& test) { return std::string(test.param.name); });

// Between two recorded stages: hidden states only.
struct TwoInAChain {
  const char *name, *model;
  void (*harm)(ModelSpec& spec);
  std::vector<std::string> causes;
};
const TwoInAChain kTwoInAChain[] = {
    {"base_and_softcap",
     "qwen3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers) layer.attention.rope.theta = 10000, layer.attention.softcap = 50;
     },
     {"rope_theta", "attention_softcap"}},
    {"scale_and_activation",
     "qwen3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers)
         layer.attention.scale = 1, layer.ffn.activation = Activation::kGeluTanh;
     },
     {"attention_scale", "activation"}},
    {"norms_and_base",
     "gemma3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers)
         layer.attention.qk_norm = false, layer.attention.rope.theta = 10000;
     },
     {"qk_norm_missing", "rope_theta"}},
    {"base_and_window",
     "llama3",
     [](ModelSpec& spec) {
       for (LayerSpec& layer : spec.layers) {
         layer.attention.rope.theta = 10000, layer.attention.window = 8;
         layer.attention.kind = AttentionKind::kSliding;
       }
     },
     {"rope_theta", "sliding_window"}},
};

class TwoAlongAChain : public ::testing::TestWithParam<TwoInAChain> {};

TEST_P(TwoAlongAChain, AreBothNamed) {
  const TwoInAChain& two = GetParam();
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, testing::load_patient(data_path("models") / two.model));
  ASSERT_OK_AND_ASSIGN(const Recording whole,
                       open_recording(data_path("models") / two.model / "reference.safetensors"));
  ASSERT_OK_AND_ASSIGN(const Recording recording, thin(whole, *find_thinning("hidden_states")));
  Subject subject = subject_of(loaded, "reference");
  two.harm(subject.spec);
  ASSERT_OK_AND_ASSIGN(
      const Diagnosis diagnosis,
      diagnose(subject, {.reference = &recording, .seconds = 600, .only = {"recording", "truth"}}));
  std::vector<std::string> causes;
  for (const Finding& finding : diagnosis.findings) causes.push_back(finding.cause);
  std::ranges::sort(causes);
  std::vector<std::string> expected = two.causes;
  std::ranges::sort(expected);
  EXPECT_EQ(causes, expected) << all_findings(diagnosis);
}

INSTANTIATE_TEST_SUITE_P(Doctor, TwoAlongAChain, ::testing::ValuesIn(kTwoInAChain),
                         [](const auto& test) { return std::string(test.param.name); });

// A weight whose rows have the order of GGUF's rotary pairs, transposed besides.
TEST(TwoFaults, TransposedAndPermuted) {
  testing::PatientFolder patient("llama");
  patient.change_tensors([](testing::RawTensors& all) {
    testing::RawTensor& weight = all.at("model.layers.1.self_attn.q_proj.weight");
    constexpr std::size_t kDim = 32;
    weight.permute([](std::size_t row) {
      const std::size_t i = row % kDim;
      return row / kDim * kDim + (i % 2) * kDim / 2 + i / 2;
    });
    weight.transpose();
  });
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis,
                       testing::examine(patient.path(), patient.recording(), "reference"));
  ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].cause, "weight_transposed") << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings[0].stage, "q_proj");
  EXPECT_NE(diagnosis.findings[0].explanation.find("order of rotary pairs"), std::string::npos);
}

// Rows and bias of one product: moved together, or each wrong in its own way.
TEST(TwoFaults, RowsAndBias) {
  const auto in_pairs = [](std::size_t row) {
    constexpr std::size_t kDim = 16;
    const std::size_t i = row % kDim;
    return row / kDim * kDim + (i % 2) * kDim / 2 + i / 2;
  };
  struct Case {
    const char* says;
    std::function<void(testing::RawTensor& bias)> harm;
  };
  const Case kCases[] = {
      {"and the values of model.layers.1.self_attn.q_proj.bias with them",
       [&](testing::RawTensor& bias) {
         bias.shape = {bias.shape[0], 1};  // each value is a row
         bias.permute(in_pairs);
         bias.shape = {bias.shape[0]};
       }},
      {"and model.layers.1.self_attn.q_proj.bias is multiplied by 0.5",
       [](testing::RawTensor& bias) { bias.each([](float x) { return 2 * x; }); }},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.says);
    testing::PatientFolder patient("qwen2");
    patient.change_tensors([&](testing::RawTensors& all) {
      all.at("model.layers.1.self_attn.q_proj.weight").permute(in_pairs);
      c.harm(all.at("model.layers.1.self_attn.q_proj.bias"));
    });
    ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis,
                         testing::examine(patient.path(), patient.recording(), "reference"));
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, "weight_permuted") << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].stage, "q_proj");
    EXPECT_NE(diagnosis.findings[0].explanation.find(c.says), std::string::npos) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].fixes.size(), 2u);
  }
}

}  // namespace
}  // namespace doppler::diagnosis
