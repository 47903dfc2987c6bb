// What the header promises about threads. Run under ThreadSanitizer by scripts/check_threads.sh, and as it is
// with the other tests.
#include <atomic>
#include <thread>

#include "doppler/doppler.h"
#include "engines.h"

namespace doppler {
namespace {

Engine load(std::uint32_t sequences, std::string backend = "cpu", const char* model = "models/gemma3") {
  return load_engine(testing::data_path(model),
                     {.backend = std::move(backend), .context = 128, .sequences = sequences});
}

// body(thread) on so many threads.
template <typename Body>
void on_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, ShareOneEngine) {
  Engine engine = load(0);
  const Ids prompts[] = {{5, 9, 11}, {7, 20, 3, 1}, {30, 31}, {2, 2, 8, 50, 6}};
  std::vector<Ids> expected;
  for (const Ids& prompt : prompts) expected.push_back(engine.generate(prompt, just(6)).value().ids);
  on_threads(4, [&](int thread) {
    for (int i = 0; i < 6; ++i) {
      const auto which = static_cast<std::size_t>((thread + i) % 4);
      const auto result = engine.generate(prompts[which], just(6));
      ASSERT_TRUE(result.has_value()) << result.error().message;
      EXPECT_EQ(result->ids, expected[which]);
      EXPECT_EQ(engine.context(), 128u);
      EXPECT_FALSE(engine.info().facts.empty());
    }
  });
}

TEST(Threads, HaveSequencesOfTheirOwn) {
  Engine engine = load(4);
  const Ids prompt = {5, 9, 11, 40};
  const Ids expected = engine.generate(prompt, just(8)).value().ids;
  on_threads(4, [&](int) {
    for (int round = 0; round < 3; ++round) {
      auto sequence = engine.new_sequence();
      ASSERT_TRUE(sequence.has_value()) << sequence.error().message;
      ASSERT_TRUE(sequence->append(prompt).has_value());
      Ids generated;
      for (int i = 0; i < 4; ++i) {
        const auto part = sequence->resume(just(2));
        ASSERT_TRUE(part.has_value()) << part.error().message;
        generated.insert(generated.end(), part->ids.begin(), part->ids.end());
        EXPECT_EQ(sequence->length(), prompt.size() + generated.size());
      }
      EXPECT_EQ(generated, expected);
      ASSERT_TRUE(sequence->cut(4).has_value());
    }
  });
}

TEST(Threads, HaveEnginesOfTheirOwnOnTheSameWeights) {
  Engine engine = load(0, "cpu", "gguf/gemma3_k288.Q4_0.gguf");
  const Ids prompt = {5, 9, 11, 40};
  const Ids expected = engine.generate(prompt, just(6)).value().ids;
  on_threads(3, [&](int) {
    auto own = engine.another({.backend = "cpu", .threads = 2, .context = 64});
    ASSERT_TRUE(own.has_value()) << own.error().message;
    for (int i = 0; i < 3; ++i) {
      const auto result = own->generate(prompt, just(6));
      ASSERT_TRUE(result.has_value()) << result.error().message;
      EXPECT_EQ(result->ids, expected);
    }
  });
}

TEST(Threads, LoadAndDieWhileOthersCompute) {
  std::optional<Engine> engine = load(2);
  Sequence sequence = engine->new_sequence().value();
  const Ids expected = sequence.generate(Ids{5, 9}, just(30)).value().ids;
  std::thread computes([&] {
    const auto result = sequence.generate(Ids{5, 9}, just(30));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->ids, expected);
  });
  {
    const Sequence short_lived = engine->new_sequence().value();
  }
  engine.reset();
  computes.join();
}

TEST(Threads, CancelFromAnyOfThem) {
  Engine engine = load(0);
  for (int i = 0; i < 5; ++i) {
    const CancelToken cancel;
    std::atomic<bool> began = false;
    std::thread other([&] {
      while (!began) std::this_thread::yield();
      cancel.cancel();
    });
    const auto result = engine.generate(Ids{5, 9}, {.max_tokens = 1000000, .ignore_eos = true},
                                        Callbacks{.on_token =
                                                      [&](TokenId, const TokenLogprobs*) {
                                                        began = true;
                                                        // The context would end it before the other thread
                                                        // runs.
                                                        while (!cancel.cancelled()) std::this_thread::yield();
                                                        return true;
                                                      },
                                                  .cancel = cancel});
    other.join();
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->stop_reason, StopReason::kCancelled);
  }
}

TEST(Threads, ACallThatWaitsForItsTurnCanBeCancelled) {
  Engine engine = load(0);
  const CancelToken first, second;
  std::atomic<bool> began = false;
  std::thread computes([&] {
    const auto result = engine.generate(Ids{5, 9}, just(100),
                                        Callbacks{.on_token =
                                                      [&](TokenId, const TokenLogprobs*) {
                                                        began = true;
                                                        while (!first.cancelled()) std::this_thread::yield();
                                                        return true;
                                                      },
                                                  .cancel = first});
    EXPECT_EQ(result.value().stop_reason, StopReason::kCancelled);
  });
  while (!began) std::this_thread::yield();
  std::thread waits([&] {
    const auto result = engine.generate(Ids{7, 8, 9}, just(100), {}, &second);
    EXPECT_EQ(result.value().stop_reason, StopReason::kCancelled);
    EXPECT_TRUE(result.value().ids.empty());
  });
  second.cancel();
  waits.join();  // while the first call still has the turn
  first.cancel();
  computes.join();
}

TEST(Threads, LookScoreAndSaveTakeTurns) {
  const testing::TempDir folder;
  Engine engine = load(3);
  on_threads(3, [&](int thread) {
    for (int i = 0; i < 3; ++i) {
      const Ids prompt = {static_cast<TokenId>(3 + thread), 9, 11};
      const auto seen = engine.look(prompt, {.stages = {"layer_out"}, .tokens = {-1}});
      ASSERT_TRUE(seen.has_value()) << seen.error().message;
      const auto scores = engine.score(prompt, 2);
      ASSERT_TRUE(scores.has_value()) << scores.error().message;
      auto sequence = engine.new_sequence();
      ASSERT_TRUE(sequence.has_value()) << sequence.error().message;
      ASSERT_TRUE(sequence->append(prompt).has_value());
      const auto file = folder / std::to_string(thread);
      ASSERT_TRUE(sequence->save(file).has_value());
      ASSERT_TRUE(sequence->load(file).has_value());
      EXPECT_EQ(sequence->tokens(), prompt);
    }
  });
}

}  // namespace
}  // namespace doppler
