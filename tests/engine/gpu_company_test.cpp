// Calls from several threads, where the backend continues sequences together: each says what it says alone,
// and nobody waits until another has ended.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "doppler/doppler.h"
#include "engines.h"

namespace doppler {
namespace {

constexpr std::uint32_t kTokens = 60;

// Several texts, long enough that their calls meet.
Ids prompt_of(int n) {
  Ids ids;
  for (int i = 0; i < 5 + 3 * n; ++i) ids.push_back((i * 31 + 7 + 11 * n) % 200);
  return ids;
}

class GpuCompany : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine =
        Engine::load(testing::data_path("models/gemma3"),
                     {.backend = "gpu", .threads = 2, .context = 128, .sequences = 4, .kv_type = "f32"});
    if (!engine) GTEST_SKIP() << engine.error().message;
    engine_.emplace(std::move(*engine));
  }
  Ids alone(int n, const GenerateOptions& options = just(kTokens)) {
    const auto said = engine_->generate(prompt_of(n), options);
    EXPECT_TRUE(said.has_value()) << (said ? "" : said.error().message);
    return said ? said->ids : Ids();
  }

  std::optional<Engine> engine_;
};

// The first call's third token starts the others; which of them spoke when is written down.
TEST_F(GpuCompany, SaysWhatEachSaysAlone) {
  constexpr int kCalls = 3;
  std::vector<Ids> expected, said(kCalls);
  for (int n = 0; n < kCalls; ++n) expected.push_back(alone(n));
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> threads;
  std::atomic<int> started = 0;
  const auto call = [&](int n, const std::function<void(std::size_t)>& at_token) {
    auto sequence = engine_->new_sequence();
    ASSERT_TRUE(sequence.has_value()) << sequence.error().message;
    ++started;
    std::size_t tokens = 0;
    Callbacks callbacks;
    callbacks.on_token = [&](TokenId, const TokenLogprobs*) {
      const std::lock_guard lock(mutex);
      order.push_back(n);
      at_token(++tokens);
      return true;
    };
    const auto result = sequence->generate(prompt_of(n), just(kTokens), callbacks);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    said[static_cast<std::size_t>(n)] = result->ids;
  };
  call(0, [&](std::size_t token) {
    if (token != 3) return;
    for (int n = 1; n < kCalls; ++n) threads.emplace_back(call, n, [](std::size_t) {});
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(said, expected);
  // Somebody else spoke before the first had ended, and after that the first spoke again.
  const auto other = std::ranges::find_if(order, [](int n) { return n != 0; });
  EXPECT_NE(std::find(other, order.end(), 0), order.end()) << "the calls came one after another";
}

// A call that is watched cannot join; it is right nevertheless, and so are those beside it.
TEST_F(GpuCompany, LeavesRoomForCallsOfOtherKinds) {
  GenerateOptions watched = just(12);
  watched.logprobs = 2;
  const Ids expected = alone(1, watched), first = alone(0);
  std::thread other;
  Ids said;
  auto sequence = engine_->new_sequence();
  ASSERT_TRUE(sequence.has_value());
  std::size_t tokens = 0;
  Callbacks callbacks;
  callbacks.on_token = [&](TokenId, const TokenLogprobs*) {
    if (++tokens == 3) {
      other = std::thread([&] {
        auto own = engine_->new_sequence();
        ASSERT_TRUE(own.has_value());
        const auto result = own->generate(prompt_of(1), watched);
        ASSERT_TRUE(result.has_value()) << result.error().message;
        EXPECT_EQ(result->logprobs.size(), 12u);
        said = result->ids;
      });
    }
    return true;
  };
  const auto result = sequence->generate(prompt_of(0), just(kTokens), callbacks);
  other.join();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->ids, first);
  EXPECT_EQ(said, expected);
}

// A sequence's own calls still wait for each other.
TEST_F(GpuCompany, KeepsTheCallsOfASequenceApart) {
  auto sequence = engine_->new_sequence();
  ASSERT_TRUE(sequence.has_value());
  const Ids expected = alone(0);
  std::thread clearing, other;
  std::size_t tokens = 0;
  Callbacks callbacks;
  callbacks.on_token = [&](TokenId, const TokenLogprobs*) {
    if (++tokens == 3) {
      clearing = std::thread([&] { EXPECT_TRUE(sequence->clear().has_value()); });
      other = std::thread([&] { EXPECT_EQ(alone(2).size(), kTokens); });
    }
    return true;
  };
  const auto result = sequence->generate(prompt_of(0), just(kTokens), callbacks);
  clearing.join();
  other.join();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->ids, expected);
  EXPECT_EQ(sequence->length(), 0u);
}

}  // namespace
}  // namespace doppler
