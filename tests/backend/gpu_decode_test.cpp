// The fused program for single tokens: the same stages as the reference backend's, the same tokens for any
// number to a submission, and looking at it changes no bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "gpu_harness.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kDecodeContext = 96;

BackendOptions usual_decode() {
  BackendOptions options{
      .threads = 2, .context = kDecodeContext, .slots = 2, .max_step_tokens = 40, .disabled_passes = {}};
  options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
  options.gpu_setup.tune =
      false;  // what is measured may differ from one backend to the next, and so the order of sums
  return options;
}

// Everything but scores, which the fused program does not store.
class KeepAll : public KeepStages {
 public:
  using KeepStages::KeepStages;
  bool wants(Stage stage, int) const override { return stage != Stage::kAttnScores; }
};

class GpuDecode : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(GetParam())));
    // Longer than a chunk of attention, so that sequences have several splits and windows have moved on.
    for (std::int32_t i = 0; i < 37; ++i) prompt_.push_back((i * 31 + 7) % 200);
  }

  std::unique_ptr<Backend> make(const char* name, const BackendOptions& options = usual_decode()) {
    auto backend = make_backend(name, model_.spec, model_.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }

  // The prompt in one step and then single tokens; the logits of these.
  std::vector<float> decode(Backend& backend, Tap* tap) {
    run_in_pieces(backend, prompt_, {40});
    std::vector<float> logits;
    for (std::int32_t i = 0; i < 4; ++i) {
      const auto row =
          backend.step(step_of({{20 + 3 * i, static_cast<std::int32_t>(prompt_.size()) + i, 0}}), tap);
      EXPECT_TRUE(row.has_value()) << (row ? "" : row.error().message);
      if (!row) break;
      logits.insert(logits.end(), row->begin(), row->end());
    }
    return logits;
  }

  // Tokens of a continuation, `tokens` to a submission.
  std::vector<TokenId> continue_with(Backend& backend, const GenerateOptions& sampling, Tap* tap = nullptr) {
    run_in_pieces(backend, prompt_, {40});
    std::vector<TokenId> history(prompt_.begin(), prompt_.end());
    history.push_back(11);
    Continuation continuation{.slot = 0, .id = 11, .most = 25, .sampling = &sampling, .history = history};
    continuation.tap = tap;
    EXPECT_TRUE(backend.can_continue(sampling));
    const Status begun = backend.continuer()->continue_sequence(continuation);
    EXPECT_TRUE(begun.has_value()) << (begun ? "" : begun.error().message);
    std::vector<TokenId> tokens;
    while (begun) {
      const auto some = backend.continuer()->next_tokens();
      EXPECT_TRUE(some.has_value()) << (some ? "" : some.error().message);
      if (!some || some->empty()) break;
      tokens.insert(tokens.end(), some->begin(), some->end());
    }
    EXPECT_TRUE(backend.continuer()->stop_sequence(prompt_.size() + 10).has_value());
    EXPECT_EQ(backend.length(0), prompt_.size() + 10);
    return tokens;
  }

  // Compares all stages of single tokens.
  void expect_stages_of_the_reference(const BackendOptions& options) {
    const auto gpu = make("gpu", options), reference = make("reference");
    ASSERT_TRUE(gpu && reference);
    KeepAll got, expected;
    const std::vector<float> looked = decode(*gpu, &got);
    decode(*reference, &expected);
    gpu->clear(0);
    EXPECT_EQ(decode(*gpu, nullptr), looked);
    // Eight-bit activations move a value by a few hundredths of a stage's largest, floats in the last places.
    const std::string_view path = GetParam();
    const double allowed = gpu->rounding() == Rounding::kEightBits
                               ? 0.1
                               : tolerance_of(std::string(path.substr(path.find('/') + 1)), *gpu);
    EXPECT_EQ(got.stages.size(), expected.stages.size());
    for (const auto& [name, values] : expected.stages) {
      ASSERT_TRUE(got.stages.contains(name)) << name;
      EXPECT_LE(relative_error(got.stages[name], values), allowed) << name;
    }
  }

  Model model_;
  std::vector<std::int32_t> prompt_;
};

TEST_P(GpuDecode, HasTheStagesOfTheReference) {
  expect_stages_of_the_reference(usual_decode());
}

// As for positions whose splits are many: two are here.
TEST_P(GpuDecode, PutsSplitsTogetherByThemselves) {
  BackendOptions options = usual_decode();
  options.gpu_setup.most_split_bytes = 1;
  expect_stages_of_the_reference(options);
}

// Matrices of several types take several dispatches, each of which sums and norms for itself: what is shown
// of them comes from one.
TEST(GpuDecodeOfMixedTypes, ShowsNormsOfTheSumsThatItShows) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path("models/gemma3")));
  std::vector<std::vector<std::byte>> halves;
  for (std::size_t layer = 0; layer < model.spec.layers.size(); ++layer) {
    TensorView k = model.weights[model.weights.find(WeightRole::kK, static_cast<int>(layer))];
    ASSERT_EQ(k.dtype, DType::kBF16);
    std::vector<std::byte>& bytes = halves.emplace_back(k.data.begin(), k.data.end());
    for (std::size_t at = 0; at < bytes.size(); at += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &bytes[at], 2);
      bits = f32_to_f16(bf16_to_f32(bits));
      std::memcpy(&bytes[at], &bits, 2);
    }
    k.dtype = DType::kF16;
    k.data = bytes;
    model.weights.add(WeightRole::kK, static_cast<int>(layer), std::move(k));
  }
  // Shapes that happen to round alike would hide it: each dispatch gets an epsilon of its own.
  BackendOptions options = usual_decode();
  options.gpu_setup.shader_edits = {{"norm_prologue.wgsl", "#define POST_EPS_BITS EPS_BITS",
                                     "#define POST_EPS_BITS EPS_BITS + ROWS * 65536"}};
  ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
  KeepAll tap;
  run_in_pieces(*backend, {2, 5, 9, 33, 77, 101, 12, 8, 200, 150, 3, 99, 40, 41, 42, 43}, {1}, &tap);
  const std::size_t width = model.spec.hidden;
  for (const Op& op : backend->plan().ops) {
    const Value& out = backend->plan().values[op.outputs[0]];
    if (out.stage != Stage::kAttnNormed) continue;
    const auto& norm = std::get<NormParams>(op.params);
    std::vector<float> weight(width);
    ASSERT_OK(decode_f32(model.weights[op.weights[0]], 0, weight));
    const std::vector<float>&h = tap.stages[stage_key(Stage::kAttnInput, out.layer)],
          &x = tap.stages[stage_key(Stage::kAttnNormed, out.layer)];
    ASSERT_EQ(h.size(), x.size());
    for (std::size_t row = 0; row < h.size(); row += width) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) squares += static_cast<double>(h[row + i]) * h[row + i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + norm.eps);
      for (std::size_t i = 0; i < width; ++i) {
        const double expected = h[row + i] * factor * (weight[i] + norm.weight_offset);
        // Some roundings, each of half a unit in the last place.
        EXPECT_LE(std::abs(x[row + i] - expected), 20 * 0x1p-24 * std::abs(expected))
            << "layer " << out.layer << " token " << row / width << " dim " << i;
      }
    }
  }
}

TEST_P(GpuDecode, LookingChangesNoBit) {
  const auto plain = make("gpu"), looked = make("gpu");
  ASSERT_TRUE(plain && looked);
  KeepAll tap;
  EXPECT_EQ(decode(*plain, nullptr), decode(*looked, &tap));
}

TEST_P(GpuDecode, GivesTheSameTokensForAnyNumberToASubmission) {
  GenerateOptions greedy, drawn;
  drawn.temperature = 0.9;
  drawn.top_k = 20;
  drawn.repeat_penalty = 1.2;
  drawn.seed = 5;
  std::vector<GenerateOptions> all = {greedy};
  // The sampler does not know the model: one is enough for what compiles for seconds.
  if (std::string(GetParam()) == "models/gemma3") all.push_back(drawn);
  for (const GenerateOptions& sampling : all) {
    std::vector<TokenId> first;
    for (const std::uint32_t each : {1u, 4u, 16u}) {
      BackendOptions options = usual_decode();
      options.gpu.submit_tokens = each;
      const auto backend = make("gpu", options);
      ASSERT_TRUE(backend);
      const std::vector<TokenId> tokens = continue_with(*backend, sampling);
      EXPECT_EQ(tokens.size(), 25u);
      if (first.empty()) first = tokens;
      EXPECT_EQ(tokens, first) << each << " to a submission";
    }
  }
}

TEST_P(GpuDecode, ShowsEveryTokenOfAContinuation) {
  const auto plain = make("gpu"), looked = make("gpu");
  ASSERT_TRUE(plain && looked);
  KeepAll tap;
  const std::vector<TokenId> expected = continue_with(*plain, {});
  EXPECT_EQ(continue_with(*looked, {}, &tap), expected);
  const std::size_t hidden = model_.spec.hidden;
  ASSERT_EQ(tap.stages["layers.0.attn_normed"].size(), 25 * hidden);
  // What the twin stored while it continued is what it stores step by step.
  const auto stepped = make("gpu");
  ASSERT_TRUE(stepped);
  run_in_pieces(*stepped, prompt_, {40});
  KeepAll steps;
  std::vector<TokenId> fed = {11};
  fed.insert(fed.end(), expected.begin(), expected.end() - 1);
  run_in_pieces(*stepped, fed, {1}, &steps, 0, prompt_.size());
  EXPECT_EQ(tap.stages["layers.1.ffn_out"], steps.stages["layers.1.ffn_out"]);
  EXPECT_EQ(tap.stages["logits"], steps.stages["logits"]);
  // And each token is the likeliest of its logits.
  const std::vector<float>& logits = steps.stages["logits"];
  ASSERT_EQ(logits.size(), expected.size() * model_.spec.vocab_size);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * model_.spec.vocab_size);
    EXPECT_EQ(std::max_element(row, row + model_.spec.vocab_size) - row, expected[i]) << i;
  }
}

// Through the first positions, the edge of a window, and the end of attention's first split.
TEST_P(GpuDecode, BeginsASequenceAsTheReferenceDoes) {
  const auto gpu = make("gpu"), reference = make("reference");
  ASSERT_TRUE(gpu && reference);
  if (gpu->rounding() == Rounding::kEightBits) GTEST_SKIP() << "too coarse to miss one position of many";
  const std::vector<float> got = run_in_pieces(*gpu, prompt_, {1}),
                           expected = run_in_pieces(*reference, prompt_, {1});
  const std::size_t vocab = model_.spec.vocab_size;
  ASSERT_EQ(got.size(), prompt_.size() * vocab);
  for (std::size_t i = 0; i < prompt_.size(); ++i) {
    EXPECT_LE(relative_error(std::span(got).subspan(i * vocab, vocab),
                             std::span(expected).subspan(i * vocab, vocab)),
              1e-3)
        << "position " << i;
  }
}

// Columns 3 to 9 of some stages: those that lie in memory anyway and those that kernels store for a tap only.
class KeepColumns final : public Tap {
 public:
  bool wants(Stage stage, int layer) const override {
    return stage == Stage::kLogits || (layer == 1 && (stage == Stage::kQRope || stage == Stage::kFfnAct ||
                                                      stage == Stage::kAttnOut || stage == Stage::kLayerOut));
  }
  Columns columns(Stage, int) const override { return {3, 7}; }
  void on_stage(const TapEvent& event) override {
    EXPECT_EQ(event.first_column, 3u);
    std::vector<float>& kept = stages[stage_key(event.stage, event.layer)];
    kept.insert(kept.end(), event.data.begin(), event.data.end());
  }
  std::map<std::string, std::vector<float>> stages;
};

TEST_P(GpuDecode, ShowsTheColumnsThatATapAsksFor) {
  const auto all = make("gpu"), some = make("gpu");
  ASSERT_TRUE(all && some);
  KeepAll whole;
  KeepColumns part;
  const std::vector<TokenId> expected = continue_with(*all, {}, &whole);
  EXPECT_EQ(continue_with(*some, {}, &part), expected);
  EXPECT_EQ(part.stages.size(), 5u);
  for (const auto& [name, values] : part.stages) {
    ASSERT_EQ(values.size(), 25u * 7) << name;
    const std::size_t width = whole.stages[name].size() / 25;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], whole.stages[name][i / 7 * width + 3 + i % 7]) << name << " at " << i;
  }
}

TEST_P(GpuDecode, GoesOnAfterAStopAsIfNothingHadFollowed) {
  const auto backend = make("gpu"), fresh = make("gpu");
  ASSERT_TRUE(backend && fresh);
  const std::vector<TokenId> tokens = continue_with(*backend, {});
  ASSERT_GE(tokens.size(), 10u);
  // The cache keeps the prompt, 11 and nine of the tokens.
  std::vector<std::int32_t> kept(prompt_.begin(), prompt_.end());
  kept.push_back(11);
  kept.insert(kept.end(), tokens.begin(), tokens.begin() + 9);
  run_in_pieces(*fresh, prompt_, {40});
  run_in_pieces(*fresh, {kept.begin() + static_cast<std::ptrdiff_t>(prompt_.size()), kept.end()}, {1},
                nullptr, 0, prompt_.size());
  const StepInput next = step_of({{33, static_cast<std::int32_t>(kept.size()), 0}});
  const auto got = backend->step(next, nullptr), expected = fresh->step(next, nullptr);
  ASSERT_TRUE(got && expected);
  EXPECT_EQ(std::vector<float>(got->begin(), got->end()),
            std::vector<float>(expected->begin(), expected->end()));
}

// More splits than layers with many heads of keys and values have, and splits of more positions than they
// have at least.
TEST(GpuDecodeOfLongSequences, IsThatOfTheCpu) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path("models/llama")));
  model.spec.layers.resize(2);  // enough, and prompts take their time on software adapters
  model.spec.layers[1].attention.kind = AttentionKind::kSliding;
  model.spec.layers[1].attention.window = 1120;
  // Scores of a split so far apart that only their true maximum keeps an exponential finite.
  model.spec.layers[0].attention.scale *= 100;
  BackendOptions options = usual_decode();
  options.context = 1130;
  options.max_step_tokens = 560;
  options.exact = true;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 1122; ++i) ids.push_back((i * i % 211 + 3 * i) % 250);
  std::vector<float> logits[2];
  for (const char* name : {"gpu", "cpu"}) {
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend(name, model.spec, model.weights, options));
    // With two heads of keys and values 1,122 positions are 36 splits of 32; the window's 1,120, of which
    // there are 32 splits at most, are 18 of 64.
    logits[name[0] == 'c'] = run_in_pieces(*backend, ids, {559, 560, 1});
  }
  // The first ones passed many at a time.
  const std::ptrdiff_t vocab = model.spec.vocab_size;
  ASSERT_EQ(logits[0].size(), logits[1].size());
  for (std::ptrdiff_t i = 1119; i < 1122; ++i) {
    const auto row = [&](const std::vector<float>& all) { return std::span(all).subspan(i * vocab, vocab); };
    EXPECT_LE(relative_error(row(logits[0]), row(logits[1])), 2e-4) << "position " << i;
  }
}

// Pairs of neighbours, and pairs that are no whole quads, which no fixture has.
TEST(GpuDecodeOfOtherTurns, IsThatOfTheReference) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path("models/qwen3")));
  model.spec.layers.resize(2);
  model.spec.layers[0].attention.rope.layout = RopeLayout::kInterleaved;
  model.spec.layers[1].attention.rope.rotary_dim = 20;
  std::vector<float> logits[2];
  for (const char* name : {"gpu", "reference"}) {
    ASSERT_OK_AND_ASSIGN(const auto backend, make_backend(name, model.spec, model.weights, usual_decode()));
    logits[name[0] == 'r'] = run_in_pieces(*backend, {7, 38, 69, 100, 131}, {1});
  }
  EXPECT_LE(relative_error(logits[0], logits[1]), 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuDecode,
                         ::testing::Values("models/llama", "models/gemma3", "gguf/gemma3_k288.Q4_K_M.gguf"),
                         named_by_param);
INSTANTIATE_TEST_SUITE_P(More, GpuDecode,
                         ::testing::Values("models/qwen2", "models/qwen3", "models/gemma2",
                                           "gguf/llama.Q4_0.gguf"),
                         named_by_param);

}  // namespace
}  // namespace doppler
