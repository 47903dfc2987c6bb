// Every dense fixture on every backend agrees with what transformers computed: prompt and decoding, in
// pieces, and beside a second sequence.
#include <algorithm>

#include "convert/convert.h"
#include "diagnosis/compare/compare.h"
#include "gpu_models.h"
#include "model/family.h"
#include "testing.h"

namespace doppler::diagnosis {
namespace {

const std::vector<std::string> kFamilies = {
    "llama",   "llama3",           "mistral",    "qwen2",       "qwen3",      "phi3",       "gemma2",
    "gemma3",  "gemma3_k288",      "olmo3",      "granite",     "cohere",     "phi",        "nemotron",
    "exaone4", "hunyuan_v1_dense", "glm4",       "gpt2",        "apertus",    "ministral3", "lfm2",
    "qwen3_5", "mamba2",           "gemma4_ple", "gemma4_keqv", "deepseek_v3"};

struct Feeding {
  const char* name;
  CompareOptions options;
};
constexpr Feeding kFeedings[] = {{"whole", {}},
                                 {"ones", {.piece = 1}},
                                 {"threes", {.piece = 3}},
                                 {"sevens", {.piece = 7}},
                                 {"companion", {.companion = true}},
                                 {"companion_threes", {.piece = 3, .companion = true}}};

class Fixtures : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void check(std::string_view by);
};

void Fixtures::check(std::string_view by) {
  const auto& [backend_name, family] = GetParam();
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(testing::data_path("models") / family, by));
  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       open_recording(testing::data_path("models") / family / "reference.safetensors"));
  // A step of 9 tokens is shorter than the prompts, so that windows wrap around their rings in "whole" too.
  BackendOptions options{
      .threads = 2, .context = 64, .slots = 2, .max_step_tokens = 9, .disabled_passes = {}};
  auto backend = make_backend(backend_name, model.spec, model.weights, options);
  ASSERT_OK(backend);
  for (const Feeding& feeding : kFeedings) {
    SCOPED_TRACE(feeding.name);
    ASSERT_OK_AND_ASSIGN(const Comparison comparison,
                         compare_run(**backend, model.spec, recording, feeding.options));
    const StageComparison* first = comparison.first_divergence();
    EXPECT_EQ(first, nullptr) << first->key << " token " << first->first_bad_token.value_or(0) << " error "
                              << first->error << " tolerance " << first->tolerance;
    EXPECT_GT(comparison.stages.size(), 8 * model.spec.layers.size());
    EXPECT_EQ(comparison.decode_steps, recording.greedy_ids.size());
    EXPECT_EQ(comparison.top1_equal, comparison.decode_steps);
    ASSERT_TRUE(comparison.decode.has_value());
    EXPECT_EQ(comparison.decode->tokens, recording.greedy_ids.size() - 1);
  }
}

TEST_P(Fixtures, AgreeWithTransformers) {
  check({});
}

// The same models without their names: keys and tensors say enough.
using Guessed = Fixtures;
TEST_P(Guessed, AgreeWithTransformers) {
  check("guess");
}

// A latent's matrix in two parts, that of keys transposed, computes what it does as one.
TEST(Converted, AgreesWithTransformers) {
  const testing::TempDir dir;
  const auto folder = testing::data_path("models/deepseek_v3");
  ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix("F32"));
  ASSERT_OK(convert::convert_model(folder, *mix, dir / "m.gguf", {}));
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(dir / "m.gguf"));
  EXPECT_TRUE(model.spec.layers[0].attention.latent.split_up);
  ASSERT_OK_AND_ASSIGN(const Recording recording, open_recording(folder / "reference.safetensors"));
  ASSERT_OK_AND_ASSIGN(const auto backend,
                       make_backend("reference", model.spec, model.weights, {.context = 64}));
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, compare_run(*backend, model.spec, recording, {}));
  EXPECT_TRUE(comparison.agrees());
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendInfo& info : all_backends()) names.emplace_back(info.name);
  return names;
}

using BackendAndModel = std::tuple<std::string, std::string>;
std::string name_of(const ::testing::TestParamInfo<BackendAndModel>& test) {
  return std::get<0>(test.param) + "_" + std::get<1>(test.param);
}
// Each model on each backend: but for those that are `seen` on a GPU elsewhere, or (`more`) these on a GPU.
std::vector<BackendAndModel> cases(const std::vector<std::string>& models, bool (*seen)(std::string_view),
                                   bool more) {
  std::vector<BackendAndModel> all;
  for (const std::string& backend : backend_names())
    for (const std::string& model : models)
      if ((backend == "gpu" && seen(model)) == more) all.emplace_back(backend, model);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Dense, Fixtures,
                         ::testing::ValuesIn(cases(kFamilies, testing::is_gpu_against_reference, false)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(More, Fixtures,
                         ::testing::ValuesIn(cases(kFamilies, testing::is_gpu_against_reference, true)),
                         name_of);

// Experts: MXFP4 with sinks, biases and a clamped activation; sigmoid routing, a shared expert, a dense
// layer; beside a delta net by key heads, beside Mamba 1, and as layers of their own without a gate.
INSTANTIATE_TEST_SUITE_P(Experts, Fixtures,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values("gpt_oss", "glm4_moe", "qwen3_next", "jamba",
                                                              "nemotron_h")),
                         name_of);

// Switches that published models of these families leave alone: positions by what is added to scores, of 12
// heads; cut queries, keys and values; other activations behind a convolution and without a gate.
INSTANTIATE_TEST_SUITE_P(Switches, Fixtures,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values("falcon_alibi", "olmoe_clip", "nemotron_h_gelu",
                                                              "phimoe_three", "cohere2_part")),
                         name_of);

// The first three have no family: Arcee's ungated relu², StarCoder 1's learned positions, VaultGemma.
const std::vector<std::string> kGuessable = {"arcee", "gpt_bigcode", "vaultgemma", "llama3",   "qwen2",
                                             "qwen3", "phi3",        "gemma2",     "gemma3",   "mistral",
                                             "olmo3", "granite",     "phi",        "nemotron", "glm4_moe"};
bool has_a_family(std::string_view model) {
  return std::find(kGuessable.begin() + 3, kGuessable.end(), model) != kGuessable.end();
}
INSTANTIATE_TEST_SUITE_P(WithoutAFamily, Guessed, ::testing::ValuesIn(cases(kGuessable, has_a_family, false)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(More, Guessed, ::testing::ValuesIn(cases(kGuessable, has_a_family, true)), name_of);

}  // namespace
}  // namespace doppler::diagnosis
