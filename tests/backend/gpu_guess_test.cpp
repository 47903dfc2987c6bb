// Sequences that continue on the GPU with guesses of its own: guess_tokens.wgsl against the host's drafter,
// and whole continuations, which give the tokens that they give without guesses, wherever they end.
#include <algorithm>

#include "gpu_harness.h"
#include "harness.h"

namespace doppler {
namespace {

using namespace testing;
using namespace gpu::testing;

using Ids = std::vector<TokenId>;

// --- the kernel

constexpr std::uint32_t kCheckRows = 6, kRowCandidates = 3, kFewTokens = 50, kLongestEnd = 4,
                        kPositionsAt = 2, kIdsAt = 12;

// A text, of which the last is the newest token; what was guessed behind it, and what came.
struct CheckedText {
  Ids text, guesses, chosen;
};

struct AfterCheck {
  Ids text, next;
  std::uint32_t first = 0;  // position of `next`
  std::vector<std::uint32_t> result;
};

// Who chose: the kernel itself, from candidates; the sampler, in turn or at once.
enum class Chosen { kHere, kInTurn, kAtOnce };
constexpr std::uint32_t kStateWords = 5;

void run_kernel(const CheckedText& c, Mode mode, Chosen by, AfterCheck& after) {
  std::vector<std::uint32_t> step(kIdsAt + kCheckRows, 7), text(c.text.begin(), c.text.end()), candidates,
      ids(c.chosen.begin(), c.chosen.end());
  const auto newest = static_cast<std::uint32_t>(c.text.size() - 1);
  for (std::uint32_t row = 0; row < kCheckRows; ++row) {
    step[kPositionsAt + row] = newest + row;
    step[kIdsAt + row] = static_cast<std::uint32_t>(row == 0 ? c.text.back() : c.guesses[row - 1]);
    // The chosen one is the largest; of two that are as large the other has a higher number.
    const auto chosen = static_cast<std::uint32_t>(c.chosen[row]);
    for (std::uint32_t i = 0; i < kRowCandidates; ++i) {
      const bool best = i == row % kRowCandidates, equal = i == (row + 1) % kRowCandidates;
      candidates.push_back(std::bit_cast<std::uint32_t>(best || equal ? 5.0f : 4.0f));
      candidates.push_back(best ? chosen : equal ? chosen + 1 : 0);
      if (c.chosen[row] < 0) candidates.back() = row % 2 == 0 ? kFewTokens : 0xfffffffe;
    }
  }
  text.resize(text.size() + kCheckRows, 999);
  gpu::ShaderValues values = {{"THREADS", 256},
                              {"ROWS", kCheckRows},
                              {"DRAWN", by != Chosen::kHere},
                              {"AT_ONCE", by == Chosen::kAtOnce},
                              {"VOCAB", kFewTokens},
                              {"IDS", kIdsAt},
                              {"POSITIONS", kPositionsAt},
                              {"LONGEST", kLongestEnd}};
  if (by == Chosen::kHere) values["CANDIDATES"] = kRowCandidates;
  if (by == Chosen::kAtOnce) values["STATE_WORDS"] = kStateWords;
  Launch launch(mode, "guess_tokens.wgsl", values);
  launch.in("step", step).in("text", text).out("result", 1 + 2 * kCheckRows);
  by == Chosen::kHere ? launch.in("candidates", candidates) : launch.in("drawn", ids);
  // Each row has drawn one; the first number is 2^33 - 2, so that some go beyond the low word.
  std::vector<std::uint32_t> draws(kCheckRows * kStateWords, 7);
  for (std::uint32_t row = 0; row < kCheckRows; ++row) {
    const std::uint64_t draw = (1ull << 33) - 2 + row + 1;
    draws[row * kStateWords] = static_cast<std::uint32_t>(draw);
    draws[row * kStateWords + 1] = static_cast<std::uint32_t>(draw >> 32);
  }
  if (by == Chosen::kAtOnce) launch.in("draws", draws);
  ASSERT_TRUE(launch.run({1, 1, 1}));
  const auto now = launch.get<std::uint32_t>("step"), said = launch.get<std::uint32_t>("text");
  after = {};
  after.first = now[kPositionsAt];
  for (std::uint32_t row = 0; row < kCheckRows; ++row) {
    EXPECT_EQ(now[kPositionsAt + row], after.first + row);
    after.next.push_back(static_cast<TokenId>(now[kIdsAt + row]));
  }
  ASSERT_LT(after.first, said.size());
  for (std::uint32_t i = 0; i <= after.first; ++i) after.text.push_back(static_cast<TokenId>(said[i]));
  for (std::uint32_t i = after.first + 1; i < said.size(); ++i) EXPECT_EQ(said[i], 999u);
  after.result = launch.get<std::uint32_t>("result");
  if (by != Chosen::kAtOnce) return;
  const auto counted = launch.get<std::uint32_t>("draws");
  const std::uint64_t taken = after.first - newest;
  for (std::uint32_t row = 0; row < kCheckRows; ++row) {
    const std::uint64_t draw = (1ull << 33) - 2 + row + std::max<std::uint64_t>(taken, 1);
    EXPECT_EQ(counted[row * kStateWords], static_cast<std::uint32_t>(draw));
    EXPECT_EQ(counted[row * kStateWords + 1], draw >> 32);
    EXPECT_EQ(counted[row * kStateWords + 2], 7u);
  }
}

// The newest token and the guesses behind it: what followed the latest of the earlier places that end like
// the text in the most tokens, in circles where it reaches the text's end; the newest token where there is
// none.
Ids guessed(const Ids& text) {
  std::size_t longest = 1, behind = text.size() - 1;
  for (std::size_t at = 1; at < text.size(); ++at) {
    std::size_t agreed = 0;
    while (agreed < std::min<std::size_t>(at, kLongestEnd) &&
           text[at - 1 - agreed] == text[text.size() - 1 - agreed])
      ++agreed;
    if (agreed > 1 && agreed >= longest) longest = agreed, behind = at;
  }
  Ids next = {text.back()}, longer = text;
  for (std::size_t i = 0; next.size() < kCheckRows; ++i) {
    longer.push_back(longer[behind + i]);
    next.push_back(longer.back());
  }
  return next;
}

void expect_next(const CheckedText& c, Mode mode, Chosen by) {
  Ids text = c.text;
  for (std::uint32_t row = 0; row < kCheckRows && c.chosen[row] >= 0; ++row) {
    text.push_back(c.chosen[row]);
    if (row + 1 == kCheckRows || c.chosen[row] != c.guesses[row]) break;
  }
  AfterCheck after;
  ASSERT_NO_FATAL_FAILURE(run_kernel(c, mode, by, after));
  EXPECT_EQ(after.text, text);
  EXPECT_EQ(after.first, text.size() - 1);
  EXPECT_EQ(after.next, guessed(text)) << "of " << text.size();
  std::vector<std::uint32_t> result = {static_cast<std::uint32_t>(c.text.size() - 1),
                                       static_cast<std::uint32_t>(c.text.back())};
  for (const TokenId id : c.guesses) result.push_back(static_cast<std::uint32_t>(id));
  for (const TokenId id : c.chosen) result.push_back(static_cast<std::uint32_t>(id));
  EXPECT_EQ(after.result, result);
}

// Texts of few tokens, which repeat themselves in all lengths and at all distances.
TEST(GuessTokens, FollowTheLatestLikelyPlace) {
  DOPPLER_NEEDS_ADAPTER();
  Random random;
  for (const Mode mode : {Mode::kUnchecked, Mode::kChecked}) {
    for (const std::uint32_t length : {1u, 2u, 3u, 4u, 5u, 9u, 60u, 255u, 256u, 257u, 1500u}) {
      for (const std::uint32_t tokens : {1u, 2u, 5u, 40u}) {
        for (const std::uint32_t right : {0u, 1u, 3u, kCheckRows - 1}) {
          CheckedText c;
          for (std::uint32_t i = 0; i < length; ++i)
            c.text.push_back(static_cast<TokenId>(random.below(tokens)));
          for (std::uint32_t i = 0; i < kCheckRows; ++i)
            c.chosen.push_back(static_cast<TokenId>(random.below(tokens)));
          for (std::uint32_t i = 0; i + 1 < kCheckRows; ++i)
            c.guesses.push_back(c.chosen[i] + (i < right ? 0 : 1));
          SCOPED_TRACE(fmt::format("{} of {} tokens, {} right", length, tokens, right));
          expect_next(c, mode, static_cast<Chosen>(length % 3));
        }
      }
    }
  }
}

// What could not be chosen is not taken, whatever was guessed.
TEST(GuessTokens, EndWhereNoneCanBeChosen) {
  DOPPLER_NEEDS_ADAPTER();
  for (std::uint32_t bad = 0; bad < kCheckRows; ++bad) {
    CheckedText c{.text = {4, 5, 6, 4, 5}, .guesses = {6, 4, 5, 6, 4}, .chosen = {6, 4, 5, 6, 4, 5}};
    c.chosen[bad] = kNoToken;
    SCOPED_TRACE(bad);
    for (const Chosen by : {Chosen::kHere, Chosen::kInTurn, Chosen::kAtOnce})
      expect_next(c, Mode::kUnchecked, by);
  }
}

// --- continuations

constexpr std::uint64_t kGuessContext = 160;

BackendOptions guess_options(std::uint32_t slots = 1) {
  BackendOptions options{
      .threads = 2, .context = kGuessContext, .slots = slots, .max_step_tokens = 64, .disabled_passes = {}};
  options.gpu_setup.self_check = false;  // gpu_refusals_test.cpp has it
  options.gpu_setup.tune = false;
  return options;
}

// Ways to choose: the likeliest; drawn; and drawn or the likeliest with penalties that look back to few
// tokens, and to all.
std::vector<GenerateOptions> ways_to_choose() {
  GenerateOptions drawn, in_window, all;
  drawn.temperature = 0.7, drawn.top_k = 4, drawn.seed = 3;
  in_window = drawn;
  in_window.temperature = 0.3, in_window.frequency_penalty = 0.02, in_window.penalty_window = 7;
  all.repeat_penalty = 1.01, all.presence_penalty = 0.01;
  return {GenerateOptions(), drawn, in_window, all};
}

const Ids kRepeating = {5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 11};

class GpuGuesses : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    ASSERT_OK_AND_ASSIGN(model_, load_model(data_path(GetParam())));
    make(guess_options());
  }
  void make(const BackendOptions& options) {
    ASSERT_OK_AND_ASSIGN(backend_, make_backend("gpu", model_.spec, model_.weights, options));
    ASSERT_GE(backend_->rows_that_agree(), 16u);
  }

  // The prompt but for its last token.
  Status feed(std::uint32_t slot = 0) {
    backend_->clear(slot);
    StepInput input;
    for (std::size_t i = 0; i + 1 < kRepeating.size(); ++i) input.add(kRepeating[i], i, slot, false);
    DOPPLER_TRY(backend_->step(input, nullptr));
    return {};
  }
  Status begin(std::span<const TokenId> guesses, std::uint64_t most) {
    return backend_->continuer()->continue_sequence({.slot = 0,
                                                     .id = kRepeating.back(),
                                                     .most = most,
                                                     .sampling = &sampling_,
                                                     .history = kRepeating,
                                                     .guesses = guesses});
  }
  // All tokens of a continuation, which is left under way.
  Result<Ids> listen() {
    Ids said;
    for (;;) {
      DOPPLER_ASSIGN(const auto some, backend_->continuer()->next_tokens());
      if (some.empty()) return said;
      said.insert(said.end(), some.begin(), some.end());
    }
  }
  // Without guesses.
  Result<Ids> plain(std::uint64_t most) {
    DOPPLER_TRY(feed());
    DOPPLER_TRY(begin({}, most));
    DOPPLER_ASSIGN(const Ids said, listen());
    DOPPLER_TRY(backend_->continuer()->stop_sequence(kRepeating.size() - 1 + said.size()));
    return said;
  }
  // The logits of a token that follows what the cache holds.
  Result<std::vector<float>> next_logits() {
    StepInput input;
    input.add(3, backend_->length(0), 0, true);
    DOPPLER_ASSIGN(const auto logits, backend_->step(input, nullptr));
    return std::vector<float>(logits.begin(), logits.end());
  }

  GenerateOptions sampling_;
  Model model_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(GpuGuesses, GiveTheSameTokens) {
  for (const GenerateOptions& way : ways_to_choose()) {
    SCOPED_TRACE(fmt::format("temperature {}, window {}", way.temperature, way.penalty_window));
    sampling_ = way;
    ASSERT_OK_AND_ASSIGN(const Ids expected, plain(60));
    ASSERT_EQ(expected.size(), 60u);
    const struct {
      Ids guesses;
      std::uint64_t most;
    } cases[] = {{Ids(15, 3), 60},
                 {Ids(expected.begin(), expected.begin() + 15), 40},
                 {{expected[0], expected[1], 3, 3, 3, 3}, 1}};
    for (const auto& [guesses, most] : cases) {
      SCOPED_TRACE(most);
      ASSERT_TRUE(backend_->continuer()->can_guess(sampling_, guesses.size()));
      ASSERT_OK(feed());
      ASSERT_OK(begin(guesses, most));
      ASSERT_OK_AND_ASSIGN(const auto first, backend_->continuer()->next_tokens());
      const auto wrong = std::ranges::mismatch(guesses, expected).in1;
      EXPECT_EQ(first.size(), static_cast<std::size_t>(wrong - guesses.begin()) + 1) << "all that is right";
      Ids said(first.begin(), first.end());
      ASSERT_OK_AND_ASSIGN(const Ids rest, listen());
      said.insert(said.end(), rest.begin(), rest.end());
      ASSERT_GE(said.size(), most);
      ASSERT_LE(said.size(), expected.size() + guesses.size());
      const auto same = static_cast<std::ptrdiff_t>(std::min(said.size(), expected.size()));
      EXPECT_TRUE(std::equal(said.begin(), said.begin() + same, expected.begin()));
      ASSERT_OK(backend_->continuer()->stop_sequence(kRepeating.size() - 1 + most));
      EXPECT_EQ(backend_->length(0), kRepeating.size() - 1 + most);
    }
  }
}

// What was computed beyond what is kept, and what is under way then, leaves no trace.
TEST_P(GpuGuesses, LeaveTheCacheAsItWouldBe) {
  for (const std::uint64_t kept : {1u, 5u, 17u}) {
    SCOPED_TRACE(kept);
    ASSERT_OK_AND_ASSIGN(const Ids expected, plain(kept));
    ASSERT_OK_AND_ASSIGN(const auto logits, next_logits());
    ASSERT_OK(feed());
    ASSERT_OK(begin(Ids(15, expected[0]), 100));
    for (std::size_t said = 0; said < kept;) {
      ASSERT_OK_AND_ASSIGN(const auto some, backend_->continuer()->next_tokens());
      ASSERT_FALSE(some.empty());
      said += some.size();
    }
    ASSERT_OK(backend_->continuer()->stop_sequence(kRepeating.size() - 1 + kept));
    ASSERT_OK_AND_ASSIGN(const auto same, next_logits());
    EXPECT_EQ(same, logits);
  }
}

TEST_P(GpuGuesses, EndWhereACheckFindsNoRoom) {
  ASSERT_OK_AND_ASSIGN(const Ids expected, plain(1000));
  ASSERT_EQ(expected.size(), kGuessContext - kRepeating.size() + 1) << "the context is full";
  ASSERT_OK(feed());
  ASSERT_OK(begin(Ids(15, expected[0]), 1000));
  ASSERT_OK_AND_ASSIGN(const Ids said, listen());
  EXPECT_GT(said.size() + 16 + 16, expected.size()) << "some tokens do not take part";
  ASSERT_LE(said.size(), expected.size());
  EXPECT_TRUE(std::equal(said.begin(), said.end(), expected.begin()));
  ASSERT_OK(backend_->continuer()->stop_sequence(kRepeating.size() - 1 + said.size()));
}

TEST_P(GpuGuesses, AreWoundDownWithWhatIsUnderWay) {
  ASSERT_OK_AND_ASSIGN(const Ids expected, plain(100));
  ASSERT_OK(feed());
  ASSERT_OK(begin(Ids(15, expected[0]), 100));
  ASSERT_OK_AND_ASSIGN(const auto some, backend_->continuer()->next_tokens());
  Ids said(some.begin(), some.end());
  EXPECT_TRUE(backend_->continuer()->wind_down());
  ASSERT_OK_AND_ASSIGN(const Ids rest, listen());
  EXPECT_GE(rest.size(), 1u);
  EXPECT_LE(rest.size(), 16u) << "one check was under way";
  said.insert(said.end(), rest.begin(), rest.end());
  EXPECT_TRUE(std::equal(said.begin(), said.end(), expected.begin()));
  ASSERT_OK(backend_->continuer()->stop_sequence(kRepeating.size() - 1 + said.size()));
}

// Fewer rows than there could be guesses.
TEST_P(GpuGuesses, AreDrawnWhereAStepHasRoomForNoMore) {
  BackendOptions options = guess_options();
  options.max_step_tokens = 16;
  make(options);
  sampling_ = ways_to_choose()[1];
  ASSERT_OK_AND_ASSIGN(const Ids expected, plain(30));
  ASSERT_OK(feed());
  ASSERT_OK(begin(Ids(4, 3), 30));
  ASSERT_OK_AND_ASSIGN(const Ids said, listen());
  ASSERT_GE(said.size(), expected.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), said.begin()));
  ASSERT_OK(backend_->continuer()->stop_sequence(kRepeating.size() - 1 + said.size()));
}

TEST_P(GpuGuesses, AreRefusedWhereTheyCannotBeChecked) {
  Continuer& continuer = *backend_->continuer();
  GenerateOptions on_the_host;
  on_the_host.presence_penalty = 0.5, on_the_host.penalty_window = 1 << 30;
  EXPECT_FALSE(continuer.can_guess(on_the_host, 15));
  EXPECT_FALSE(continuer.can_guess(sampling_, 0));
  EXPECT_FALSE(continuer.can_guess(sampling_, 40)) << "more than a step has";
  ASSERT_OK(feed());
  const Ids guesses(15, 3), short_history = {1, 2};
  const auto with = [&](const GenerateOptions& sampling, std::span<const TokenId> history,
                        std::span<const TokenId> wanted) {
    return continuer.continue_sequence({.slot = 0,
                                        .id = kRepeating.back(),
                                        .most = 9,
                                        .sampling = &sampling,
                                        .history = history,
                                        .guesses = wanted});
  };
  EXPECT_ERROR(with(on_the_host, kRepeating, guesses), "does not sample");
  EXPECT_ERROR(with(sampling_, kRepeating, Ids(40, 3)), "does not guess");
  EXPECT_ERROR(with(sampling_, short_history, guesses), "all its tokens");
  EXPECT_ERROR(with(sampling_, kRepeating, Ids(15, 1 << 30)), "vocabulary");
  ASSERT_OK(with(sampling_, kRepeating, guesses));
  EXPECT_ERROR(continuer.stop_sequence(1), "cannot keep");
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGuesses, ::testing::Values("gguf/gemma3_k288.Q4_0.gguf", "models/llama"),
                         named_by_param);

// Two slots that share fewer pages than they could fill.
TEST(GpuGuessesInPages, EndWhereNoneAreLeft) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path("models/llama")));
  BackendOptions options = guess_options(2);
  options.context = options.cache_positions = 96;
  ASSERT_OK_AND_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
  const GenerateOptions greedy;
  StepInput input;
  for (std::size_t i = 0; i + 1 < kRepeating.size(); ++i) input.add(kRepeating[i], i, 0, false);
  for (int i = 0; i < 20; ++i) input.add(i, static_cast<std::uint64_t>(i), 1, false);
  ASSERT_OK(backend->step(input, nullptr));
  const Ids guesses(15, 3);
  ASSERT_OK(backend->continuer()->continue_sequence({.slot = 0,
                                                     .id = kRepeating.back(),
                                                     .most = 100,
                                                     .sampling = &greedy,
                                                     .history = kRepeating,
                                                     .guesses = guesses}));
  std::size_t said = 0;
  for (;;) {
    ASSERT_OK_AND_ASSIGN(const auto some, backend->continuer()->next_tokens());
    if (some.empty()) break;
    said += some.size();
  }
  EXPECT_GT(said, 0u);
  EXPECT_LE(kRepeating.size() - 1 + said, 64u) << "a page is the other's";
  ASSERT_OK(backend->continuer()->stop_sequence(kRepeating.size() - 1 + said));
  input = {};
  input.add(21, 20, 1, true);
  ASSERT_OK(backend->step(input, nullptr));
}

}  // namespace
}  // namespace doppler
