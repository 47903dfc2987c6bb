// A prompt wants the logits of one token of many: behind the last attention the others' rows are not
// computed. Logits, cache and stages must be what they are where all rows are.
#include "harness.h"
#include "model_fixture.h"
#include "plan/late.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::size_t kPromptTokens = 36;

// A prompt in two steps, of which the first wants nothing and the second two of its tokens, then a single
// token; the logits of all of them.
std::vector<float> logits_of_prompt(Backend& backend, std::uint32_t vocab, Tap* tap = nullptr) {
  std::vector<float> all;
  std::size_t at = 0;
  backend.clear(0);
  const auto step = [&](std::size_t tokens, const std::vector<std::size_t>& wanted) {
    StepInput input;
    for (std::size_t i = 0; i < tokens; ++i, ++at)
      input.add(static_cast<std::int32_t>((at * at + 7 * at + 3) % vocab), at, 0,
                std::ranges::count(wanted, i) > 0);
    const auto logits = backend.step(input, tap);
    ASSERT_TRUE(logits.has_value()) << logits.error().message;
    EXPECT_EQ(logits->size(), wanted.size() * vocab);
    all.insert(all.end(), logits->begin(), logits->end());
  };
  step(18, {});
  step(kPromptTokens - 18, {5, 17});
  step(1, {0});
  return all;
}

BackendOptions options_with(std::vector<std::string> disabled) {
  return {.threads = 2, .context = 64, .max_step_tokens = 32, .disabled_passes = std::move(disabled)};
}

// Looks at one stage of the last layer, of which a prompt has a row for each token.
class LastLayer final : public Tap {
 public:
  LastLayer(Stage stage, int layer) : stage_(stage), layer_(layer) {}
  bool wants(Stage stage, int layer) const override { return stage == stage_ && layer == layer_; }
  void on_stage(const TapEvent& event) override { rows += event.rows; }
  std::size_t rows = 0;

 private:
  Stage stage_;
  int layer_;
};

class LateRowsOfFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(LateRowsOfFamilies, AreTheSameBitsOnTheCpu) {
  const TinyModel tiny(GetParam());
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  const TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(const Weights weights, bind_weights(spec, rule_of(GetParam()).weight_names, store));
  ASSERT_OK_AND_ASSIGN(const auto late, make_backend("cpu", spec, weights, options_with({})));
  ASSERT_OK_AND_ASSIGN(const auto all, make_backend("cpu", spec, weights, options_with({"late_rows"})));
  const std::vector<float> expected = logits_of_prompt(*all, spec.vocab_size);
  EXPECT_EQ(logits_of_prompt(*late, spec.vocab_size), expected);
  KeepStages every;
  EXPECT_EQ(logits_of_prompt(*late, spec.vocab_size, &every), expected);
  LastLayer tap(Stage::kLayerOut, static_cast<int>(spec.layers.size()) - 1);
  EXPECT_EQ(logits_of_prompt(*late, spec.vocab_size, &tap), expected);
  EXPECT_EQ(tap.rows, kPromptTokens + 1);
}

INSTANTIATE_TEST_SUITE_P(All, LateRowsOfFamilies, ::testing::ValuesIn(doppler::testing::family_names()),
                         [](const auto& family) { return family.param; });

#if DOPPLER_GPU
class LateRowsOnAGpu : public ::testing::TestWithParam<const char*> {};

TEST_P(LateRowsOnAGpu, AreTheSameBitsWithTapsAndWithout) {
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path(GetParam())));
  const auto make = [&](std::vector<std::string> disabled) {
    BackendOptions options = options_with(std::move(disabled));
    options.gpu.poison = true;
    return make_backend("gpu", model.spec, model.weights, options);
  };
  ASSERT_OK_AND_ASSIGN(const auto late, make({}));
  ASSERT_OK_AND_ASSIGN(const auto all, make({"late_rows"}));
  const std::uint32_t vocab = model.spec.vocab_size;
  const std::vector<float> expected = logits_of_prompt(*all, vocab);
  EXPECT_EQ(logits_of_prompt(*late, vocab), expected);
  LastLayer tap(Stage::kFfnOut, static_cast<int>(model.spec.layers.size()) - 1);
  EXPECT_EQ(logits_of_prompt(*late, vocab, &tap), expected);
  EXPECT_EQ(tap.rows, kPromptTokens + 1);
  LastLayer logits(Stage::kLogitsFinal, -1);
  EXPECT_EQ(logits_of_prompt(*late, vocab, &logits), expected);
  EXPECT_EQ(logits.rows, 3u);
}

INSTANTIATE_TEST_SUITE_P(Files, LateRowsOnAGpu,
                         ::testing::Values("gguf/gemma3_k288.Q4_0.gguf", "gguf/llama3.gguf"),
                         [](const auto& file) { return std::string(file.index == 0 ? "blocks" : "floats"); });
#endif

TEST(LateOps, BeginBehindTheLastAttention) {
  const TinyModel tiny("llama");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  ASSERT_OK_AND_ASSIGN(const Weights weights, tiny.bind());
  ASSERT_OK_AND_ASSIGN(const Plan plan, build_plan(spec, weights, 64));
  const LateOps late = find_late_ops(plan, [](std::size_t) { return true; });
  const int last = static_cast<int>(spec.layers.size()) - 1;
  EXPECT_EQ(plan.ops[late.first - 1].kind, OpKind::kAttention);
  EXPECT_EQ(plan.ops[late.first].layer, last);
  EXPECT_EQ(plan.ops[late.select].kind, OpKind::kSelect);
  // The attention's result and the residual stream.
  ASSERT_EQ(late.read.size(), 2u);
  EXPECT_EQ(plan.values[late.read[0]].stage, Stage::kAttnOut);
  const auto looks_at = [&](Stage wanted, int layer) {
    return is_looked_at(plan, late, [&](Stage stage, int of) { return stage == wanted && of == layer; });
  };
  EXPECT_TRUE(looks_at(Stage::kOProj, last));
  EXPECT_TRUE(looks_at(Stage::kLayerOut, last));
  EXPECT_FALSE(looks_at(Stage::kAttnOut, last));
  EXPECT_FALSE(looks_at(Stage::kLayerOut, last - 1));
  EXPECT_FALSE(looks_at(Stage::kFinalNorm, -1));
  // Where a later op must be the first one, values between are read besides.
  const LateOps later = find_late_ops(plan, [&](std::size_t op) { return op > late.first; });
  EXPECT_EQ(later.first, late.first + 1);
  EXPECT_TRUE(
      std::ranges::any_of(later.read, [&](ValueId id) { return plan.values[id].stage == Stage::kOProj; }));
}

}  // namespace
}  // namespace doppler
