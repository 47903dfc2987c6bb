// Sequences that continue together on the GPU: the tokens of each are those that it has alone, whoever comes,
// goes, ends, or draws beside it.
#include <algorithm>
#include <cmath>
#include <map>

#include "gpu_harness.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint64_t kTogetherContext = 96;

BackendOptions together_options(std::uint32_t slots) {
  BackendOptions options{.threads = 2,
                         .context = kTogetherContext,
                         .slots = slots,
                         .max_step_tokens = 64,
                         .disabled_passes = {}};
  options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
  options.gpu_setup.tune = false;
  // Activations in 8 bits would round the other way where another kernel sums in another order.
  options.exact = true;
  return options;
}

class GpuSequences : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(GetParam())));
  }

  std::unique_ptr<Backend> make(const BackendOptions& options) {
    auto backend = make_backend("gpu", model_.spec, model_.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }

  // The text of sequence n: all differ, and have lengths of their own.
  static std::vector<std::int32_t> prompt(std::uint32_t n) {
    std::vector<std::int32_t> ids;
    for (std::uint32_t i = 0; i < 5 + 9 * n % 40; ++i)
      ids.push_back(static_cast<std::int32_t>((i * 31 + 7 + 11 * n) % 200));
    return ids;
  }
  static Status feed(Backend& backend, std::uint32_t slot, std::uint32_t n) {
    const std::vector<std::int32_t> ids = prompt(n);
    StepInput input;
    for (std::size_t i = 0; i < ids.size(); ++i) input.add(ids[i], i, slot, false);
    DOPPLER_TRY(backend.step(input, nullptr));
    return {};
  }
  // Sequence n goes on with the token 11 after its prompt.
  struct Wish {
    std::uint32_t n = 0;
    std::uint64_t most = 20;
    GenerateOptions sampling = {};
    std::vector<TokenId> stops = {};
  };
  static std::vector<TokenId> history(const Wish& wish) {
    const std::vector<std::int32_t> ids = prompt(wish.n);
    std::vector<TokenId> history(ids.begin(), ids.end());
    history.push_back(11);
    return history;
  }
  static Status join(Backend& backend, std::uint32_t slot, const Wish& wish) {
    const std::vector<TokenId> all = history(wish);
    Continuation continuation{
        .slot = slot, .id = 11, .most = wish.most, .sampling = &wish.sampling, .history = all};
    continuation.stops = wish.stops;
    return backend.continuer()->join(continuation);
  }
  // What it says alone, by the program for single tokens; up to a stop.
  std::vector<TokenId> alone(Backend& backend, const Wish& wish) {
    backend.clear(0);
    EXPECT_TRUE((feed(backend, 0, wish.n)).has_value());
    const std::vector<TokenId> all = history(wish);
    const std::uint64_t before = all.size() - 1;
    const Status begun = backend.continuer()->continue_sequence(
        {.slot = 0, .id = 11, .most = wish.most, .sampling = &wish.sampling, .history = all});
    EXPECT_TRUE(begun.has_value()) << (begun ? "" : begun.error().message);
    std::vector<TokenId> tokens;
    for (;;) {
      const auto some = backend.continuer()->next_tokens();
      EXPECT_TRUE(some.has_value()) << (some ? "" : some.error().message);
      if (!some || some->empty()) break;
      tokens.insert(tokens.end(), some->begin(), some->end());
    }
    EXPECT_TRUE((backend.continuer()->stop_sequence(before + tokens.size())).has_value());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (std::ranges::count(wish.stops, tokens[i]) > 0) tokens.resize(i + 1);
    }
    return tokens;
  }

  // All tokens until every sequence has ended, by slot.
  using Said = std::map<std::uint32_t, std::vector<TokenId>>;
  static bool listen(Backend& backend, Said& said) {
    const auto some = backend.continuer()->tokens_of_all();
    EXPECT_TRUE(some.has_value()) << (some ? "" : some.error().message);
    if (!some || some->empty()) return false;
    for (const SlotToken& token : *some) said[token.slot].push_back(token.id);
    return true;
  }

  Model model_;
};

TEST_P(GpuSequences, SayWhatTheySayAlone) {
  const auto backend = make(together_options(5)), single = make(together_options(1));
  ASSERT_TRUE(backend && single);
  ASSERT_GE(backend->continuer()->most_together(), 5u);
  for (std::uint32_t slot = 0; slot < 5; ++slot) {
    ASSERT_OK(feed(*backend, slot, slot));
    ASSERT_OK(join(*backend, slot, {.n = slot, .most = 12 + slot}));
  }
  Said said;
  while (listen(*backend, said)) {
  }
  for (std::uint32_t slot = 0; slot < 5; ++slot) {
    const Wish wish{.n = slot, .most = 12 + slot};
    EXPECT_EQ(said[slot], alone(*single, wish)) << "sequence " << slot;
    // The cache goes on from where the caller ends.
    const std::uint64_t kept = prompt(slot).size() + 7;
    ASSERT_OK(backend->continuer()->leave(slot, kept));
    EXPECT_EQ(backend->length(slot), kept);
  }
  EXPECT_TRUE(backend->continuer()->tokens_of_all()->empty());
}

TEST_P(GpuSequences, ComeGoAndEndWithoutAWordToTheOthers) {
  const auto backend = make(together_options(4)), single = make(together_options(1));
  ASSERT_TRUE(backend && single);
  const std::vector<TokenId> second = alone(*single, {.n = 1, .most = 30});
  ASSERT_GE(second.size(), 6u);
  const Wish wishes[] = {{.n = 0, .most = 30},
                         {.n = 1, .most = 30, .stops = {second[5]}},
                         {.n = 2, .most = 9},
                         {.n = 3, .most = 14}};
  Said said;
  for (std::uint32_t slot : {0u, 1u}) {
    ASSERT_OK(feed(*backend, slot, slot));
    ASSERT_OK(join(*backend, slot, wishes[slot]));
  }
  ASSERT_TRUE(listen(*backend, said));
  ASSERT_TRUE(listen(*backend, said));
  // A prompt runs between their steps, and its sequence joins them.
  ASSERT_OK(feed(*backend, 2, 2));
  ASSERT_OK(join(*backend, 2, wishes[2]));
  ASSERT_TRUE(listen(*backend, said));
  // One is taken out in the middle, another takes its place.
  const std::vector<TokenId> until_now = said[0];
  ASSERT_OK(backend->continuer()->leave(0, prompt(0).size() + until_now.size()));
  ASSERT_OK(feed(*backend, 3, 3));
  ASSERT_OK(join(*backend, 3, wishes[3]));
  while (listen(*backend, said)) {
  }
  for (std::uint32_t slot : {1u, 2u, 3u})
    EXPECT_EQ(said[slot], alone(*single, wishes[slot])) << "sequence " << slot;
  EXPECT_LE(said[1].size(), 6u);
  std::vector<TokenId> first = alone(*single, wishes[0]);
  ASSERT_LE(said[0].size(), first.size());
  EXPECT_TRUE(std::equal(said[0].begin(), said[0].end(), first.begin()));
  // It comes back and goes on.
  const std::vector<TokenId> rest(first.begin() + static_cast<std::ptrdiff_t>(until_now.size()), first.end());
  const GenerateOptions greedy;
  std::vector<TokenId> all = history(wishes[0]);
  all.insert(all.end(), until_now.begin(), until_now.end());
  ASSERT_OK(backend->continuer()->join(
      {.slot = 0, .id = until_now.back(), .most = rest.size(), .sampling = &greedy, .history = all}));
  Said again;
  while (listen(*backend, again)) {
  }
  EXPECT_EQ(again[0], rest);
}

TEST_P(GpuSequences, DrawAsTheyDrawAlone) {
  if (std::string(GetParam()) != "models/gemma3") GTEST_SKIP() << "the sampler does not know the model";
  const auto backend = make(together_options(5)), single = make(together_options(1));
  ASSERT_TRUE(backend && single);
  Wish wishes[] = {{.n = 0}, {.n = 1}, {.n = 2}, {.n = 3}, {.n = 4}};
  wishes[0].sampling.temperature = 0.9;
  wishes[0].sampling.top_k = 20;
  wishes[0].sampling.seed = 5;
  wishes[2].sampling.repeat_penalty = 1.3;
  wishes[3].sampling = {.temperature = 0.5, .frequency_penalty = 0.2, .penalty_window = 4, .seed = 7};
  wishes[4].sampling = {.temperature = 1, .logit_bias = {{5, 3.0}, {9, 2.0}}, .seed = 8};
  Said said;
  for (std::uint32_t slot = 0; slot < 5; ++slot) {
    ASSERT_OK(feed(*backend, slot, slot));
    ASSERT_OK(join(*backend, slot, wishes[slot]));
  }
  while (listen(*backend, said)) {
  }
  for (std::uint32_t slot = 0; slot < 5; ++slot)
    EXPECT_EQ(said[slot], alone(*single, wishes[slot])) << "sequence " << slot;
}

TEST_P(GpuSequences, FillTheContextAndEndThere) {
  const auto backend = make(together_options(2)), single = make(together_options(1));
  ASSERT_TRUE(backend && single);
  const Wish wishes[] = {{.n = 0, .most = 1000}, {.n = 1, .most = 1000}};
  Said said;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    ASSERT_OK(feed(*backend, slot, slot));
    ASSERT_OK(join(*backend, slot, wishes[slot]));
  }
  while (listen(*backend, said)) {
  }
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(said[slot].size(), kTogetherContext - prompt(slot).size());
    EXPECT_EQ(said[slot], alone(*single, wishes[slot])) << "sequence " << slot;
    ASSERT_OK(backend->continuer()->leave(slot, kTogetherContext));
  }
}

TEST_P(GpuSequences, SayNoToWhatCannotBe) {
  const auto backend = make(together_options(3));
  ASSERT_TRUE(backend);
  ASSERT_OK(feed(*backend, 0, 0));
  ASSERT_OK(feed(*backend, 1, 1));
  ASSERT_OK(join(*backend, 0, {.n = 0}));
  EXPECT_ERROR(join(*backend, 0, {.n = 0}), "slot 0 is being continued already");
  EXPECT_ERROR(join(*backend, 7, {.n = 0}), "slot");
  StepInput own;
  own.add(3, prompt(0).size(), 0, true);
  EXPECT_ERROR(backend->step(own, nullptr), "slot 0 is being continued");
  const GenerateOptions greedy;
  EXPECT_ERROR(backend->continuer()->continue_sequence({.slot = 1, .id = 11, .most = 3, .sampling = &greedy}),
               "continued already");
  EXPECT_ERROR(backend->continuer()->leave(1, 3), "slot 1 is not being continued");
  EXPECT_ERROR(backend->continuer()->leave(0, 90), "cannot keep 90 tokens");
  ASSERT_OK(backend->continuer()->leave(0, prompt(0).size()));
  ASSERT_OK(backend->continuer()->continue_sequence({.slot = 1, .id = 11, .most = 3, .sampling = &greedy}));
  EXPECT_ERROR(join(*backend, 0, {.n = 0}), "continued by itself");
}

// As many as there is room for, in kernels for few and for many rows.
TEST(GpuManySequences, SayWhatTheySayAlone) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path("gguf/llama.Q4_0.gguf")));
  BackendOptions options = together_options(64);
  options.exact = false;
  ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
  ASSERT_EQ(backend->continuer()->most_together(), 64u);
  // Half of them draw, which takes one sampler or several. Slots with the same text say the same, beside 63
  // others and beside 3, 12 and 30.
  const GenerateOptions ways[] = {{},
                                  {.temperature = 0.9, .seed = 3},
                                  {},
                                  {.temperature = 2, .top_k = 30, .presence_penalty = 1, .seed = 4}};
  std::map<std::size_t, std::vector<TokenId>> said;
  for (const std::uint32_t count : {4u, 13u, 31u, 64u}) {
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      backend->clear(slot);
      StepInput input;
      for (std::uint32_t i = 0; i < 6; ++i)
        input.add(static_cast<std::int32_t>((i * 31 + 7 + slot % 4 * 11) % 200), i, slot, false);
      ASSERT_OK(backend->step(input, nullptr));
      ASSERT_OK(backend->continuer()->join({.slot = slot, .id = 11, .most = 5, .sampling = &ways[slot % 4]}));
    }
    std::map<std::uint32_t, std::vector<TokenId>> here;
    for (;;) {
      ASSERT_OK_AND_ASSIGN(const auto tokens, backend->continuer()->tokens_of_all());
      if (tokens.empty()) break;
      for (const SlotToken& token : tokens) here[token.slot].push_back(token.id);
    }
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      ASSERT_EQ(here[slot].size(), 5u);
      EXPECT_EQ(here[slot], here[slot % 4]) << slot << " of " << count;
      ASSERT_OK(backend->continuer()->leave(slot, 11));
    }
  }
}

// A token whose embedding is no number spoils its own sequence, and no other.
TEST(GpuManySequences, EndAloneWhereLogitsAreNotFinite) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(Model model, load_model(data_path("models/llama")));
  TensorView table = model.weights[model.weights.find(WeightRole::kTokenEmbedding, -1)];
  std::vector<float> values(element_count(table.shape).value_or(0));
  ASSERT_OK(decode_f32(table, 0, values));
  constexpr TokenId kBad = 150;
  values[kBad * model.spec.hidden + 3] = std::nanf("");
  table.dtype = DType::kF32;
  table.data = std::as_bytes(std::span(values));
  table.mapped = false;
  model.weights.add(WeightRole::kTokenEmbedding, -1, table);
  ASSERT_OK_AND_ASSIGN(const auto backend,
                       make_backend("gpu", model.spec, model.weights, together_options(3)));
  const GenerateOptions greedy;
  std::map<std::uint32_t, std::vector<TokenId>> said[2];
  for (const bool spoilt : {false, true}) {
    for (const std::uint32_t slot : {0u, 1u, 2u}) {
      backend->clear(slot);
      StepInput input;
      for (std::uint32_t i = 0; i < 4; ++i)
        input.add(static_cast<TokenId>(7 + i + 11 * slot), i, slot, false);
      ASSERT_OK(backend->step(input, nullptr));
      const TokenId id = spoilt && slot == 1 ? kBad : 11;
      ASSERT_OK(backend->continuer()->join({.slot = slot, .id = id, .most = 4, .sampling = &greedy}));
    }
    for (;;) {
      ASSERT_OK_AND_ASSIGN(const auto tokens, backend->continuer()->tokens_of_all());
      if (tokens.empty()) break;
      for (const SlotToken& token : tokens) said[spoilt ? 1 : 0][token.slot].push_back(token.id);
    }
    for (const std::uint32_t slot : {0u, 1u, 2u}) ASSERT_OK(backend->continuer()->leave(slot, 5));
  }
  EXPECT_EQ(said[1][1], std::vector<TokenId>{-1});
  EXPECT_EQ(said[1][0], said[0][0]);
  EXPECT_EQ(said[1][2], said[0][2]);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuSequences, ::testing::Values("models/gemma3", "gguf/llama.Q4_0.gguf"),
                         named_by_param);
INSTANTIATE_TEST_SUITE_P(More, GpuSequences,
                         ::testing::Values("models/llama", "models/qwen2", "gguf/gemma3_k288.Q4_K_M.gguf"),
                         named_by_param);

}  // namespace
}  // namespace doppler
