// Guessing ahead changes how fast tokens come, and nothing else: the same ids, texts, log probabilities and
// cache for every way to choose and to end, and never a look at tokens that are not kept.
#include "engine/speculation.h"

#include <algorithm>
#include <thread>

#include "engine/access.h"
#include "engine/engines.h"
#if DOPPLER_GPU
#include "changed_shaders.h"
#include "environment.h"
#endif

namespace doppler {
namespace {

// Small random models turn in circles soon, which is repetition, too. Gemma's windows are 8 tokens here.
struct SpeculationCase {
  const char* backend;
  const char* model;
};
std::filesystem::path model_of(const SpeculationCase& at) {
  return std::string_view(at.model) == "demo" ? testing::source_path("demo")
                                              : testing::data_path("models/") / at.model;
}

class Speculates : public ::testing::TestWithParam<SpeculationCase> {
 protected:
  Engine load(std::uint64_t context = 0) const {
    return load_engine(model_of(GetParam()), {.backend = GetParam().backend, .context = context});
  }
  // Generates with and without guesses, and expects the same; returns what came with them.
  Generation both(const Ids& prompt, GenerateOptions options, std::int32_t speculate = 5,
                  std::uint64_t context = 0) const {
    Engine plain = load(context), guessing = load(context);
    options.speculate = 0;
    const auto without = plain.generate(prompt, options);
    options.speculate = speculate;
    const auto with = guessing.generate(prompt, options);
    EXPECT_TRUE(without.has_value() && with.has_value());
    if (!without || !with) return {};
    EXPECT_EQ(without->timings.guessed_tokens, 0u);
    EXPECT_EQ(with->ids, without->ids);
    EXPECT_EQ(with->text, without->text);
    EXPECT_EQ(with->stop_reason, without->stop_reason);
    EXPECT_EQ(with->logprobs.size(), without->logprobs.size());
    for (std::size_t i = 0; i < std::min(with->logprobs.size(), without->logprobs.size()); ++i) {
      EXPECT_EQ(with->logprobs[i].id, without->logprobs[i].id);
      EXPECT_EQ(with->logprobs[i].logprob, without->logprobs[i].logprob) << "token " << i;
    }
    // What comes after it says that the caches are the same.
    const auto next = plain.sequence()->resume(just(4)), same = guessing.sequence()->resume(just(4));
    EXPECT_EQ(same.has_value(), next.has_value()) << "a full context is full for both";
    if (next && same) {
      EXPECT_EQ(same->ids, next->ids);
      EXPECT_EQ(same->timings.cached_tokens, next->timings.cached_tokens);
    }
    return *with;
  }
  static Ids prompt() { return {2, 7, 9, 11, 30, 7, 9, 11, 31, 7, 9, 11, 30, 7}; }
};

TEST_P(Speculates, GreedyTokensAreTheSame) {
  const Generation with = both(prompt(), just(60));
  EXPECT_GT(with.timings.guessed_tokens, 0u);
  for (const std::int32_t few : {1, 16}) both(prompt(), just(40), few);
}

TEST_P(Speculates, DrawsAndPenaltiesAreTheSame) {
  GenerateOptions options = just(60);
  options.temperature = 0.4, options.top_k = 3, options.seed = 5;
  options.repeat_penalty = 1.05, options.frequency_penalty = 0.01, options.penalty_window = 20;
  EXPECT_GT(both(prompt(), options).timings.guessed_tokens, 0u);
}

TEST_P(Speculates, LogProbabilitiesAreTheSame) {
  GenerateOptions options = just(40);
  options.logprobs = 2;
  EXPECT_EQ(both(prompt(), options).logprobs.size(), 40u);
}

TEST_P(Speculates, TheAnswerEndsWhereItWouldHave) {
  for (const std::uint32_t most : {1u, 2u, 33u, 38u}) EXPECT_EQ(both(prompt(), just(most)).ids.size(), most);
  // The context ends in the middle of what is guessed.
  for (const std::uint64_t context : {40u, 41u, 43u}) {
    const Generation with = both(prompt(), just(100), 5, context);
    EXPECT_EQ(with.stop_reason, StopReason::kContextEnd);
    EXPECT_EQ(with.ids.size(), context - prompt().size() + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Speculates,
                         ::testing::Values(SpeculationCase{"cpu", "gemma3"}, SpeculationCase{"cpu", "llama"},
                                           SpeculationCase{"cpu", "olmoe_clip"},
                                           SpeculationCase{"cpu", "qwen2"},
                                           SpeculationCase{"reference", "gemma3"}),
                         [](const auto& engine) {
                           return std::string(engine.param.backend) + "_" + engine.param.model;
                         });

// A prompt that the demo model's answer repeats: it is asked to go on with a story that it has just told.
class DemoSpeculates : public ::testing::Test {
 protected:
  Result<Generation> answer(std::int32_t speculate, GenerateOptions options = just(80),
                            const Callbacks& callbacks = {}) {
    options.speculate = speculate;
    return engine_.generate(kText, options, callbacks);
  }
  static constexpr const char* kText =
      "The color of the sky is blue. On a clear day the air scatters the blue part of the sunlight.\n"
      "The color of the sky is blue. On a clear day the air scatters the blue part of the sunlight.\n"
      "The color of the sky is";
  Engine engine_ = load_engine(testing::source_path("demo"));
};

TEST_F(DemoSpeculates, SaysTheSameAndCountsItsGuesses) {
  const auto without = answer(0), with = answer(4), automatic = answer(GenerateOptions::kSpeculateAuto);
  ASSERT_TRUE(without && with && automatic);
  EXPECT_EQ(with->ids, without->ids);
  EXPECT_EQ(with->text, without->text);
  EXPECT_EQ(automatic->ids, without->ids);
  EXPECT_GE(with->timings.guessed_right, 10u);
  EXPECT_LE(with->timings.guessed_right, with->timings.guessed_tokens);
}

TEST_F(DemoSpeculates, StopsBeforeTheSameTextAndAtTheSameToken) {
  GenerateOptions options = just(80);
  options.stop = {"the air"};
  const auto without = answer(0, options), with = answer(6, options);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(without->stop_reason, StopReason::kStopString);
  EXPECT_EQ(with->ids, without->ids);
  EXPECT_EQ(with->text, without->text);
  options = {.max_tokens = 80};
  const auto ended = answer(0, options), same = answer(6, options);
  ASSERT_TRUE(ended && same);
  EXPECT_EQ(same->ids, ended->ids);
  EXPECT_EQ(same->stop_reason, ended->stop_reason);
}

TEST_F(DemoSpeculates, ACallbackEndsItInTheMiddleOfWhatWasGuessed) {
  for (const std::size_t last : {1u, 9u, 12u}) {
    std::size_t seen = 0;
    Callbacks callbacks;
    callbacks.on_token = [&](TokenId, const TokenLogprobs*) { return ++seen < last; };
    const auto with = answer(8, just(80), callbacks);
    ASSERT_TRUE(with);
    EXPECT_EQ(with->ids.size(), last);
    EXPECT_EQ(with->stop_reason, StopReason::kCancelled);
    const auto next = engine_.sequence()->resume(just(5));
    ASSERT_TRUE(next);
    EXPECT_EQ(next->timings.cached_tokens, next->prompt_ids.size() - 1)
        << "the cache ends where the answer does";
  }
}

TEST_F(DemoSpeculates, WhoLooksInsideSeesKeptTokensOnlyAndIsToldSo) {
  std::size_t tokens = 0;
  Callbacks callbacks;
  callbacks.watches.push_back({.what = {.stages = {"logits"}}, .on_values = [&](const StageValues& values) {
                                 tokens += values.tokens.size();
                               }});
  const auto with = answer(8, just(20), callbacks);
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->timings.guessed_tokens, 0u);
  const auto& notes = EngineAccess::loaded(engine_).backend->fallbacks();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].what, "No tokens are guessed ahead.");
  EXPECT_NE(notes[0].why.find("looks inside"), std::string::npos);
}

TEST(Speculation, RecurrentModelsGuessNothingAndSaySoWhereItIsAsked) {
  Engine engine = load_engine(testing::data_path("models/mamba2"));
  GenerateOptions options = just(20);
  const auto automatic = engine.generate(Ids{2, 7, 9, 11, 7, 9, 11, 7}, options);
  ASSERT_TRUE(automatic);
  EXPECT_TRUE(EngineAccess::loaded(engine).backend->fallbacks().empty());
  options.speculate = 4;
  const auto asked = engine.generate(Ids{2, 7, 9, 11, 7, 9, 11, 7}, options);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->ids, automatic->ids);
  EXPECT_EQ(asked->timings.guessed_tokens, 0u);
  ASSERT_EQ(EngineAccess::loaded(engine).backend->fallbacks().size(), 1u);
}

TEST(Speculation, NumbersOutOfRangeAreRefused) {
  Engine engine = load_engine(testing::data_path("models/llama"));
  GenerateOptions options = just(5);
  for (const std::int32_t bad : {-2, 17}) {
    options.speculate = bad;
    EXPECT_ERROR(engine.generate(Ids{2, 7}, options), "speculate", "between 1 and 16");
  }
}

#if DOPPLER_GPU
TEST(Speculation, AGpuWithPenaltiesSaysTheSame) {
  const auto load = [] {
    return Engine::load(testing::data_path("models/gemma3"),
                        {.backend = "gpu", .threads = 2, .context = 128, .kv_type = "f32"});
  };
  auto engine = load();
  if (!engine) GTEST_SKIP() << engine.error().message;
  // One token again and again until its penalties outweigh what is added, then others.
  GenerateOptions options = just(70);
  options.logit_bias = {{36, 30.0}}, options.frequency_penalty = 1;
  const Ids prompt = {2, 7, 9, 11, 30, 7};
  const auto automatic = engine->generate(prompt, options);
  ASSERT_TRUE(automatic);
  const std::size_t notes = EngineAccess::loaded(*engine).backend->fallbacks().size();
  options.speculate = 6;
  const auto asked = engine->generate(prompt, options);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->ids, automatic->ids);
  EXPECT_EQ(asked->text, automatic->text);
  EXPECT_GT(asked->timings.guessed_right, 0u);
  EXPECT_EQ(EngineAccess::loaded(*engine).backend->fallbacks().size(), notes);
}

// A text that turns in a circle, as the model's answer to it does.
const Ids kCircle = {5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7, 8, 9};
Result<Engine> load_circling(std::uint64_t context = 512, std::uint32_t sequences = 1) {
  return Engine::load(testing::data_path("gguf/gemma3_k288.Q4_0.gguf"),
                      {.backend = "gpu", .threads = 2, .context = context, .sequences = sequences});
}

TEST(Speculation, AGpuChecksGuessesByItselfAndSaysTheSame) {
  std::size_t guessed_drawn = 0;
  for (const char* const model : {"gguf/gemma3_k288.Q4_0.gguf", "models/qwen3"}) {
    SCOPED_TRACE(model);
    auto engine = Engine::load(testing::data_path(model), {.backend = "gpu", .threads = 2, .context = 512});
    if (!engine) GTEST_SKIP() << engine.error().message;
    GenerateOptions options = just(300), drawn = options;
    options.speculate = drawn.speculate = 0;
    drawn.temperature = 0.3, drawn.top_k = 2, drawn.seed = 3, drawn.frequency_penalty = 0.001;
    const auto plain = engine->generate(kCircle, options);
    ASSERT_TRUE(plain);
    const auto plain_next = engine->sequence()->resume(just(4));
    ASSERT_TRUE(plain_next);
    for (const std::int32_t speculate : {8, 15, GenerateOptions::kSpeculateAuto}) {
      options.speculate = speculate;
      const auto guessing = engine->generate(kCircle, options);
      ASSERT_TRUE(guessing);
      ASSERT_EQ(guessing->ids, plain->ids);
      const auto next = engine->sequence()->resume(just(4));
      ASSERT_TRUE(next);
      EXPECT_EQ(next->ids, plain_next->ids) << "the caches are the same";
      if (speculate == GenerateOptions::kSpeculateAuto) continue;  // whether it pays depends on the machine
      EXPECT_GT(guessing->timings.guessed_right, 100u);
    }
    const auto plain_drawn = engine->generate(kCircle, drawn);
    drawn.speculate = 8;
    const auto guessing = engine->generate(kCircle, drawn);
    ASSERT_TRUE(plain_drawn && guessing);
    EXPECT_EQ(guessing->ids, plain_drawn->ids);
    guessed_drawn += guessing->timings.guessed_right;
  }
  EXPECT_GT(guessed_drawn, 0u);
}

// Where checks have no room left before the context's end, single tokens fill it.
TEST(Speculation, AGpuGuessesUpToTheContextsEnd) {
  auto engine = load_circling(230);
  if (!engine) GTEST_SKIP() << engine.error().message;
  GenerateOptions options = just(300);
  options.speculate = 0;
  const auto plain = engine->generate(kCircle, options);
  options.speculate = 15;
  const auto guessing = engine->generate(kCircle, options);
  ASSERT_TRUE(plain && guessing);
  EXPECT_EQ(plain->stop_reason, StopReason::kContextEnd);
  EXPECT_EQ(guessing->stop_reason, StopReason::kContextEnd);
  EXPECT_EQ(guessing->ids, plain->ids);
  EXPECT_GT(guessing->timings.guessed_right, 50u);
}

// A call that begins meanwhile has its turns, and both say what they say alone.
TEST(Speculation, AGpuThatGuessesLetsOthersJoin) {
  auto engine = load_circling(512, 2);
  if (!engine) GTEST_SKIP() << engine.error().message;
  GenerateOptions options = just(300), others = just(20);
  options.speculate = 0;
  const Ids other_prompt = {3, 1, 4, 1, 5, 9};
  const auto plain = engine->generate(kCircle, options), other_plain = engine->generate(other_prompt, others);
  options.speculate = 8;
  auto first = engine->new_sequence(), second = engine->new_sequence();
  ASSERT_TRUE(plain && other_plain && first && second);
  Ids said;
  std::thread other;
  std::size_t tokens = 0;
  Callbacks callbacks;
  callbacks.on_token = [&](TokenId, const TokenLogprobs*) {
    if (++tokens == 150) {
      other = std::thread([&] {
        const auto result = second->generate(other_prompt, others);
        EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
        if (result) said = result->ids;
      });
    }
    return true;
  };
  const auto guessing = first->generate(kCircle, options, callbacks);
  if (other.joinable()) other.join();
  ASSERT_TRUE(guessing) << guessing.error().message;
  EXPECT_EQ(guessing->ids, plain->ids);
  EXPECT_EQ(said, other_plain->ids);
  EXPECT_GT(guessing->timings.guessed_right, 50u);
}

// Driver's errors come in kernels of one kind: here the sums of tokens that follow one another are lost. Says
// so in `why`, guesses nothing, and gives the tokens that come one by one.
void expect_no_guesses(const Ids& plain, std::string_view why) {
  const gpu::testing::Broken broken("attention_decode.wgsl", "let mean = total / shares;",
                                    "let mean = total / shares * ${APPEND}.0;");
  auto wrong = load_circling();
  ASSERT_TRUE(wrong);
  for (const std::int32_t speculate : {8, 8, GenerateOptions::kSpeculateAuto}) {
    GenerateOptions options = just(200);
    options.speculate = speculate;
    const auto said = wrong->generate(kCircle, options);
    ASSERT_TRUE(said) << said.error().message;
    EXPECT_EQ(said->ids, plain);
    EXPECT_EQ(said->timings.guessed_tokens, 0u);
  }
  const auto& notes = EngineAccess::loaded(*wrong).backend->fallbacks();
  EXPECT_TRUE(std::ranges::any_of(notes, [&](const Fallback& note) {
    return note.what == "No tokens are guessed ahead." && note.why.find(why) != std::string::npos;
  }));
}

TEST(Speculation, AGpuThatChecksWronglyGuessesNothing) {
  const testing::EmptyCache cache;
  auto right = load_circling();
  if (!right) GTEST_SKIP() << right.error().message;
  GenerateOptions options = just(200);
  options.speculate = 8;
  const auto plain = right->generate(kCircle, options);
  ASSERT_TRUE(plain);
  EXPECT_GT(plain->timings.guessed_right, 50u);
  // The kernels have passed their checks, and are believed from then on: the tokens that they choose tell.
  expect_no_guesses(plain->ids, "otherwise than one by one");
  const testing::EmptyCache nothing_passed;
  expect_no_guesses(plain->ids, "because a kernel of several is refused");
}

// Its own guesses may be wrong, too: here it goes on a token further than it may.
TEST(Speculation, AGpuThatGoesOnWronglyIsFoundOut) {
  auto right = load_circling();
  if (!right) GTEST_SKIP() << right.error().message;
  GenerateOptions options = just(200);
  options.speculate = 0;
  const auto plain = right->generate(kCircle, options);
  const gpu::testing::Broken broken("guess_tokens.wgsl", "  newest = last;", "  newest = last + 1u;");
  auto wrong = load_circling();
  ASSERT_TRUE(plain && wrong);
  options.speculate = 8;
  for (int call = 0; call < 2; ++call) {
    const auto said = wrong->generate(kCircle, options);
    ASSERT_TRUE(said) << said.error().message;
    EXPECT_EQ(said->ids, plain->ids);
    EXPECT_LE(said->timings.guessed_tokens, call == 0 ? 8u : 0u);
  }
  const auto& notes = EngineAccess::loaded(*wrong).backend->fallbacks();
  EXPECT_EQ(std::ranges::count_if(notes,
                                  [](const Fallback& note) {
                                    return note.why.find("went on with other tokens") != std::string::npos;
                                  }),
            1);
}
#endif

// --- how many

constexpr std::size_t kLong = 20;  // tokens that agree

TEST(Pace, NothingIsGuessedBeforeGuessesWereRight) {
  Pace pace;
  for (int i = 0; i < 50; ++i) pace.took(1, 0.1);
  EXPECT_EQ(pace.guesses(kLong), 0u);
  for (int i = 0; i < 12; ++i) pace.judge(2, false);
  EXPECT_EQ(pace.guesses(kLong), 0u);
  for (int i = 0; i < 12; ++i) pace.judge(kLong, true);
  EXPECT_EQ(pace.guesses(2), 0u) << "what agrees in two tokens has not been right";
  EXPECT_EQ(pace.guesses(kLong), 3u) << "a trial of a step of four";
}

TEST(Pace, AsManyAsPayAreGuessed) {
  Pace cheap, dear;
  for (Pace* const pace : {&cheap, &dear}) {
    pace->took(1, 0.1);
    for (int i = 0; i < 40; ++i) pace->judge(kLong, true);
  }
  cheap.took(4, 0.12);  // the weights are read once
  dear.took(4, 0.4);    // as much as four steps
  EXPECT_EQ(cheap.guesses(kLong), 15u);
  EXPECT_EQ(dear.guesses(kLong), 0u);
  for (int i = 0; i < 4; ++i) cheap.judge(kLong, false);
  EXPECT_LT(cheap.guesses(kLong), 15u) << "what is less likely is guessed less far";
}

TEST(Pace, AnInterruptionDoesNotSwitchItOffForGood) {
  Pace pace;
  pace.took(1, 0.1);
  for (int i = 0; i < 40; ++i) pace.judge(kLong, true);
  pace.took(4, 5);
  EXPECT_EQ(pace.guesses(kLong), 0u);
  std::size_t steps = 0;
  for (; pace.guesses(kLong) == 0 && steps < 1000; ++steps) pace.took(1, 0.1);
  EXPECT_GE(steps, 100u) << "a trial costs, so it is rare";
  EXPECT_LT(steps, 1000u);
}

// --- when checks do not pay any more

TEST(Speculation, ChecksThatBringLittleNowAndThenGoOn) {
  constexpr std::size_t kSize = 16;
  const auto speculation = [](std::size_t asked) {
    Speculation made(asked, 100, Pace::kOneSize);
    made.took(1, 0.1);
    made.begin_checks(kSize);
    return made;
  };
  const auto checks_until_tired = [](Speculation& made, std::size_t tokens) {
    std::size_t checks = 0;
    for (; !made.tires() && checks < 50; ++checks) made.brought(tokens, 0.4);
    return checks;
  };
  Speculation cheap = speculation(0);
  EXPECT_EQ(checks_until_tired(cheap, 5), 50u) << "five tokens take 0.5 s one by one";
  EXPECT_GE(checks_until_tired(cheap, 1), 1u) << "one that brings little is no reason";
  Speculation wrong = speculation(0);
  const std::size_t checks = checks_until_tired(wrong, 1);
  EXPECT_GE(checks, 2u);
  EXPECT_LE(checks, 4u) << "but some are";
  Speculation asked = speculation(kSize - 1);
  EXPECT_EQ(checks_until_tired(asked, 2), 50u) << "a number that was asked for does not hang on times";
  EXPECT_LE(checks_until_tired(asked, 1), 10u);
}

}  // namespace
}  // namespace doppler
