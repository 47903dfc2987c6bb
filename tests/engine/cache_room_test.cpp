// Sequences that share the room of a cache: those that rest give theirs up, one that continues beside others
// ends where there is none left, and nobody says anything else for it.
#include <algorithm>
#include <atomic>
#include <thread>

#include "doppler/doppler.h"
#include "engines.h"

namespace doppler {
namespace {

constexpr std::uint64_t kRoomContext = 96;  // three pages

Ids text_of(int n, std::size_t length) {
  Ids ids;
  for (std::size_t i = 0; i < length; ++i)
    ids.push_back(static_cast<TokenId>((i * 31 + 7 + 11 * static_cast<std::size_t>(n)) % 150));
  return ids;
}

class CacheRoom : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto roomy = load(0);
    if (!roomy) GTEST_SKIP() << roomy.error().message;
    roomy_.emplace(std::move(*roomy));
    auto tight = load(128);  // four pages
    ASSERT_TRUE(tight.has_value()) << tight.error().message;
    tight_.emplace(std::move(*tight));
  }
  static Result<Engine> load(std::uint64_t positions) {
    return Engine::load(testing::data_path("models/llama"), {.backend = GetParam(),
                                                             .threads = 2,
                                                             .context = kRoomContext,
                                                             .sequences = 3,
                                                             .cache_positions = positions,
                                                             .kv_type = "f32"});
  }
  Ids alone(int n, std::size_t length, std::uint32_t tokens) {
    const auto said = roomy_->generate(text_of(n, length), just(tokens));
    EXPECT_TRUE(said.has_value()) << (said ? "" : said.error().message);
    return said ? said->ids : Ids();
  }

  std::optional<Engine> roomy_, tight_;
};

TEST_P(CacheRoom, SequencesThatRestGiveTheirsUp) {
  ASSERT_OK_AND_ASSIGN(Sequence one, tight_->new_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence two, tight_->new_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence three, tight_->new_sequence());
  ASSERT_OK_AND_ASSIGN(const Generation first, one.generate(text_of(1, 60), just(10)));
  ASSERT_OK_AND_ASSIGN(const Generation second, two.generate(text_of(2, 20), just(10)));
  EXPECT_EQ(first.ids, alone(1, 60, 10));
  EXPECT_EQ(second.ids, alone(2, 20, 10));
  // Three pages and one are taken; the first, whose call is longer ago, gives up its three.
  ASSERT_OK_AND_ASSIGN(const Generation third, three.generate(text_of(3, 30), just(40)));
  EXPECT_EQ(third.ids, alone(3, 30, 40));
  EXPECT_EQ(one.length(), 70u) << "its tokens are known all the same";
  ASSERT_OK_AND_ASSIGN(const Generation kept, two.resume(just(2)));
  EXPECT_EQ(kept.timings.cached_tokens, 29u);
  ASSERT_OK_AND_ASSIGN(const Generation again, one.resume(just(5)));
  EXPECT_EQ(again.timings.cached_tokens, 0u);
  const Ids whole = alone(1, 60, 15);
  EXPECT_TRUE(std::equal(again.ids.begin(), again.ids.end(), whole.begin() + 10, whole.end()));
}

TEST_P(CacheRoom, ClosedSequencesLeaveTheirs) {
  for (int n = 0; n < 4; ++n) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, tight_->new_sequence());
    ASSERT_OK_AND_ASSIGN(Sequence other, tight_->new_sequence());
    ASSERT_OK_AND_ASSIGN(const Generation said, sequence.generate(text_of(n, 60), just(30)));
    EXPECT_EQ(said.ids, alone(n, 60, 30));
    ASSERT_OK_AND_ASSIGN(const Generation beside, other.generate(text_of(n + 1, 40), just(30)));
    EXPECT_EQ(beside.ids, alone(n + 1, 40, 30));
  }
}

TEST_P(CacheRoom, ForksShareWhatTheyBeginWith) {
  ASSERT_OK_AND_ASSIGN(Sequence one, tight_->new_sequence());
  ASSERT_OK(one.append(text_of(1, 60)));
  ASSERT_OK_AND_ASSIGN(Sequence two, one.fork());
  ASSERT_OK_AND_ASSIGN(Sequence three, two.fork());
  // Of the four pages, the three have the first together, and a second each.
  ASSERT_OK_AND_ASSIGN(const Generation first, one.resume(just(4)));
  ASSERT_OK(two.append(text_of(2, 3)));
  ASSERT_OK_AND_ASSIGN(const Generation second, two.resume(just(2)));
  ASSERT_OK_AND_ASSIGN(const Generation third, three.resume(just(4)));
  EXPECT_EQ(first.ids, alone(1, 60, 4));
  EXPECT_EQ(third.ids, first.ids);
  Ids text = text_of(1, 60);
  const Ids more = text_of(2, 3);
  text.insert(text.end(), more.begin(), more.end());
  ASSERT_OK_AND_ASSIGN(const Generation expected, roomy_->generate(text, just(2)));
  EXPECT_EQ(second.ids, expected.ids);
  for (const Generation* each : {&first, &second, &third}) EXPECT_GE(each->timings.cached_tokens, 59u);
}

// Calls that meet: whoever finds no room fails, and whoever does not says what it says alone.
TEST_P(CacheRoom, CallsThatMeetEndOneByOneOrSayWhatTheySayAlone) {
  constexpr int kCalls = 3;
  constexpr std::uint32_t kTokens = 70;  // with the prompt: three pages
  std::vector<Ids> expected, said(kCalls);
  for (int n = 0; n < kCalls; ++n) expected.push_back(alone(n, 10, kTokens));
  std::vector<Error> errors(kCalls);
  std::vector<std::thread> threads;
  const auto call = [&](int n, const std::function<void(std::size_t)>& at_token) {
    auto sequence = tight_->new_sequence();
    ASSERT_TRUE(sequence.has_value()) << sequence.error().message;
    std::size_t tokens = 0;
    Callbacks callbacks;
    callbacks.on_token = [&](TokenId, const TokenLogprobs*) {
      at_token(++tokens);
      return true;
    };
    const auto result = sequence->generate(text_of(n, 10), just(kTokens), callbacks);
    if (result)
      said[static_cast<std::size_t>(n)] = result->ids;
    else
      errors[static_cast<std::size_t>(n)] = result.error();
  };
  call(0, [&](std::size_t token) {
    if (token != 3) return;
    for (int n = 1; n < kCalls; ++n) threads.emplace_back(call, n, [](std::size_t) {});
  });
  for (std::thread& thread : threads) thread.join();
  int well = 0;
  for (std::size_t n = 0; n < kCalls; ++n) {
    if (!said[n].empty()) {
      EXPECT_EQ(said[n], expected[n]) << n;
      ++well;
      continue;
    }
    EXPECT_EQ(errors[n].code, ErrorCode::kLimit);
    EXPECT_NE(errors[n].message.find("room for 128 positions"), std::string::npos) << errors[n].message;
  }
  EXPECT_GE(well, 1);
  ASSERT_OK_AND_ASSIGN(const Generation after, tight_->generate(text_of(2, 10), just(kTokens)));
  EXPECT_EQ(after.ids, expected[2]);
}

TEST(CachePositionsOfAnEngine, HoldAContextAtLeast) {
  const auto refused =
      Engine::load(testing::data_path("models/llama"),
                   {.backend = "cpu", .context = kRoomContext, .sequences = 1, .cache_positions = 64});
  EXPECT_ERROR(refused, "64 positions", "context of 96");
}

INSTANTIATE_TEST_SUITE_P(Backends, CacheRoom, ::testing::Values("cpu", "reference", "gpu"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace doppler
