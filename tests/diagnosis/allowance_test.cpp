// The error budget: healthy runs stay inside it with room to spare, and faults stand far outside.
#include "diagnosis/compare/allowance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "diagnosis/compare/compare_recordings.h"
#include "diagnosis/compare/compare_states.h"
#include "diagnosis/compare/op_errors.h"
#include "diagnosis/patient.h"
#include "model_fixture.h"
#include "quant/encode.h"
#include "quant/error.h"

namespace doppler::diagnosis {
namespace {

using testing::data_path;
using testing::Patient;

// Healthy values reach this share of their allowance at most; the hard bounds of single roundings (float16 of
// a value that nothing is added to) reach 1 / 1.5.
constexpr double kHealthy = 0.8;

BackendOptions options() {
  BackendOptions made{.threads = 2, .context = 64, .max_step_tokens = 32, .disabled_passes = {}};
  made.gpu_setup.self_check = false;  // tests leave nothing in the user's folders
  return made;
}

void expect_healthy(const Comparison& comparison, const std::string& what) {
  EXPECT_TRUE(comparison.agrees()) << what << " " << comparison.first_divergence();
  for (const StageComparison& c : comparison.stages) {
    if (is_recorded_state(c.key)) continue;  // compared whole
    ASSERT_TRUE(c.execution && c.description) << what << " " << c.key << ": " << c.untold;
    EXPECT_LT(c.execution->excess, kHealthy) << what << " " << c.key << " " << c.execution->error;
    EXPECT_LT(c.description->excess, kHealthy) << what << " " << c.key << " " << c.description->error;
  }
}

#ifdef DOPPLER_GPU
const std::vector<std::string> kBackends = {"reference", "cpu", "gpu"};
#else
const std::vector<std::string> kBackends = {"reference", "cpu"};
#endif

bool lacks_gpu(const Result<std::unique_ptr<Backend>>& made) {
  return !made && made.error().code == ErrorCode::kNotFound;
}

TEST(Allowance, HealthyFamiliesStayWithinIt) {
  for (const std::string& backend : kBackends) {
    for (const char* family : {"llama3", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"}) {
      // A GPU that is played in software takes its time: the family with every kind of op will do.
      if (backend == "gpu" && std::string(family) != "gemma2") continue;
      const Patient patient(family);
      auto made = make_backend(backend, patient.spec, patient.weights, options());
      if (lacks_gpu(made)) GTEST_SKIP() << made.error().message;
      ASSERT_OK(made);
      const auto comparison = compare_run(**made, patient.spec, patient.recording, {}, &patient.weights);
      ASSERT_OK(comparison);
      expect_healthy(*comparison, backend + " " + family);
      if (backend != "reference") continue;
      for (const StageComparison& c : comparison->stages) EXPECT_EQ(c.execution->error, 0) << c.key;
    }
  }
}

// Every op of every family is judged: where its inputs are no stages, with the ops that compute these, and
// with the rounding of all of them.
class AllowanceOf : public ::testing::TestWithParam<std::string> {};

TEST_P(AllowanceOf, EveryOpOfTheFamily) {
  for (const bool quantised : {false, true}) {
    testing::TinyModel tiny(GetParam());
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
    const auto names = testing::rule_of(GetParam()).weight_names;
    for (const WeightTensor& tensor : weight_tensors(spec, names)) {
      if (!quantised || tensor.info->kind != WeightKind::kProjection || tensor.shape.back() % 32 != 0)
        continue;
      testing::TinyTensor& stored = tiny.tensors.at(tensor.name);
      stored = testing::encoded(stored, DType::kQ8_0);
    }
    const TensorStore store = tiny.store();
    ASSERT_OK_AND_ASSIGN(const Weights weights, bind_weights(spec, names, store));
    ASSERT_OK_AND_ASSIGN(const auto oracle, make_backend("reference", spec, weights, options()));
    ASSERT_OK_AND_ASSIGN(Recording recording,
                         capture_run(*oracle, {.prompt_ids = {2, 5, 9, 33, 7, 41, 12, 8, 50, 3, 60},
                                               .metadata = {{"weights", describe_weights(weights)}}}));
    BackendOptions with = options();
    with.kv_type = KvType::kF16;
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("cpu", spec, weights, with));
    ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_run(*backend, spec, recording, {}, &weights));
    expect_healthy(comparison, quantised ? "in Q8_0" : "in floats");
    for (const StageComparison& c : comparison.stages)
      EXPECT_TRUE(c.explained || is_recorded_state(c.key)) << c.key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AllowanceOf, ::testing::ValuesIn(doppler::testing::family_names()),
                         [](const auto& test) { return test.param; });

// Eight-bit activations and half-precision caches beside the oracle's floats.
TEST(Allowance, HealthyQuantisedModelsStayWithinIt) {
  for (const char* file : {"llama.Q4_0", "llama.Q5_1", "llama.Q8_0", "llama_k256.Q2_K", "llama_k256.Q4_K_M",
                           "llama_k256.IQ4_XS", "gemma3_k288.Q4_0"}) {
    ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path("gguf/" + std::string(file) + ".gguf")));
    ASSERT_OK_AND_ASSIGN(const auto oracle, make_backend("reference", model.spec, model.weights, options()));
    const CaptureOptions capture{.prompt_ids = {2, 5, 9, 33, 77, 101, 12, 8, 200, 150, 3, 99}};
    ASSERT_OK_AND_ASSIGN(const Recording recording, capture_run(*oracle, capture));
    for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
      BackendOptions with = options();
      with.kv_type = kv;
      ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("cpu", model.spec, model.weights, with));
      ASSERT_OK_AND_ASSIGN(const Comparison comparison,
                           compare_run(*backend, model.spec, recording, {}, &model.weights));
      expect_healthy(comparison, fmt::format("{} {}", file, kv_type_name(kv)));
    }
  }
}

// Values so small that float16 keeps few of their digits: as some of a large model's always are.
TEST(Allowance, HalvesLoseTheDigitsOfTinyValues) {
  Patient patient("llama");
  for (std::uint32_t layer = 0; layer < patient.spec.layers.size(); ++layer) {
    patient.site().alter(WeightRole::kV, static_cast<int>(layer),
                         [](TensorView& tensor, std::vector<std::byte>& bytes) {
                           ASSERT_EQ(tensor.dtype, DType::kBF16);
                           for (std::size_t at = 0; at < bytes.size(); at += 2) {
                             std::uint16_t value = 0;
                             std::memcpy(&value, &bytes[at], 2);
                             value = f32_to_bf16(bf16_to_f32(value) * 0x1p-17f);
                             std::memcpy(&bytes[at], &value, 2);
                           }
                         });
  }
  ASSERT_OK_AND_ASSIGN(const auto oracle,
                       make_backend("reference", patient.spec, patient.weights, options()));
  const CaptureOptions capture{.prompt_ids = {2, 5, 9, 33, 77, 101, 12, 8, 200, 150, 3, 99}};
  ASSERT_OK_AND_ASSIGN(const Recording recording, capture_run(*oracle, capture));
  for (const KvType kv : {KvType::kF16, KvType::kQ8_0}) {
    BackendOptions with = options();
    with.kv_type = kv;
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("cpu", patient.spec, patient.weights, with));
    ASSERT_OK_AND_ASSIGN(const Comparison comparison,
                         compare_run(*backend, patient.spec, recording, {}, &patient.weights));
    expect_healthy(comparison, std::string(kv_type_name(kv)));
  }
}

// What transformers computed with the floats, beside a quantisation of them.
TEST(Allowance, FormatsExplainHowFarTheirModelsLieFromTheFloats) {
  for (const auto& [file, family] : {std::pair{"llama.Q4_0", "llama"},
                                     {"llama.Q5_1", "llama"},
                                     {"llama.Q8_0", "llama"},
                                     {"gemma3_k288.Q4_0", "gemma3_k288"},
                                     {"gemma3_k288.Q4_K_M", "gemma3_k288"}}) {
    ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path("gguf/" + std::string(file) + ".gguf")));
    ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(data_path("models/" + std::string(family) +
                                                                             "/reference.safetensors")));
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("cpu", model.spec, model.weights, options()));
    ASSERT_OK_AND_ASSIGN(const Comparison comparison,
                         compare_run(*backend, model.spec, recording, {}, &model.weights));
    for (const StageComparison& c : comparison.stages) {
      ASSERT_TRUE(c.description && c.execution) << c.key;
      EXPECT_LT(c.description->excess, kHealthy) << file << " " << c.key;
      EXPECT_LT(c.execution->excess, kHealthy) << file << " " << c.key;
    }
    // What rounding explains of the prompt's logits bounds what decoding may do.
    EXPECT_TRUE(comparison.agrees()) << file;
    EXPECT_GT(comparison.decode->tolerance, comparison.decode->error) << file;
  }
}

// How far a change moves an op, in units of its allowance under this arithmetic.
double excess(OpExperiment& experiment, std::size_t op, const Arithmetic& arithmetic,
              const OpChange& change) {
  reference::Threads threads(1);
  const auto setup = experiment.setup(op);
  const auto healthy = experiment.run(op), changed = experiment.run(op, change);
  const auto allowed = setup ? allowance(*setup, arithmetic, threads) : healthy;
  EXPECT_TRUE(healthy && changed && allowed);
  const Value& value = experiment.plan().values[experiment.plan().ops[op].outputs[0]];
  return judge_values(*healthy, *changed, *allowed, value.width, 1).excess;
}

struct OpFault {
  const char* name;
  Stage stage;
  OpChange change;
};

std::vector<OpFault> faults() {
  const auto scale_row = [](float by) {
    return [by](OpSetup& s) {
      auto weight = s.read_weight();
      const std::size_t cols = s.weights[0].cols();
      for (std::size_t c = 0; c < cols; ++c) (*weight)[7 * cols + c] *= by;
      s.set_weight(s.weights[0].shape, *weight);
    };
  };
  return {
      {"norm_weight_offset", Stage::kAttnNormed,
       [](OpSetup& s) { std::get<NormParams>(s.params).weight_offset = 0; }},
      {"norm_eps", Stage::kKNorm, [](OpSetup& s) { std::get<NormParams>(s.params).eps = 1e-3; }},
      {"rope_theta", Stage::kQRope,
       [](OpSetup& s) {
         for (std::size_t i = 0; i < s.rope.inverse_frequency.size(); ++i)
           s.rope.inverse_frequency[i] = std::pow(s.rope.inverse_frequency[i], 1.01);
       }},
      {"rope_position", Stage::kQRope,
       [](OpSetup& s) {
         for (auto& position : s.positions) ++position;
       }},
      {"sliding_window", Stage::kAttnOut, [](OpSetup& s) { std::get<AttentionParams>(s.params).window = 9; }},
      {"attention_scale", Stage::kAttnOut,
       [](OpSetup& s) { std::get<AttentionParams>(s.params).scale *= 1.01; }},
      {"one row is zero", Stage::kOProj, scale_row(0)},
      {"one row is stale", Stage::kQProj, scale_row(1.2f)},
      {"tail_missing", Stage::kFfnGate,
       [](OpSetup& s) {
         auto weight = s.read_weight();
         const std::size_t cols = s.weights[0].cols();
         for (std::size_t i = 0; i < weight->size(); ++i) {
           if (i % cols >= cols - 16) (*weight)[i] = 0;
         }
         s.set_weight(s.weights[0].shape, *weight);
       }},
      {"activation", Stage::kFfnAct,
       [](OpSetup& s) { std::get<GatedParams>(s.params).activation = Activation::kSilu; }},
      {"gelu form", Stage::kFfnAct,
       [](OpSetup& s) { std::get<GatedParams>(s.params).activation = Activation::kGeluErf; }},
      {"embedding_scale", Stage::kEmbedOut,
       [](OpSetup& s) { std::get<EmbedParams>(s.params).scale *= 1.001; }},
      {"stale_buffer", Stage::kPostAttn, [](OpSetup& s) { s.inputs[1].data[33] = 0; }},
  };
}

TEST(Allowance, FaultsStandOutOfIt) {
  const Patient patient("gemma3");
  ASSERT_OK_AND_ASSIGN(const Plan plan, build_plan(patient.spec, patient.weights, 64));
  const RecordedRows rows(patient.recording);
  OpExperiment experiment(plan, patient.weights, rows, 1);
  for (const OpFault& fault : faults()) {
    const int layer = fault.stage == Stage::kEmbedOut ? -1 : 0;
    const std::size_t op = experiment.find(fault.stage, layer).value();
    EXPECT_GT(excess(experiment, op, {}, fault.change), 10) << fault.name;
    const Arithmetic coarse{.eight_bit_products = true, .kv = KvType::kF16};
    EXPECT_GT(excess(experiment, op, coarse, fault.change), 3) << fault.name << " with a coarse cache";
  }
}

// Where a product's activations have eight bits, a wrong row or a missing tail still shows.
TEST(Allowance, FaultsStandOutOfEightBits) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path("gguf/gemma3_k288.Q4_0.gguf")));
  ASSERT_OK_AND_ASSIGN(const Plan plan, build_plan(model.spec, model.weights, 64));
  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       open_recording(data_path("models/gemma3_k288/reference.safetensors")));
  const RecordedRows rows(recording);
  OpExperiment experiment(plan, model.weights, rows, 1);
  const Arithmetic eight_bits{.eight_bit_products = true};
  for (const OpFault& fault : faults()) {
    const std::size_t op = experiment.find(fault.stage, fault.stage == Stage::kEmbedOut ? -1 : 0).value();
    if (plan.ops[op].kind != OpKind::kMatmul) continue;
    EXPECT_GT(excess(experiment, op, eight_bits, fault.change), 3) << fault.name;
    const Arithmetic floats_beside{.other_weights = true};
    EXPECT_LT(excess(experiment, op, floats_beside, [](OpSetup&) {}), 1e-9);
  }
}

// A block beside a larger one: where both share a scale its codes are as coarse.
TEST(Allowance, LongStepsWithKQuantsShareScales) {
  constexpr std::size_t kCols = 256, kRows = 2, kTokens = 3, kBlock = 32;
  const auto bounds_with = [&](DType type, std::uint32_t wide_blocks_from) {
    std::vector<float> values(kRows * kCols);
    // Only the last block of a row has weights.
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i % kCols < kCols - kBlock ? 0.0f : 0.1f * static_cast<float>(i % 7 + 1);
    std::vector<std::byte> bytes(*byte_size(type, {kRows, kCols}));
    EXPECT_TRUE(encode(type, values, bytes).has_value());
    OpSetup setup{.kind = OpKind::kMatmul,
                  .params = MatmulParams{},
                  .width = kRows,
                  .ids = std::vector<std::int32_t>(kTokens),
                  .positions = std::vector<std::int32_t>(kTokens)};
    setup.inputs.push_back({.width = kCols, .data = std::vector<float>(kTokens * kCols, 1.0f)});
    for (std::size_t t = 0; t < kTokens; ++t) setup.inputs[0].data[t * kCols] = 1000;  // in the first block
    setup.weights.push_back({"w", type, {kRows, kCols}, bytes});
    reference::Threads threads(1);
    const auto bounds =
        allowance(setup, {.eight_bit_products = true, .wide_blocks_from = wide_blocks_from}, threads);
    EXPECT_TRUE(bounds.has_value());
    return bounds ? (*bounds)[0] : 0.0f;
  };
  EXPECT_GT(bounds_with(DType::kQ4_K, kTokens), 100 * bounds_with(DType::kQ4_K, 0));
  EXPECT_EQ(bounds_with(DType::kQ4_K, kTokens + 1), bounds_with(DType::kQ4_K, 0)) << "a shorter step";
  EXPECT_EQ(bounds_with(DType::kQ4_0, kTokens), bounds_with(DType::kQ4_0, 0)) << "other blocks";
}

// Two values that f16 takes a hair under half a unit down, and a mean of both that lies half a unit above the
// even neighbour.
TEST(Allowance, PartsOfAnAttentionAreRoundedOnceMore) {
  constexpr float kUnit = 0x1p-10f;  // f16 of 1 to 2
  OpSetup setup{.kind = OpKind::kAttention,
                .params = AttentionParams{.heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1},
                .width = 1,
                .ids = {0, 0},
                .positions = {0, 1}};
  const std::vector<float> values = {1 + 0.49f * kUnit, 1 + 1.49f * kUnit};
  for (const std::vector<float>& data : {std::vector<float>{0, 0}, std::vector<float>{0, 0}, values})
    setup.inputs.push_back({.width = 1, .data = data});
  const auto half = [](float x) { return f16_to_f32(f32_to_f16(x)); };
  const float cached = (half(values[0]) + half(values[1])) / 2;
  const float error = std::abs(half(cached) - (values[0] + values[1]) / 2);
  ASSERT_GT(error, 0.95f * kUnit);
  reference::Threads threads(1);
  const auto bound_with = [&](const Arithmetic& arithmetic) {
    const auto bounds = allowance(setup, arithmetic, threads);
    EXPECT_TRUE(bounds.has_value());
    return bounds ? (*bounds)[1] : 0.0f;
  };
  const float with_parts = bound_with({.kv = KvType::kF16, .half_parts = true});
  EXPECT_LT(bound_with({.kv = KvType::kF16}), error);
  EXPECT_LT(error, 0.9f * with_parts);
  EXPECT_LT(with_parts, 1.5f * kUnit);
  // Shares in halves, too: of each half as much as of a value, by the way to the mean.
  EXPECT_GT(bound_with({.half_products = true, .kv = KvType::kF16, .half_parts = true}), with_parts);
}

// A sink takes a share and gives nothing: where all values are alike, an error of a score moves the output
// all the same.
TEST(Allowance, SinksLetScoresMoveWhatIsAlike) {
  OpSetup setup{.kind = OpKind::kAttention,
                .params = AttentionParams{.heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1},
                .width = 1,
                .ids = {0, 0},
                .positions = {0, 1}};
  // The key is a half away from any in f16, so that the score is off by as much.
  for (const std::vector<float>& data :
       {std::vector<float>{1, 1}, std::vector<float>{1 + 0x1p-11f, 1 + 0x1p-11f}, std::vector<float>{1, 1}})
    setup.inputs.push_back({.width = 1, .data = data});
  reference::Threads threads(1);
  const auto bound = [&] {
    const auto bounds = allowance(setup, {.kv = KvType::kF16}, threads);
    EXPECT_TRUE(bounds.has_value());
    return bounds ? (*bounds)[0] : 0.0f;
  };
  const float without = bound();
  setup.weights.emplace_back();
  setup.set_weight({1}, {1});
  // As large as the token's own score: half of the output, which an error of 2^-11 moves by a quarter of it.
  EXPECT_GT(bound(), without + 0x1p-13f);
}

TEST(Allowance, HeadersSayHowARunComputed) {
  for (const Arithmetic& arithmetic :
       {Arithmetic{}, Arithmetic{.eight_bit_products = true, .kv = KvType::kF16},
        Arithmetic{.eight_bit_products = true, .wide_blocks_from = 65}, Arithmetic{.kv = KvType::kQ8_0},
        Arithmetic{.half_products = true}, Arithmetic{.eight_bit_products = true, .half_products = true},
        Arithmetic{.kv = KvType::kF16, .half_parts = true},
        Arithmetic{.half_products = true, .kv = KvType::kF16, .half_parts = true}}) {
    EXPECT_EQ(arithmetic_from(arithmetic_metadata(arithmetic)), arithmetic);
  }
  EXPECT_EQ(arithmetic_from({{"producer", "transformers 5.17.0"}}), Arithmetic{});
  EXPECT_EQ(arithmetic_from({{"kv_type", "nonsense"}, {"attention", "nonsense"}}), Arithmetic{});
}

// Other types of weights than the model's own widen the budget; the same types do not.
TEST(Allowance, OtherWeightsAreToldByTheirTypes) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path("gguf/llama.Q4_0.gguf")));
  const Patient floats("llama");
  Recording recording;
  recording.tensors.add_metadata("weights", describe_weights(model.weights));
  EXPECT_FALSE(arithmetic_of(recording, model.weights).other_weights);
  EXPECT_TRUE(arithmetic_of(recording, floats.weights).other_weights);
  EXPECT_EQ(arithmetic_of(recording, floats.weights).other_error, storage_error(DType::kQ4_0));
  EXPECT_TRUE(arithmetic_of({}, model.weights).other_weights);
  EXPECT_EQ(arithmetic_of({}, model.weights).other_error, 0);
  EXPECT_FALSE(arithmetic_of({}, floats.weights).other_weights);
}

}  // namespace
}  // namespace doppler::diagnosis
