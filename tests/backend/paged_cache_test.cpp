// Slots that share a pool of pages: each sequence says what it says alone, whichever pages it has; beginnings
// are shared and diverge; where pages run out, one sequence is refused and the others are unharmed.
#include <algorithm>

#include "backend/page_table.h"
#include "harness.h"
#if DOPPLER_GPU
#include "gpu_harness.h"
#endif

namespace doppler {
namespace {

using namespace testing;

struct Where {
  const char *backend, *fixture;
};

// Plain; with windows; recurrent; with latent attention, which keeps keys alone.
constexpr const char* kFixtures[] = {"llama", "gemma3", "qwen3_5", "deepseek_v3"};

class PagedCache : public ::testing::TestWithParam<Where> {
 protected:
  static constexpr std::uint64_t kContext = 100;

  void SetUp() override {
#if DOPPLER_GPU
    if (std::string_view(GetParam().backend) == "gpu") DOPPLER_NEEDS_ADAPTER();
#endif
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(std::string("models/") + GetParam().fixture)));
  }

  BackendOptions options(std::uint32_t slots, std::uint64_t positions = 0) const {
    BackendOptions options{.threads = 2, .context = kContext, .slots = slots};
    options.cache_positions = positions;
    options.max_step_tokens = 16;
    options.gpu_setup.self_check = false;
    options.gpu_setup.tune = false;
    return options;
  }
  std::unique_ptr<Backend> make(const BackendOptions& options) {
    auto backend = make_backend(GetParam().backend, model_.spec, model_.weights, options);
    EXPECT_TRUE(backend.has_value()) << (backend ? "" : backend.error().message);
    return backend ? std::move(*backend) : nullptr;
  }

  // Token i of sequence n.
  static std::int32_t token(std::uint32_t n, std::size_t i) {
    return static_cast<std::int32_t>((i * 31 + 7 + 11 * n) % 150);
  }
  static StepInput next_of(const Backend& backend, std::uint32_t slot, std::uint32_t n, std::size_t count) {
    StepInput input;
    const std::uint64_t length = backend.length(slot);
    for (std::size_t i = 0; i < count; ++i) input.add(token(n, length + i), length + i, slot, i + 1 == count);
    return input;
  }
  static Result<std::vector<float>> step(Backend& backend, const StepInput& input) {
    DOPPLER_ASSIGN(const auto logits, backend.step(input, nullptr));
    return std::vector<float>(logits.begin(), logits.end());
  }
  static std::vector<float> feed(Backend& backend, std::uint32_t slot, std::uint32_t n, std::size_t count) {
    std::vector<float> last;
    while (count > 0) {
      const std::size_t some = std::min<std::size_t>(count, 16);
      const auto logits = step(backend, next_of(backend, slot, n, some));
      EXPECT_TRUE(logits.has_value()) << (logits ? "" : logits.error().message);
      if (!logits) return {};
      last = *logits;
      count -= some;
    }
    return last;
  }
  // The same sequence in a cache of its own.
  std::vector<float> alone(std::uint32_t n, const std::vector<std::size_t>& pieces) {
    if (!single_) single_ = make(options(1));
    single_->clear(0);
    std::vector<float> last;
    for (const std::size_t piece : pieces) last = feed(*single_, 0, n, piece);
    return last;
  }
  bool is_paged(const Backend& backend) const {
    return std::ranges::any_of(backend.plan().kv_layers,
                               [](const KvLayer& layer) { return doppler::is_paged(layer, 2); });
  }

  Model model_;
  std::unique_ptr<Backend> single_;
};

TEST_P(PagedCache, SequencesInEachOthersPagesSayWhatTheySayAlone) {
  const auto backend = make(options(3));
  ASSERT_TRUE(backend);
  // In turns, so that no sequence has two pages that follow each other.
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t slot = 0; slot < 3; ++slot) feed(*backend, slot, slot, 16 + slot);
  }
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    std::vector<std::size_t> pieces(5, 16 + slot);
    pieces.push_back(1);
    EXPECT_EQ(feed(*backend, slot, slot, 1), alone(slot, pieces)) << "slot " << slot;
  }
}

TEST_P(PagedCache, CutAndGrownAgainASequenceIsAsBefore) {
  const auto backend = make(options(2));
  ASSERT_TRUE(backend);
  if (is_recurrent(backend->plan().kv_layers)) GTEST_SKIP() << "states do not go back";
  for (int round = 0; round < 4; ++round) {
    feed(*backend, 0, 0, 16);
    feed(*backend, 1, 1, 16);
  }
  for (const std::uint64_t length : {63, 50, 48}) {
    ASSERT_TRUE(backend->cache()->can_cut(0, length));
    ASSERT_OK(backend->cache()->cut(0, length));
    feed(*backend, 1, 1, 3);  // takes what was given back
  }
  const std::vector<float> again = feed(*backend, 0, 0, 16);
  EXPECT_EQ(again, alone(0, {16, 16, 16, 16}));
  backend->clear(0);
  EXPECT_EQ(feed(*backend, 0, 2, 16), alone(2, {16}));
  EXPECT_EQ(feed(*backend, 1, 1, 1), alone(1, {16, 16, 16, 16, 3, 3, 3, 1}));
}

TEST_P(PagedCache, ABeginningIsSharedUntilItDiverges) {
  const auto backend = make(options(3));
  ASSERT_TRUE(backend);
  feed(*backend, 0, 0, 48), feed(*backend, 0, 0, 7);
  ASSERT_OK(backend->cache()->share(0, 1));
  ASSERT_OK(backend->cache()->share(1, 2));
  EXPECT_EQ(backend->length(1), 55u);
  ASSERT_OK_AND_ASSIGN(const auto bytes, backend->cache()->read(0));
  ASSERT_OK_AND_ASSIGN(const auto shared, backend->cache()->read(2));
  EXPECT_EQ(bytes, shared);
  // Each goes its own way, the first one with tokens of its own.
  const std::vector<float> own = feed(*backend, 0, 0, 12);
  std::vector<float> other = feed(*backend, 1, 5, 12);
  EXPECT_EQ(own, alone(0, {48, 7, 12}));
  single_->clear(0);
  feed(*single_, 0, 0, 48), feed(*single_, 0, 0, 7);
  EXPECT_EQ(other, feed(*single_, 0, 5, 12));
  EXPECT_EQ(feed(*backend, 2, 0, 12), own);
  backend->clear(0);
  EXPECT_EQ(feed(*backend, 1, 5, 16), feed(*single_, 0, 5, 16));
}

TEST_P(PagedCache, WhoFindsNoPageIsRefusedAndTheOthersGoOn) {
  // Room for a context of four pages and one page more.
  const auto backend = make(options(3, kContext + 32));
  ASSERT_TRUE(backend);
  if (!is_paged(*backend)) GTEST_SKIP() << "all layers have windows or states";
  EXPECT_EQ(backend->options().cache_positions, 160u);
  feed(*backend, 0, 0, 16), feed(*backend, 0, 0, 16), feed(*backend, 0, 0, 16);
  feed(*backend, 1, 1, 16), feed(*backend, 1, 1, 16), feed(*backend, 1, 1, 16);
  feed(*backend, 2, 2, 16), feed(*backend, 2, 2, 15);
  const auto refused = step(*backend, next_of(*backend, 2, 2, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_ERROR(refused, "room for 160 positions", "slot 2");
  EXPECT_EQ(backend->length(2), 31u) << "a step that is refused changes nothing";
  // One that meets the end in a step with others leaves them where they were, too.
  StepInput all = next_of(*backend, 0, 0, 1);
  const StepInput more = next_of(*backend, 2, 2, 2);
  for (std::size_t i = 0; i < more.size(); ++i)
    all.add(more.ids[i], static_cast<std::uint64_t>(more.positions[i]), 2, false);
  EXPECT_FALSE(backend->step(all, nullptr));
  EXPECT_EQ(backend->length(0), 48u);
  EXPECT_EQ(feed(*backend, 0, 0, 16), alone(0, {16, 16, 16, 16}));
  EXPECT_EQ(feed(*backend, 2, 2, 1), alone(2, {16, 15, 1})) << "its last page has room for one";
  feed(*backend, 1, 1, 16);
  EXPECT_FALSE(step(*backend, next_of(*backend, 1, 1, 1)));
  backend->clear(0);
  EXPECT_EQ(backend->length(1), 64u);
  EXPECT_EQ(feed(*backend, 1, 1, 1), alone(1, {16, 16, 16, 16, 1}));
}

TEST_P(PagedCache, ARefusedStepLeavesThePagesItHadFound) {
  const auto backend = make(options(3, kContext + 32));
  ASSERT_TRUE(backend);
  if (!is_paged(*backend)) GTEST_SKIP() << "all layers have windows or states";
  feed(*backend, 0, 0, 64);
  feed(*backend, 1, 1, 32);
  feed(*backend, 2, 2, 32);
  // One page is free, and two want it.
  StepInput both = next_of(*backend, 1, 1, 1);
  both.add(token(2, 32), 32, 2, false);
  EXPECT_FALSE(backend->step(both, nullptr));
  EXPECT_EQ(feed(*backend, 2, 2, 1), alone(2, {32, 1}));
}

TEST_P(PagedCache, WhoeverCanSpareItsCacheGivesItUp) {
  const auto backend = make(options(3, kContext + 32));
  ASSERT_TRUE(backend);
  if (!is_paged(*backend)) GTEST_SKIP() << "all layers have windows or states";
  feed(*backend, 0, 0, 64);
  feed(*backend, 1, 1, 60);
  std::vector<std::uint32_t> asked;
  backend->cache()->on_shortage([&](std::uint32_t slot) {
    asked.push_back(slot);
    if (backend->length(0) == 0) return false;
    backend->clear(0);
    return true;
  });
  EXPECT_EQ(feed(*backend, 2, 2, 80), alone(2, {80}));
  EXPECT_EQ(asked, std::vector<std::uint32_t>{2});
  EXPECT_EQ(feed(*backend, 1, 1, 1), alone(1, {60, 1}));
}

// Sequence n continues by itself for so many tokens, or to the end of the room; then it is stopped.
std::vector<TokenId> continue_alone(Backend& backend, std::uint32_t slot, std::uint64_t most) {
  const GenerateOptions greedy;
  const std::uint64_t length = backend.length(slot);
  const std::vector<TokenId> history(length + 1, 11);
  const Status begun = backend.continuer()->continue_sequence(
      {.slot = slot, .id = 11, .most = most, .sampling = &greedy, .history = history});
  EXPECT_TRUE(begun.has_value()) << (begun ? "" : begun.error().message);
  std::vector<TokenId> tokens;
  while (begun) {
    const auto some = backend.continuer()->next_tokens();
    EXPECT_TRUE(some.has_value()) << (some ? "" : some.error().message);
    if (!some || some->empty()) break;
    tokens.insert(tokens.end(), some->begin(), some->end());
    if (some->back() == kNoRoom) break;
  }
  const std::uint64_t said =
      static_cast<std::uint64_t>(std::ranges::count_if(tokens, [](TokenId id) { return id >= 0; }));
  EXPECT_TRUE(backend.continuer()->stop_sequence(length + said).has_value());
  return tokens;
}

TEST_P(PagedCache, ASequenceThatContinuesEndsWhereItFindsNoPage) {
  const auto roomy = make(options(2)), tight = make(options(2, kContext + 32));
  ASSERT_TRUE(roomy && tight);
  if (roomy->continuer() == nullptr) GTEST_SKIP() << "it does not continue by itself";
  if (!is_paged(*roomy)) GTEST_SKIP() << "all layers have windows or states";
  for (Backend* backend : {roomy.get(), tight.get()}) {
    feed(*backend, 0, 0, 40);
    feed(*backend, 1, 1, 70);
  }
  // Slot 1 has three of five pages, and slot 0 two: 64 positions, of which 24 are free.
  const std::vector<TokenId> whole = continue_alone(*roomy, 0, 40), part = continue_alone(*tight, 0, 40);
  ASSERT_EQ(whole.size(), 40u);
  ASSERT_EQ(part.size(), 25u);
  EXPECT_EQ(part.back(), kNoRoom);
  EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin()));
  EXPECT_EQ(tight->length(0), 64u);
  EXPECT_EQ(feed(*tight, 1, 1, 1), feed(*roomy, 1, 1, 1));
  tight->clear(1);
  const std::vector<TokenId> rest = continue_alone(*tight, 0, 4);
  EXPECT_EQ(rest.size(), 4u);
}

TEST_P(PagedCache, OfThoseThatContinueTogetherOneEndsAndTheOthersGoOn) {
  const auto roomy = make(options(3)), tight = make(options(3, kContext + 32));
  ASSERT_TRUE(roomy && tight);
  if (roomy->continuer() == nullptr || roomy->continuer()->most_together() < 3)
    GTEST_SKIP() << "sequences do not continue together";
  if (!is_paged(*roomy)) GTEST_SKIP() << "all layers have windows or states";
  const GenerateOptions greedy;
  std::map<std::uint32_t, std::vector<TokenId>> said[2];
  const std::uint64_t lengths[] = {20, 50, 30}, most[] = {12, 10, 60};  // pages in the end: 1, 2, 3
  for (int i = 0; i < 2; ++i) {
    Backend& backend = i == 0 ? *roomy : *tight;
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      feed(backend, slot, slot, lengths[slot]);
      const std::vector<TokenId> history(lengths[slot] + 1, 11);
      ASSERT_OK(backend.continuer()->join(
          {.slot = slot, .id = 11, .most = most[slot], .sampling = &greedy, .history = history}));
    }
    for (;;) {
      ASSERT_OK_AND_ASSIGN(const auto some, backend.continuer()->tokens_of_all());
      if (some.empty()) break;
      for (const SlotToken& token : some) said[i][token.slot].push_back(token.id);
    }
  }
  EXPECT_EQ(said[1][0], said[0][0]);
  EXPECT_EQ(said[1][1], said[0][1]);
  const std::vector<TokenId>&whole = said[0][2], &part = said[1][2];
  ASSERT_EQ(whole.size(), 60u);
  ASSERT_EQ(part.size(), 35u) << "two of the five pages are its own: 34 positions more";
  EXPECT_EQ(part.back(), kNoRoom);
  EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin()));
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    const auto count =
        static_cast<std::uint64_t>(std::ranges::count_if(said[1][slot], [](TokenId id) { return id >= 0; }));
    ASSERT_OK(tight->continuer()->leave(slot, lengths[slot] + count));
  }
  tight->clear(0);
  EXPECT_TRUE(step(*tight, next_of(*tight, 2, 2, 1)));
}

TEST_P(PagedCache, TheBytesOfASequenceAreThoseOfACacheWithoutPages) {
  const auto backend = make(options(3));
  ASSERT_TRUE(backend);
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t slot = 0; slot < 3; ++slot) feed(*backend, slot, slot, 14);
  }
  ASSERT_OK_AND_ASSIGN(const auto paged, backend->cache()->read(1));
  alone(1, std::vector<std::size_t>(5, 14));
  ASSERT_OK_AND_ASSIGN(const auto straight, single_->cache()->read(0));
  EXPECT_EQ(paged, straight);
  // And each cache goes on from the other's.
  ASSERT_OK(backend->cache()->write(2, 70, straight));
  ASSERT_OK(single_->cache()->write(0, 70, paged));
  const std::vector<float> next = feed(*single_, 0, 1, 1);
  EXPECT_EQ(feed(*backend, 2, 1, 1), next);
  EXPECT_EQ(feed(*backend, 1, 1, 1), next);
}

std::vector<Where> all_places() {
  std::vector<Where> all;
  for (const BackendInfo& info : all_backends()) {
    for (const char* fixture : kFixtures) all.push_back({info.name.data(), fixture});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, PagedCache, ::testing::ValuesIn(all_places()), [](const auto& where) {
  return fmt::format("{}_{}", where.param.backend, where.param.fixture);
});

TEST(CachePositions, HoldAContextAtLeast) {
  ASSERT_OK_AND_ASSIGN(const auto fixture, load_fixture("llama"));
  BackendOptions options{.threads = 1, .context = 100, .slots = 2};
  options.cache_positions = 99;
  const auto refused = make_backend("cpu", fixture->model.spec, fixture->model.weights, options);
  EXPECT_ERROR(refused, "99 positions", "context of 100");
}

TEST(CachePositions, AreAsManyAsFitWhereThoseOfAllSlotsDoNot) {
  ASSERT_OK_AND_ASSIGN(const auto fixture, load_fixture("llama"));
  BackendOptions options{.threads = 1, .context = 100000, .slots = 60000};
  ASSERT_OK_AND_ASSIGN(const auto backend,
                       make_backend("cpu", fixture->model.spec, fixture->model.weights, options));
  EXPECT_GE(backend->options().cache_positions, options.context);
  EXPECT_LT(backend->options().cache_positions, options.context * options.slots);
  ASSERT_EQ(backend->fallbacks().size(), 1u);
  EXPECT_NE(backend->fallbacks()[0].what.find("have room for"), std::string::npos);
  EXPECT_EQ(make_backend("cpu", fixture->model.spec, fixture->model.weights,
                         {.threads = 1, .context = 64, .slots = 2})
                .value()
                ->options()
                .cache_positions,
            128u);
}

}  // namespace
}  // namespace doppler
