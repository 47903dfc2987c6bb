// The gpu backend runs whole models: every stage of every dense fixture against the reference backend and
// transformers, in any pieces and any company, on any device, always with the same bits.
#include <cmath>
#include <numeric>

#include "backend/kv_cache.h"
#include "backend/row_tokens.h"
#include "gpu_harness.h"
#include "gpu_models.h"
#include "harness.h"
#include "model_fixture.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kContext = 64;

BackendOptions usual() {
  BackendOptions options{
      .threads = 2, .context = kContext, .slots = 1, .max_step_tokens = 32, .disabled_passes = {}};
  options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
  options.gpu_setup.tune =
      false;  // what is measured may differ from one backend to the next, and so the order of sums
  return options;
}

std::unique_ptr<Backend> make(const Model& model, const BackendOptions& options) {
  auto backend = make_backend("gpu", model.spec, model.weights, options);
  EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
  return backend ? std::move(*backend) : nullptr;
}

// The sequence in slot 1 and another, faster one in slot 2; the logits of ours.
std::vector<float> run_beside_another(Backend& backend, const std::vector<std::int32_t>& ids,
                                      std::size_t vocab) {
  std::vector<float> got;
  const auto other = [&](std::size_t at) { return ids[ids.size() - 1 - at % ids.size()]; };
  for (std::size_t i = 0; 2 * (i + 1) <= kContext && i < ids.size(); ++i) {
    const auto p = static_cast<std::int32_t>(i);
    const auto logits = backend.step(
        step_of({{other(2 * i), 2 * p, 2}, {ids[i], p, 1}, {other(2 * i + 1), 2 * p + 1, 2}}), nullptr);
    EXPECT_TRUE(logits.has_value()) << (logits ? "" : logits.error().message);
    if (!logits) break;
    got.insert(got.end(), logits->begin() + static_cast<std::ptrdiff_t>(vocab),
               logits->begin() + static_cast<std::ptrdiff_t>(2 * vocab));
  }
  return got;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const auto [g, e] = std::mismatch(got.begin(), got.end(), expected.begin());
  if (g == got.end()) return;
  ADD_FAILURE() << what << ": number " << g - got.begin() << " of " << got.size() << " is " << *g
                << " and not " << *e << "; the relative error of all is " << relative_error(got, expected);
}

class GpuModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    ASSERT_OK_AND_ASSIGN(fixture_, load_fixture(GetParam()));
    sequence_ = fixture_->prompt;
    sequence_.insert(sequence_.end(), fixture_->greedy.begin(), fixture_->greedy.end() - 1);
  }
  // The prompt in one step, then token by token.
  std::vector<std::size_t> as_generated() const { return {fixture_->prompt.size(), 1}; }
  std::size_t vocab() const { return fixture_->model.spec.vocab_size; }

  std::unique_ptr<FixtureModel> fixture_;
  std::vector<std::int32_t> sequence_;
};

// One story for each family, because making a backend costs more than all that it then does here.
TEST_P(GpuModel, AgreesAtEveryStageInAnyPiecesAndCompany) {
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", fixture_->model.spec,
                                                          fixture_->model.weights, {.context = kContext}));
  KeepStages expected;
  run_in_pieces(*reference, sequence_, as_generated(), &expected);
  BackendOptions options = usual();
  options.slots = 3;
  options.gpu.checked = true;
  const auto backend = make(fixture_->model, options);
  ASSERT_NE(backend, nullptr);

  KeepStages got;
  const std::vector<float> logits = run_in_pieces(*backend, sequence_, as_generated(), &got);
  EXPECT_EQ(got.stages.size(), expected.stages.size());
  for (const auto& [name, values] : expected.stages)
    EXPECT_LT(relative_error(got.stages[name], values), tolerance_of(GetParam())) << name;
  const std::span<const float> decoded = std::span(logits).subspan(fixture_->prompt.size() * vocab());
  EXPECT_LT(relative_error(decoded, fixture_->recorded("decode_logits")), tolerance_of(GetParam()));
  for (std::size_t i = 0; i < fixture_->greedy.size(); ++i) {
    const auto row = std::span(logits).subspan((fixture_->prompt.size() - 1 + i) * vocab(), vocab());
    EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), fixture_->greedy[i]) << "step " << i;
  }

  // Other pieces in a slot that held something else: the same numbers, but for the order of sums, which is
  // another in tiles of tokens and in the fused program for single ones; and the same bits each time.
  for (const std::size_t piece : {1, 3, 7}) {
    SCOPED_TRACE(piece);
    backend->clear(0);
    KeepStages tap, again;
    const std::vector<float> looked_at = run_in_pieces(*backend, sequence_, {piece}, &tap);
    EXPECT_LT(relative_error(looked_at, logits), tolerance_of(GetParam()));
    for (const auto& [name, values] : expected.stages)
      EXPECT_LT(relative_error(tap.stages[name], values), tolerance_of(GetParam())) << name;
    backend->clear(0);
    EXPECT_TRUE(run_in_pieces(*backend, sequence_, {piece}, &again) == looked_at);
    EXPECT_TRUE(again.stages == tap.stages);
    backend->clear(0);
    const std::vector<float> fused = run_in_pieces(*backend, sequence_, {piece});
    EXPECT_LT(relative_error(fused, logits), tolerance_of(GetParam()));
    backend->clear(0);
    EXPECT_TRUE(run_in_pieces(*backend, sequence_, {piece}) == fused);
  }
  const std::vector<float> in_company = run_beside_another(*backend, sequence_, vocab());
  ASSERT_GE(in_company.size(), fixture_->prompt.size() * vocab());
  EXPECT_LT(relative_error(in_company, std::span(logits).first(in_company.size())), tolerance_of(GetParam()));
}

std::vector<const char*> dense_fixtures(bool more) {
  std::vector<const char*> names;
  for (const char* name : kDenseFixtures)
    if (is_gpu_against_reference(name) != more) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Dense, GpuModel, ::testing::ValuesIn(dense_fixtures(false)), named_by_param);
INSTANTIATE_TEST_SUITE_P(More, GpuModel, ::testing::ValuesIn(dense_fixtures(true)), named_by_param);

// The same model on other devices and in other memory.
class GpuVariants : public GpuModel {};

TEST_P(GpuVariants, GiveTheSameLogits) {
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", fixture_->model.spec,
                                                          fixture_->model.weights, {.context = kContext}));
  const std::vector<float> expected = run_in_pieces(*reference, sequence_, as_generated());
  BackendOptions poison = usual(), shards = usual(), plain = usual(), small = usual();
  poison.gpu.poison = true;
  shards.gpu_setup.most_shard_bytes = 200 << 10;  // a few tiles of the widest matrix
  plain.gpu_setup.no_subgroups = true;
  small.max_step_tokens = 5;  // buffers of another size
  const auto backend = make(fixture_->model, usual());
  const std::vector<float> first = run_in_pieces(*backend, sequence_, as_generated());
  EXPECT_LT(relative_error(first, expected), tolerance_of(GetParam()));
  backend->clear(0);
  const std::vector<float> in_fives = run_in_pieces(*backend, sequence_, {5});
  expect_same_bits(run_in_pieces(*make(fixture_->model, poison), sequence_, as_generated()), first, "poison");
  EXPECT_TRUE(run_in_pieces(*make(fixture_->model, small), sequence_, {5}) == in_fives) << "small steps";
  // Other workgroups, or other orders of adding.
  const auto in_shards = run_in_pieces(*make(fixture_->model, shards), sequence_, as_generated());
  EXPECT_LT(relative_error(in_shards, expected), tolerance_of(GetParam()));
  const auto without = run_in_pieces(*make(fixture_->model, plain), sequence_, as_generated());
  EXPECT_LT(relative_error(without, expected), tolerance_of(GetParam()));
}

// The memory of a workgroup that every WebGPU device has, and an eighth of it: kernels that need more are
// done without.
TEST_P(GpuVariants, DoWithLittleWorkgroupMemory) {
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", fixture_->model.spec,
                                                          fixture_->model.weights, {.context = kContext}));
  const std::vector<float> expected = run_in_pieces(*reference, sequence_, as_generated());
  for (const std::uint32_t bytes : {16384, 2048}) {
    SCOPED_TRACE(bytes);
    BackendOptions little = usual();
    little.gpu_setup.most_workgroup_bytes = bytes;
    const auto backend = make(fixture_->model, little);
    ASSERT_NE(backend, nullptr);
    EXPECT_LT(relative_error(run_in_pieces(*backend, sequence_, as_generated()), expected),
              tolerance_of(GetParam()));
  }
}

// Keys and values become halves, and so do the means that the parts of an attention leave; a model passes on
// what that moves. Of gemma2's logits single ones move by 0.012 of the largest, as a machine's last bits have
// it, and all together by 0.007: those are judged, by what a comparison allows
// (diagnosis/compare/comparison.cpp).
TEST_P(GpuVariants, KeepKeysAsHalves) {
  constexpr double kHalfCacheOverFloats = 20;
  ASSERT_OK_AND_ASSIGN(const auto reference, make_backend("reference", fixture_->model.spec,
                                                          fixture_->model.weights, {.context = kContext}));
  const std::vector<float> expected = run_in_pieces(*reference, sequence_, as_generated());
  const double size = rms_between(expected, std::vector<float>(expected.size()));
  for (const char* name : {"gpu", "cpu"}) {
    SCOPED_TRACE(name);
    BackendOptions options = usual();
    options.kv_type = KvType::kF16;
    ASSERT_OK_AND_ASSIGN(const auto backend,
                         make_backend(name, fixture_->model.spec, fixture_->model.weights, options));
    EXPECT_TRUE(backend->rounding() == Rounding::kHalfCache || backend->rounding() == Rounding::kHalf);
    const std::vector<float> got = run_in_pieces(*backend, sequence_, as_generated());
    EXPECT_LT(rms_between(got, expected), kHalfCacheOverFloats * tolerance_of(GetParam()) * size);
    // A cache of floats would come nearer than halves can.
    EXPECT_GT(rms_between(got, expected), tolerance_of(GetParam()) * size);
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, GpuVariants, ::testing::Values("phi3", "gemma2"), named_by_param);

// Windows of 8 tokens go round their rings many times.
class GpuLongContext : public GpuModel {};

TEST_P(GpuLongContext, AgreesWithTheCpuBackend) {
  constexpr std::size_t kTokens = 330;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < kTokens; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i + 7 * i) % fixture_->model.spec.vocab_size));
  BackendOptions options{
      .threads = 2, .context = kTokens, .slots = 1, .max_step_tokens = 100, .disabled_passes = {}};
  ASSERT_OK_AND_ASSIGN(const auto cpu,
                       make_backend("cpu", fixture_->model.spec, fixture_->model.weights, options));
  const std::vector<float> expected = run_in_pieces(*cpu, ids, {100});
  const auto backend = make(fixture_->model, options);
  ASSERT_NE(backend, nullptr);
  const std::vector<float> got = run_in_pieces(*backend, ids, {100});
  EXPECT_LT(relative_error(got, expected), tolerance_of(GetParam(), *backend));
  backend->clear(0);
  EXPECT_LT(relative_error(run_in_pieces(*backend, ids, {99, 1, 1, 1, 7, 64, 1, 100}), expected),
            tolerance_of(GetParam(), *backend));
}

INSTANTIATE_TEST_SUITE_P(Dense, GpuLongContext, ::testing::Values("gemma3"), named_by_param);

// Files of block types, of the fixtures' logits by transformers on the same weights.
class GpuQuantised : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    const std::string path = std::string("gguf/") + GetParam();
    ASSERT_OK_AND_ASSIGN(recording_, open_safetensors(data_path(path + ".llamacpp.safetensors")));
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(path + ".gguf")));
    ASSERT_OK_AND_ASSIGN(const auto prompt, testing::read_ids(*recording_.find("prompt_ids")));
    prompt_.assign(prompt.begin(), prompt.end());
    truth_ = recorded("hf_logits_gguf");
  }
  std::vector<float> recorded(const char* name) const {
    const TensorView* tensor = recording_.find(name);
    if (tensor == nullptr) return {};
    std::vector<float> values(tensor->data.size() / 4);
    EXPECT_TRUE(decode_f32(*tensor, 0, values).has_value());
    return values;
  }
  double rms_from_truth(std::span<const float> logits) const { return testing::rms_between(logits, truth_); }

  TensorStore recording_;
  Model model_;
  std::vector<std::int32_t> prompt_;
  std::vector<float> truth_;
};

TEST_P(GpuQuantised, RoundsNoWorseThanLlamaCppAndNotAtAllWhenExact) {
  const double theirs = rms_from_truth(recorded("logits"));
  BackendOptions poisoned = usual();
  poisoned.gpu.poison = true;
  const auto backend = make(model_, poisoned);
  ASSERT_NE(backend, nullptr);
  EXPECT_EQ(backend->rounding(), Rounding::kEightBits);
  const std::vector<float> ours = run_in_pieces(*backend, prompt_, {32});
  // Rounding errors are random: on one small prompt either side may be ahead by a fifth.
  EXPECT_LT(rms_from_truth(ours), 1.2 * theirs);
  for (const std::size_t piece : {1, 5}) {
    backend->clear(0);
    EXPECT_LT(rms_from_truth(run_in_pieces(*backend, prompt_, {piece})), 1.2 * theirs)
        << "pieces of " << piece;
    backend->clear(0);
    KeepStages tap;
    EXPECT_LT(rms_from_truth(run_in_pieces(*backend, prompt_, {piece}, &tap)), 1.2 * theirs)
        << "pieces of " << piece;
  }
  BackendOptions exact = usual();
  exact.exact = true;
  exact.gpu.checked = true;
  const auto exactly = make(model_, exact);
  ASSERT_NE(exactly, nullptr);
  EXPECT_LT(rms_from_truth(run_in_pieces(*exactly, prompt_, {32})), 1e-4);
  exactly->clear(0);
  EXPECT_LT(rms_from_truth(run_in_pieces(*exactly, prompt_, {1})), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Gguf, GpuQuantised,
                         ::testing::Values("llama.Q8_0", "llama_k256.Q4_K_M", "gemma3_k288.Q4_0"),
                         named_by_param);
INSTANTIATE_TEST_SUITE_P(More, GpuQuantised,
                         ::testing::Values("llama.Q4_0", "llama.Q5_1", "llama_k256.Q2_K", "llama_k256.IQ4_XS",
                                           "gemma3_k288.Q4_K_M"),
                         named_by_param);

// The tokens of a stage's rows, as a tap is shown them.
struct TokensOf final : Tap {
  bool wants(Stage stage, int) const override { return stage == Stage::kFinalNorm; }
  void on_stage(const TapEvent& event) override {
    ++events;
    for (const std::size_t token : row_tokens(event)) tokens.push_back(static_cast<std::int32_t>(token));
  }
  std::size_t events = 0;
  std::vector<std::int32_t> tokens;
};

// The logits of 64 tokens fit at a time with so large a vocabulary; the rows of the others come after them.
TEST(GpuLogits, OfMoreTokensThanFitAtATimeComeInPortions) {
  DOPPLER_NEEDS_ADAPTER();
  constexpr std::int32_t kVocabulary = 1 << 18, kTokens = 70;
  Json config = tiny_config("llama");
  config.update({{"vocab_size", kVocabulary}, {"num_hidden_layers", 1}, {"tie_word_embeddings", true}});
  const TinyModel tiny("llama", config);
  ASSERT_OK_AND_ASSIGN(const Weights weights, tiny.bind());
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < kTokens; ++i) ids.push_back(i * 7919 % kVocabulary);
  BackendOptions options = usual();
  options.context = options.max_step_tokens.emplace(80);
  ASSERT_OK_AND_ASSIGN(const auto gpu, make_backend("gpu", spec, weights, options));
  ASSERT_OK_AND_ASSIGN(const auto cpu, make_backend("cpu", spec, weights, options));
  TokensOf tap;
  EXPECT_LT(relative_error(run_in_pieces(*gpu, ids, {kTokens}, &tap), run_in_pieces(*cpu, ids, {kTokens})),
            2e-4);
  std::vector<std::int32_t> all(kTokens);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(tap.tokens, all);
  EXPECT_EQ(tap.events, 2u);
}

class GpuBackendLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    ASSERT_OK_AND_ASSIGN(fixture_, load_fixture("llama"));
  }
  Result<std::unique_ptr<Backend>> try_make(const BackendOptions& options) {
    return make_backend("gpu", fixture_->model.spec, fixture_->model.weights, options);
  }
  std::unique_ptr<FixtureModel> fixture_;
};

TEST_F(GpuBackendLimits, RefusesAStepBeforeAnythingChanges) {
  ASSERT_OK_AND_ASSIGN(const auto backend,
                       try_make({.threads = 1, .context = 8, .slots = 2, .max_step_tokens = 4}));
  const auto first = run_in_pieces(*backend, {1, 2}, {2});
  EXPECT_ERROR(backend->step(step_of({{3, 2, 0}, {-1, 3, 0}}), nullptr), "token id -1");
  EXPECT_ERROR(backend->step(step_of({{3, 2, 0}, {4, 4, 0}}), nullptr), "position 4", "continues at 3");
  EXPECT_ERROR(backend->step(step_of({{3, 0, 2}}), nullptr), "slot 2");
  EXPECT_EQ(backend->length(0), 2u);
  EXPECT_EQ(backend->length(1), 0u);
  backend->clear(0);
  EXPECT_EQ(backend->length(0), 0u);
  EXPECT_TRUE(run_in_pieces(*backend, {1, 2}, {2}) == first);
}

TEST_F(GpuBackendLimits, GivesNoRowsWhereNoLogitsAreWanted) {
  ASSERT_OK_AND_ASSIGN(const auto backend, try_make({.threads = 2, .context = 64}));
  ASSERT_OK_AND_ASSIGN(const auto none, backend->step(step_of({{1, 0, 0}, {2, 1, 0}}, false), nullptr));
  EXPECT_TRUE(none.empty());
  StepInput input = step_of({{3, 2, 0}, {4, 3, 0}, {5, 4, 0}});
  input.wants_logits = {1, 0, 1};
  ASSERT_OK_AND_ASSIGN(const auto two, backend->step(input, nullptr));
  const std::vector<float> some(two.begin(), two.end());
  backend->clear(0);
  const std::vector<float> all = run_in_pieces(*backend, {1, 2, 3, 4, 5}, {5});
  const auto vocab = static_cast<std::ptrdiff_t>(fixture_->model.spec.vocab_size);
  EXPECT_TRUE(std::equal(some.begin(), some.begin() + vocab, all.begin() + 2 * vocab));
  EXPECT_TRUE(std::equal(some.begin() + vocab, some.end(), all.begin() + 4 * vocab));
}

TEST_F(GpuBackendLimits, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(try_make({.context = INT32_MAX}), "KV cache", "Lower the context");
  EXPECT_ERROR(try_make({.context = 64, .max_step_tokens = UINT32_MAX}), "A step of 4294967295 tokens");
  EXPECT_ERROR(try_make({.context = 64, .kv_type = KvType::kQ8_0}), "q8_0", "--kv-type");
  BackendOptions elsewhere{.context = 64};
  elsewhere.gpu.adapter = "no such GPU";
  EXPECT_ERROR(try_make(elsewhere), "No GPU adapter is called no such GPU");
  BackendOptions tiny{.context = 64};
  tiny.gpu_setup.most_shard_bytes = 100;
  EXPECT_ERROR(try_make(tiny), "at most 100 bytes", "64 rows");
}

TEST_F(GpuBackendLimits, TapsTakeNoMemoryForGood) {
  const auto total = [](const MemoryUse& m) { return m.cache + m.activations + m.weights; };
  ASSERT_OK_AND_ASSIGN(const auto backend, try_make({.threads = 1, .context = 64, .max_step_tokens = 8}));
  KeepStages tap;
  run_in_pieces(*backend, {1, 2, 3}, {3}, &tap);
  const std::uint64_t before = total(backend->memory());
  for (const std::size_t piece : {3, 1}) {
    backend->clear(0);
    run_in_pieces(*backend, {1, 2, 3}, {piece}, &tap);
  }
  EXPECT_EQ(total(backend->memory()), before);
}

TEST_F(GpuBackendLimits, CountsCacheWeightsAndActivationsApart) {
  ASSERT_OK_AND_ASSIGN(const auto small, try_make({.threads = 1, .context = 64, .max_step_tokens = 8}));
  ASSERT_OK_AND_ASSIGN(const auto large, try_make({.threads = 1, .context = 256, .max_step_tokens = 8}));
  const auto kv_bytes = [](const Backend& backend) {
    const BackendOptions& o = backend.options();
    return *KvCache::bytes_needed(backend.plan().kv_layers, {.context = o.context, .reach = 8}, *o.kv_type);
  };
  EXPECT_EQ(small->memory().cache, kv_bytes(*small));
  EXPECT_EQ(large->memory().cache, kv_bytes(*large));
  EXPECT_EQ(small->memory().weights, large->memory().weights);
  EXPECT_GT(small->memory().weights, 0u);
  EXPECT_GT(small->memory().activations, 0u);
}

TEST_F(GpuBackendLimits, ChoosesTheTokensOfAStepWhereNobodyElseDoes) {
  ASSERT_OK_AND_ASSIGN(const auto free, try_make({.threads = 1, .context = 64}));
  EXPECT_EQ(free->options().max_step_tokens, 512u);
  ASSERT_OK_AND_ASSIGN(const auto bound, try_make({.threads = 1, .context = 64, .max_step_tokens = 256}));
  EXPECT_EQ(bound->options().max_step_tokens, 256u);
}

// embed.wgsl stores whole vec4s.
TEST(GpuModels, OfOddWidthsAreRefused) {
  DOPPLER_NEEDS_ADAPTER();
  Json config = tiny_config("llama");
  config["hidden_size"] = 30;
  const TinyModel tiny("llama", config);
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, tiny.spec());
  ASSERT_OK_AND_ASSIGN(const Weights weights, tiny.bind());
  EXPECT_ERROR(make_backend("gpu", spec, weights, {.context = 64}), "multiple of 4", "30", "--backend cpu");
}

}  // namespace
}  // namespace doppler
