// GGUF files of llama.cpp's converter and quantiser: float ones agree stage by stage with what transformers
// computed from the original folders, quantised ones with transformers and llama.cpp on the same weights.
#include <algorithm>
#include <cmath>

#include "diagnosis/compare/compare.h"
#include "formats/safetensors.h"
#include "model/family.h"
#include "tensors.h"
#include "testing.h"

namespace doppler::diagnosis {
namespace {

using testing::data_path;

Result<Model> load(const std::string& name) {
  return load_model(data_path("gguf/" + name + ".gguf"));
}

Result<std::unique_ptr<Backend>> backend_for(const Model& model, const std::string& name) {
  BackendOptions options{
      .threads = 2, .context = 64, .slots = 1, .max_step_tokens = 32, .disabled_passes = {}};
  options.gpu_setup.self_check = false;  // tests leave nothing in the user's folders
  return make_backend(name, model.spec, model.weights, options);
}

bool lacks_gpu(const Result<std::unique_ptr<Backend>>& made, const std::string& name) {
  return name == "gpu" && !made && made.error().code == ErrorCode::kNotFound;
}

#ifdef DOPPLER_GPU
const auto kAllBackends = ::testing::Values("reference", "cpu", "gpu");
#else
const auto kAllBackends = ::testing::Values("reference", "cpu");
#endif

// A file whose every stage is that of the Hugging Face folder.
class SameStages : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(SameStages, AsTheHuggingFaceFolder) {
  const auto& [backend_name, family] = GetParam();
  ASSERT_OK_AND_ASSIGN(const Model model, load(family));
  auto made = backend_for(model, backend_name);
  if (lacks_gpu(made, backend_name)) GTEST_SKIP() << made.error().message;
  ASSERT_OK_AND_ASSIGN(const auto backend, std::move(made));
  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       open_recording(data_path("models/" + family + "/reference.safetensors")));
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_run(*backend, model.spec, recording, {}));
  const StageComparison* first = comparison.first_divergence();
  EXPECT_EQ(first, nullptr) << first->key << " error " << first->error << " allowed " << first->tolerance;
  EXPECT_GT(comparison.stages.size(), 12 * model.spec.layers.size());
  EXPECT_EQ(comparison.decode_steps, recording.greedy_ids.size());
  EXPECT_EQ(comparison.top1_equal, comparison.decode_steps);
}

INSTANTIATE_TEST_SUITE_P(Gguf, SameStages,
                         ::testing::Combine(kAllBackends, ::testing::Values("llama", "llama3", "qwen2",
                                                                            "qwen3", "phi3", "gemma3")),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param);
                         });

// A file's logits as others computed them, and how far ours may lie from each.
struct Expected {
  const char *file, *backend;
  const char* hf;    // transformers on what the file says
  double llama_cpp;  // allowed distance from llama.cpp's float32 logits: its GELU is a float16 table
};
constexpr double kHfTolerance = 1e-3;

class Logits : public ::testing::TestWithParam<Expected> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(expected_, open_safetensors(data_path(std::string("gguf/") + GetParam().file +
                                                               ".llamacpp.safetensors")));
    ASSERT_OK_AND_ASSIGN(model_, load(GetParam().file));
    auto made = backend_for(model_, GetParam().backend);
    if (lacks_gpu(made, GetParam().backend)) GTEST_SKIP() << made.error().message;
    ASSERT_OK_AND_ASSIGN(backend_, std::move(made));
  }

  std::vector<std::int32_t> ids(const char* name) const {
    const auto read = testing::read_ids(*expected_.find(name));
    if (!read) return {};
    return {read->begin(), read->end()};
  }

  // The largest difference from a recorded [tokens, vocabulary].
  double distance(std::span<const float> logits, const char* name) const {
    const TensorView* tensor = expected_.find(name);
    if (tensor == nullptr) return INFINITY;
    std::vector<float> recorded(tensor->data.size() / 4);
    if (!decode_f32(*tensor, 0, recorded) || recorded.size() != logits.size()) return INFINITY;
    double worst = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - recorded[i]));
    return worst;
  }

  TensorStore expected_;
  Model model_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(Logits, AgreeWithTransformersAndLlamaCpp) {
  const std::vector<std::int32_t> prompt = ids("prompt_ids");
  ASSERT_OK_AND_ASSIGN(const auto logits, feed(*backend_, 0, prompt, 0, true, nullptr));
  EXPECT_LT(distance(logits, GetParam().hf), kHfTolerance);
  EXPECT_LT(distance(logits, "logits_f32"), GetParam().llama_cpp);
}

TEST_P(Logits, ChooseTheSameIdsWhereTheMarginAllows) {
  ASSERT_OK_AND_ASSIGN(auto logits, feed(*backend_, 0, ids("prompt_ids"), 0, false, nullptr));
  const std::vector<std::int32_t> greedy = ids("greedy_ids_f32");
  ASSERT_EQ(greedy.size(), 11u);
  std::size_t compared = 0;
  for (const std::int32_t id : greedy) {
    std::vector<float> sorted(logits.begin(), logits.end());
    std::ranges::partial_sort(sorted, sorted.begin() + 2, std::greater());
    if (sorted[0] - sorted[1] < 2 * GetParam().llama_cpp) break;  // both choices are right
    EXPECT_EQ(argmax(logits), id) << "step " << compared;
    ++compared;
    ASSERT_OK_AND_ASSIGN(logits, feed(*backend_, 0, std::span(&id, 1), 0, false, nullptr));
  }
  EXPECT_GT(compared, 0u);
}

constexpr Expected kExpected[] = {
    {"mistral", "reference", "hf_logits_gguf", 1e-3},
    {"mistral", "cpu", "hf_logits_gguf", 1e-3},
    {"gemma2", "reference", "hf_logits_gguf", 0.02},
    {"gemma2", "cpu", "hf_logits_gguf", 0.02},
    {"gemma3", "reference", "hf_logits", 0.02},
    {"llama3", "reference", "hf_logits", 1e-3},
    {"llama.Q4_0", "reference", "hf_logits_gguf", 1e-3},
    {"llama.Q5_1", "reference", "hf_logits_gguf", 1e-3},
    {"llama.Q8_0", "reference", "hf_logits_gguf", 1e-3},
    {"llama_k256.Q2_K", "reference", "hf_logits_gguf", 1e-3},
    {"llama_k256.Q4_K_M", "reference", "hf_logits_gguf", 1e-3},
    {"llama_k256.IQ4_XS", "reference", "hf_logits_gguf", 1e-3},
    {"gemma3_k288.Q4_0", "reference", "hf_logits_gguf", 0.02},
    {"gemma3_k288.Q4_K_M", "reference", "hf_logits_gguf", 0.02},
#ifdef DOPPLER_GPU
    {"mistral", "gpu", "hf_logits_gguf", 1e-3},
    {"gemma2", "gpu", "hf_logits_gguf", 0.02},
#endif
};

INSTANTIATE_TEST_SUITE_P(Gguf, Logits, ::testing::ValuesIn(kExpected), [](const auto& test) {
  return testing::as_test_name(std::string(test.param.file) + "_" + test.param.backend);
});

// The cpu backend on quantised weights, on every instruction set: exact runs give the reference's logits, the
// usual ones lie no farther from the float truth than llama.cpp's do.
class QuantisedOnCpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        expected_, open_safetensors(data_path(std::string("gguf/") + GetParam() + ".llamacpp.safetensors")));
    ASSERT_OK_AND_ASSIGN(model_, load(GetParam()));
    ASSERT_OK_AND_ASSIGN(const auto prompt, testing::read_ids(*expected_.find("prompt_ids")));
    prompt_.assign(prompt.begin(), prompt.end());
    truth_ = recorded("hf_logits_gguf");
  }
  std::vector<float> recorded(const char* name) const {
    const TensorView* tensor = expected_.find(name);
    std::vector<float> values(tensor->data.size() / 4);
    EXPECT_TRUE(decode_f32(*tensor, 0, values).has_value());
    return values;
  }
  std::vector<float> run(BackendOptions options, std::uint32_t piece) const {
    options.threads = 2, options.context = 64, options.max_step_tokens = 32;
    const auto backend = make_backend("cpu", model_.spec, model_.weights, options);
    if (!backend) return {};
    std::vector<float> all;
    for (std::size_t begin = 0; begin < prompt_.size(); begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, prompt_.size() - begin);
      const auto logits = feed(**backend, 0, std::span(prompt_).subspan(begin, count), 0, true, nullptr);
      if (!logits) return {};
      all.insert(all.end(), logits->begin(), logits->end());
    }
    return all;
  }
  double rms_from_truth(std::span<const float> logits) const { return testing::rms_between(logits, truth_); }

  TensorStore expected_;
  Model model_;
  std::vector<std::int32_t> prompt_;
  std::vector<float> truth_;
};

TEST_P(QuantisedOnCpu, ExactRunsGiveTheTruth) {
  EXPECT_LT(rms_from_truth(run({.exact = true}, 32)), 1e-4);
  EXPECT_LT(rms_from_truth(run({.exact = true}, 1)), 1e-4);
}

TEST_P(QuantisedOnCpu, RoundsNoWorseThanLlamaCpp) {
  const double theirs = rms_from_truth(recorded("logits"));
  for (const char* target : {"", "AVX2", "PORTABLE"}) {
    const std::vector<float> ours = run({.cpu_target = target}, 32);
    if (ours.empty() && std::string(target) == "AVX2") continue;  // another architecture
    // Rounding errors are random: on one small prompt either side may be ahead by a fifth.
    EXPECT_LT(rms_from_truth(ours), 1.2 * theirs) << target;
    EXPECT_EQ(run({.cpu_target = target}, 1), ours) << target;
    EXPECT_EQ(run({.cpu_target = target}, 5), ours) << target;
  }
  EXPECT_LT(rms_from_truth(run({.kv_type = KvType::kQ8_0}, 32)), 1.5 * theirs);
}

INSTANTIATE_TEST_SUITE_P(Gguf, QuantisedOnCpu,
                         ::testing::Values("llama.Q4_0", "llama.Q5_1", "llama.Q8_0", "llama_k256.Q2_K",
                                           "llama_k256.Q4_K_M", "llama_k256.IQ4_XS", "gemma3_k288.Q4_0",
                                           "gemma3_k288.Q4_K_M"),
                         testing::named_by_param);

}  // namespace
}  // namespace doppler::diagnosis
