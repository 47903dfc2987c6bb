// A backend that goes on by itself says what the sampler on the host would have said, whatever the number of
// tokens that it computes before anybody looks, and its cache is right when it stops.
#include <algorithm>

#include "engine/generate.h"
#include "engine/loaded.h"
#include "engine/sampler.h"
#include "testing.h"

namespace doppler {
namespace {

using Ids = std::vector<TokenId>;

// The cpu backend, continuing sequences as a GPU does: some tokens at a time, the next ones under way before
// the last ones are read, and everything beyond the stop to be trimmed.
class ContinuingBackend final : public Backend, private Continuer {
 public:
  ContinuingBackend(std::unique_ptr<Backend> inner, std::size_t at_a_time)
      : inner_(std::move(inner)), at_a_time_(at_a_time) {}

  bool continues = true;         // what can_continue says
  std::int64_t bad_after = -1;   // tokens until the logits are NaN; -1: never
  bool fails = false;            // next_tokens
  bool short_of_breath = false;  // gives nothing, though more is asked for
  bool cannot_stop = false;      // stop_sequence fails
  bool cuts = false;             // its cache can be cut
  std::vector<std::uint64_t> most_asked, stopped_at;
  std::size_t steps_outside = 0;  // tokens fed by step()

  std::string_view name() const override { return "continuing"; }
  const Plan& plan() const override { return inner_->plan(); }
  const BackendOptions& options() const override { return inner_->options(); }
  std::uint64_t length(std::uint32_t slot) const override { return inner_->length(slot); }
  MemoryUse memory() const override { return inner_->memory(); }
  Continuer* continuer() override { return this; }
  CacheAccess* cache() override { return cuts ? inner_->cache() : nullptr; }
  void clear(std::uint32_t slot) override {
    inner_->clear(slot);
    fed_.clear();
  }
  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    EXPECT_FALSE(begun_) << "a step while a sequence continues";
    steps_outside += input.size();
    return feed(input, tap);
  }

  bool can_continue(const GenerateOptions&) override { return continues; }
  Status continue_sequence(const Continuation& c) override {
    EXPECT_FALSE(begun_);
    EXPECT_EQ(c.history.back(), c.id);
    fed_.resize(std::min<std::size_t>(fed_.size(), inner_->length(0)));
    EXPECT_EQ(c.history.size(), fed_.size() + 1) << "everything but the newest token is in the cache";
    EXPECT_TRUE(std::equal(fed_.begin(), fed_.end(), c.history.begin()));
    EXPECT_GE(c.most, 1u);
    EXPECT_LE(fed_.size() + c.most, options().context);
    begun_ = c;
    base_ = fed_.size();
    history_.assign(c.history.begin(), c.history.end());
    computed_.clear();
    given_ = 0;
    most_asked.push_back(c.most);
    sampler_.emplace(*c.sampling, c.pad_id);
    return compute();
  }
  Result<std::span<const TokenId>> next_tokens() override {
    EXPECT_TRUE(begun_);
    if (fails) return fail(ErrorCode::kIo, "The GPU is lost.");
    if (short_of_breath) return std::span<const TokenId>();
    const std::size_t ready = computed_.size();
    DOPPLER_TRY(compute());  // the next submission, before this one is read
    const std::size_t from = given_;
    given_ = ready;
    return std::span<const TokenId>(computed_).subspan(from, ready - from);
  }
  Status stop_sequence(std::uint64_t length) override {
    EXPECT_TRUE(begun_);
    EXPECT_GE(length, base_ + 1) << "the continuation's first token is in the cache";
    EXPECT_LE(length, base_ + std::max<std::size_t>(given_, 1)) << "the last token given is not";
    stopped_at.push_back(length);
    begun_.reset();
    if (cannot_stop) return fail(ErrorCode::kIo, "The GPU is lost at the end.");
    // A cpu's cache cannot be cut back, so it is filled again.
    Ids kept(fed_.begin(), fed_.begin() + static_cast<std::ptrdiff_t>(length));
    const std::uint32_t slot = 0;
    clear(slot);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      StepInput input;
      input.add(kept[i], i, slot, false);
      DOPPLER_TRY(feed(input, nullptr));
    }
    return {};
  }

 private:
  Result<std::span<const float>> feed(const StepInput& input, Tap* tap) {
    fed_.resize(std::min<std::size_t>(fed_.size(), inner_->length(0)));  // the session may have cut it
    DOPPLER_ASSIGN(const auto logits, inner_->step(input, tap));
    fed_.insert(fed_.end(), input.ids.begin(), input.ids.end());
    return logits;
  }

  Status compute() {
    for (std::size_t i = 0; i < at_a_time_ && computed_.size() < begun_->most; ++i) {
      if (!computed_.empty() && computed_.back() < 0) break;
      StepInput input;
      input.add(history_.back(), fed_.size(), begun_->slot, true);
      DOPPLER_ASSIGN(const auto logits, feed(input, begun_->tap));
      if (bad_after >= 0 && computed_.size() >= static_cast<std::size_t>(bad_after)) {
        computed_.push_back(-1);
        break;
      }
      DOPPLER_ASSIGN(const TokenId id, sampler_->sample(logits, history_, begun_->draw + computed_.size()));
      // A span into computed_ was given away; a GPU's results do not move either.
      computed_.reserve(4096);
      computed_.push_back(id);
      history_.push_back(id);
    }
    return {};
  }

  std::unique_ptr<Backend> inner_;
  const std::size_t at_a_time_;
  std::optional<Continuation> begun_;
  std::optional<Sampler> sampler_;
  Ids fed_, history_, computed_;
  std::size_t base_ = 0, given_ = 0;
};

// The demo model with a backend that continues, or (0 at a time) one that does not.
struct Talker {
  Loaded loaded;
  std::unique_ptr<ContinuingBackend> backend;
  std::unique_ptr<Session> session;

  static Talker with(std::size_t at_a_time, std::uint64_t context = 200) {
    Talker talker;
    auto loaded = load_all(std::filesystem::path(DOPPLER_SOURCE_DIR) / "demo",
                           {.backend = "cpu", .threads = 1, .context = context});
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    talker.loaded = std::move(*loaded);
    talker.backend = std::make_unique<ContinuingBackend>(std::move(talker.loaded.backend), at_a_time);
    talker.backend->continues = at_a_time > 0;
    talker.session = std::make_unique<Session>(*talker.backend, 0);
    return talker;
  }

  Ids tokens(std::string_view text) const { return tokenize_prompt(loaded, text).value_or(Ids{}); }
  Result<Generation> say(const Ids& prompt, const GenerateOptions& options, const OnText& on_text = {},
                         const CancelToken* cancel = nullptr) {
    return run_generation(*session, loaded.model->spec, &*loaded.tokenizer, prompt, options, on_text, cancel);
  }
};

constexpr std::string_view kPrompt = "Once upon a time";

void expect_same(const Generation& got, const Generation& wanted) {
  EXPECT_EQ(got.ids, wanted.ids);
  EXPECT_EQ(got.text, wanted.text);
  EXPECT_EQ(got.stop_reason, wanted.stop_reason);
  EXPECT_EQ(got.timings.cached_tokens, wanted.timings.cached_tokens);
  EXPECT_EQ(got.timings.generated_tokens, wanted.timings.generated_tokens);
}

// Says `options` with and without continuing, then a second turn on top of the first.
void expect_same_conversation(std::size_t at_a_time, const GenerateOptions& options, StopReason reason,
                              std::uint64_t context = 200) {
  SCOPED_TRACE(at_a_time);
  Talker plain = Talker::with(0, context), talker = Talker::with(at_a_time, context);
  Ids prompt = plain.tokens(kPrompt);
  for (int turn = 0; turn < 2; ++turn) {
    SCOPED_TRACE(turn);
    ASSERT_OK_AND_ASSIGN(const Generation wanted, plain.say(prompt, options));
    ASSERT_OK_AND_ASSIGN(const Generation got, talker.say(prompt, options));
    if (turn == 0) {
      EXPECT_EQ(wanted.stop_reason, reason);
    }
    expect_same(got, wanted);
    EXPECT_TRUE(std::ranges::equal(talker.session->cached(), plain.session->cached()));
    EXPECT_EQ(talker.backend->length(0), talker.session->cached().size());
    prompt.insert(prompt.end(), wanted.ids.begin(), wanted.ids.end());
    const Ids more = plain.loaded.tokenizer->encode(" The", {.add_special = false}).value_or(Ids{});
    prompt.insert(prompt.end(), more.begin(), more.end());
    if (prompt.size() > context) break;
  }
}

class ContinuationOf : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(TokensAtATime, ContinuationOf, ::testing::Values(1, 4, 16));

TEST_P(ContinuationOf, MaxTokensTokens) {
  for (const std::uint32_t most : {1u, 2u, 5u, 17u, 33u})
    expect_same_conversation(GetParam(), {.max_tokens = most, .ignore_eos = true}, StopReason::kMaxTokens);
}

TEST_P(ContinuationOf, SampledTokens) {
  GenerateOptions options{.max_tokens = 40, .temperature = 1.3, .top_k = 50, .top_p = 0.95, .seed = 7};
  options.repeat_penalty = 1.1;
  options.frequency_penalty = 0.2;
  options.ignore_eos = true;
  expect_same_conversation(GetParam(), options, StopReason::kMaxTokens);
}

TEST_P(ContinuationOf, AStoryToItsEnd) {
  expect_same_conversation(GetParam(), {.max_tokens = 190}, StopReason::kEos);
}

TEST_P(ContinuationOf, AStoryUpToAStopString) {
  expect_same_conversation(GetParam(), {.max_tokens = 100, .stop = {"was"}, .ignore_eos = true},
                           StopReason::kStopString);
}

TEST_P(ContinuationOf, AStoryThatFillsTheContext) {
  expect_same_conversation(GetParam(), {.max_tokens = 100, .ignore_eos = true}, StopReason::kContextEnd, 30);
}

TEST_P(ContinuationOf, LogprobsOfItsTokens) {
  Talker plain = Talker::with(0), talker = Talker::with(GetParam());
  const GenerateOptions options{
      .max_tokens = 12, .temperature = 0.8, .seed = 3, .ignore_eos = true, .logprobs = 2};
  ASSERT_OK_AND_ASSIGN(const Generation wanted, plain.say(plain.tokens(kPrompt), options));
  ASSERT_OK_AND_ASSIGN(const Generation got, talker.say(plain.tokens(kPrompt), options));
  expect_same(got, wanted);
  ASSERT_EQ(got.logprobs.size(), got.ids.size());
  for (std::size_t i = 0; i < got.ids.size(); ++i) {
    EXPECT_EQ(got.logprobs[i].id, got.ids[i]);
    EXPECT_EQ(got.logprobs[i].logprob, wanted.logprobs[i].logprob) << i;
    EXPECT_EQ(got.logprobs[i].top[0].id, wanted.logprobs[i].top[0].id);
  }
}

TEST_P(ContinuationOf, AStoryThatTheListenerEnds) {
  for (const std::size_t pieces : {1u, 2u, 7u}) {
    Talker plain = Talker::with(0), talker = Talker::with(GetParam());
    const auto listener = [pieces](std::size_t& heard) {
      return [&heard, pieces](std::string_view) { return ++heard < pieces; };
    };
    std::size_t heard_plain = 0, heard = 0;
    ASSERT_OK_AND_ASSIGN(const Generation wanted,
                         plain.say(plain.tokens(kPrompt), {.max_tokens = 50}, listener(heard_plain)));
    ASSERT_OK_AND_ASSIGN(const Generation got,
                         talker.say(plain.tokens(kPrompt), {.max_tokens = 50}, listener(heard)));
    EXPECT_EQ(got.stop_reason, StopReason::kCancelled);
    expect_same(got, wanted);
    EXPECT_TRUE(std::ranges::equal(talker.session->cached(), plain.session->cached()));
  }
}

TEST_P(ContinuationOf, ACancelledStory) {
  Talker talker = Talker::with(GetParam());
  CancelToken cancel;
  std::size_t heard = 0;
  const OnText on_text = [&](std::string_view) {
    if (++heard == 3) cancel.cancel();
    return true;
  };
  ASSERT_OK_AND_ASSIGN(const Generation got,
                       talker.say(talker.tokens(kPrompt), {.max_tokens = 50}, on_text, &cancel));
  EXPECT_EQ(got.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(heard, 3u);
  EXPECT_EQ(talker.session->cached().size(), got.prompt_ids.size() + got.ids.size() - 1);
}

TEST(Continuation, AsksForNoMoreThanIsWanted) {
  Talker talker = Talker::with(4, 30);
  const Ids prompt = talker.tokens(kPrompt);
  ASSERT_OK(talker.say(prompt, {.max_tokens = 6, .ignore_eos = true}));
  ASSERT_EQ(talker.backend->most_asked, (std::vector<std::uint64_t>{5}));  // the first came from the host
  EXPECT_EQ(talker.backend->steps_outside, prompt.size()) << "only the prompt";
  EXPECT_EQ(talker.backend->stopped_at, (std::vector<std::uint64_t>{prompt.size() + 5}));
  Talker small = Talker::with(4, 30);
  ASSERT_OK(small.say(prompt, {.max_tokens = 100, .ignore_eos = true}));
  EXPECT_EQ(small.backend->most_asked, (std::vector<std::uint64_t>{30 - prompt.size()}));
}

TEST(Continuation, IsLeftWhileGuessesAreRightIfTheyAreAskedFor) {
  constexpr std::string_view kText =
      "The color of the sky is blue. On a clear day the air scatters the blue part of the sunlight. "
      "The color of the sky is blue. On a clear day the air scatters the blue part of the sunlight. "
      "The color of the sky is";
  Talker plain = Talker::with(0), talker = Talker::with(4);
  talker.backend->cuts = true;
  GenerateOptions options{.max_tokens = 70, .ignore_eos = true, .speculate = 0};
  const Ids prompt = plain.tokens(kText);
  ASSERT_OK_AND_ASSIGN(const Generation wanted, plain.say(prompt, options));
  options.speculate = 6;
  ASSERT_OK_AND_ASSIGN(const Generation got, talker.say(prompt, options));
  expect_same(got, wanted);
  EXPECT_GT(got.timings.guessed_right, 6u);
  EXPECT_GE(talker.backend->most_asked.size(), 2u) << "it is gone back to where the text does not repeat";
  EXPECT_EQ(talker.backend->length(0), talker.session->cached().size());
  EXPECT_TRUE(std::ranges::equal(talker.session->cached(), plain.session->cached()));
  options.speculate = GenerateOptions::kSpeculateAuto;
  ASSERT_OK_AND_ASSIGN(const Generation automatic, talker.say(prompt, options));
  EXPECT_EQ(automatic.timings.guessed_tokens, 0u) << "a continuation is not left unasked";
}

// The same for a backend that does not continue.
TEST(Guesses, ThatNobodyHeardAreCutOff) {
  for (const std::size_t pieces : {3u, 4u, 5u}) {
    Talker talker = Talker::with(0);
    talker.backend->cuts = true;
    GenerateOptions options{.max_tokens = 40, .ignore_eos = true, .speculate = 8};
    options.logit_bias = {{789, 100.0}};  // "blue": one token again and again, which is guessed at once
    std::size_t heard = 0;
    const Ids prompt = talker.tokens(kPrompt);
    ASSERT_OK_AND_ASSIGN(const Generation got,
                         talker.say(prompt, options, [&](std::string_view) { return ++heard < pieces; }));
    EXPECT_EQ(got.stop_reason, StopReason::kCancelled);
    EXPECT_EQ(talker.session->cached().size(), prompt.size() + got.ids.size() - 1);
    EXPECT_EQ(talker.backend->length(0), talker.session->cached().size());
    EXPECT_EQ(got.timings.guessed_right > 0, pieces > 3) << "three tokens alike are needed";
  }
}

TEST(Continuation, ASingleTokenNeedsNone) {
  Talker talker = Talker::with(4);
  ASSERT_OK(talker.say(talker.tokens(kPrompt), {.max_tokens = 1}));
  EXPECT_TRUE(talker.backend->most_asked.empty());
}

TEST(Continuation, BadLogitsAreTheSamplersError) {
  for (const std::size_t at_a_time : {1u, 4u}) {
    Talker talker = Talker::with(at_a_time);
    talker.backend->bad_after = 5;
    const Ids prompt = talker.tokens(kPrompt);
    const auto result = talker.say(prompt, {.max_tokens = 50, .ignore_eos = true});
    EXPECT_ERROR(result, "NaN or infinite", "doppler compare");
    EXPECT_EQ(result.error().code, ErrorCode::kMismatch);
    EXPECT_EQ(talker.backend->stopped_at.size(), 1u);
    EXPECT_EQ(talker.backend->length(0), talker.session->cached().size());
    talker.backend->bad_after = -1;
    ASSERT_OK(talker.say(prompt, {.max_tokens = 5}));  // the session is as good as before
  }
}

TEST(Continuation, ALostBackendLeavesAnEmptyCache) {
  Talker talker = Talker::with(4);
  talker.backend->fails = true;
  EXPECT_ERROR(talker.say(talker.tokens(kPrompt), {.max_tokens = 50}), "GPU is lost");
  EXPECT_TRUE(talker.session->cached().empty());
  EXPECT_EQ(talker.backend->length(0), 0u);
  talker.backend->fails = false;
  talker.backend->short_of_breath = true;
  EXPECT_ERROR(talker.say(talker.tokens(kPrompt), {.max_tokens = 50}), "stops after");
  talker.backend->short_of_breath = false;
  talker.backend->cannot_stop = true;
  EXPECT_ERROR(talker.say(talker.tokens(kPrompt), {.max_tokens = 5}), "lost at the end");
  EXPECT_TRUE(talker.session->cached().empty());
  talker.backend->cannot_stop = false;
  ASSERT_OK(talker.say(talker.tokens(kPrompt), {.max_tokens = 5}));
}

}  // namespace
}  // namespace doppler
