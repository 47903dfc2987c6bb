// The sampler does exactly what GenerateOptions say.
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine/philox.h"
#include "testing.h"

namespace doppler {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Result<TokenId> sample(const GenerateOptions& options, const std::vector<float>& logits,
                       std::vector<TokenId> history = {}, std::uint64_t draw = 0, TokenId pad = -1) {
  Sampler sampler(options, pad);
  return sampler.sample(logits, history, draw);
}

// The same where nothing can go wrong.
TokenId winner(const GenerateOptions& options, const std::vector<float>& logits,
               std::vector<TokenId> history = {}, std::uint64_t draw = 0, TokenId pad = -1) {
  const auto id = sample(options, logits, std::move(history), draw, pad);
  EXPECT_TRUE(id.has_value()) << id.error().message;
  return id.value_or(-1);
}

// Every token that comes up in many draws.
std::set<TokenId> support(const GenerateOptions& options, const std::vector<float>& logits,
                          std::vector<TokenId> history = {}) {
  Sampler sampler(options, -1);
  std::set<TokenId> seen;
  for (std::uint64_t draw = 0; draw < 4000; ++draw) seen.insert(*sampler.sample(logits, history, draw));
  return seen;
}

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Sampler, GreedyTakesTheLargestAndOfEqualsTheLowerId) {
  EXPECT_EQ(winner({}, {1, 5, 2}), 1);
  EXPECT_EQ(winner({}, {1, 5, 5, 5}), 1);
  EXPECT_EQ(winner({}, {-3, -3}), 0);
  EXPECT_EQ(winner({}, {-kInfinity, -7}), 1);
}

TEST(Sampler, GreedyFindsTheLastOfALargeVocabulary) {
  std::vector<float> logits(262144, -1);
  for (const std::size_t best :
       {std::size_t{65535}, std::size_t{65536}, std::size_t{131072}, logits.size() - 1}) {
    logits[best] = 2;
    EXPECT_EQ(winner({}, logits), static_cast<TokenId>(best));
    logits[best] = -1;
  }
}

TEST(Sampler, PadNeverWins) {
  EXPECT_EQ(winner({}, {9, 1, 2}, {}, 0, 0), 2);
  GenerateOptions warm{.temperature = 1.5, .logit_bias = {{0, 50.0}}};
  for (std::uint64_t draw = 0; draw < 500; ++draw) EXPECT_NE(winner(warm, {9, 1, 2}, {}, draw, 0), 0);
  warm.top_k = 3;
  warm.top_p = 1;
  for (std::uint64_t draw = 0; draw < 500; ++draw) EXPECT_NE(winner(warm, {9, 1, 2}, {}, draw, 0), 0);
}

// Top-k against sorting everything: exactly the k likeliest, and of equals those with the lower ids.
TEST(Sampler, TopKIsExact) {
  std::mt19937 generator(5);
  for (const std::uint32_t k : {1u, 2u, 5u, 39u, 40u, 41u, 100u}) {
    std::vector<float> logits(40);
    for (float& x : logits) x = static_cast<float>(generator() % 6) * 0.1f;  // many ties
    std::vector<TokenId> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
    std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
    const std::set<TokenId> expected(order.begin(), order.begin() + std::min<std::ptrdiff_t>(k, 40));
    EXPECT_EQ(support({.temperature = 1, .top_k = k}, logits), expected) << k;
  }
}

TEST(Sampler, TopKOfOneIsGreedy) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(winner({.temperature = 5, .top_k = 1, .seed = seed}, {1, 3, 3, 2}), 1);
  }
}

TEST(Sampler, TopPKeepsUntilTheShareIsReached) {
  const auto logits = logs({0.05, 0.5, 0.3, 0.15});
  EXPECT_EQ(support({.temperature = 1, .top_p = 0.45}, logits), (std::set<TokenId>{1}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 0.55}, logits), (std::set<TokenId>{1, 2}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 0.9}, logits), (std::set<TokenId>{1, 2, 3}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 0}, logits), (std::set<TokenId>{1}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 1}, logits), (std::set<TokenId>{0, 1, 2, 3}));
  // Shares are counted among what top-k has left: 0.5 of 0.8.
  EXPECT_EQ(support({.temperature = 1, .top_k = 2, .top_p = 0.62}, logits), (std::set<TokenId>{1}));
}

TEST(Sampler, MinPIsAShareOfTheLikeliest) {
  const auto logits = logs({0.05, 0.5, 0.3, 0.15});
  EXPECT_EQ(support({.temperature = 1, .min_p = 0.7}, logits), (std::set<TokenId>{1}));
  EXPECT_EQ(support({.temperature = 1, .min_p = 0.5}, logits), (std::set<TokenId>{1, 2}));
  EXPECT_EQ(support({.temperature = 1, .min_p = 0.2}, logits), (std::set<TokenId>{1, 2, 3}));
  EXPECT_EQ(support({.temperature = 1, .min_p = 1}, logits), (std::set<TokenId>{1}));
}

// Draws follow the softmax of the logits over the temperature.
TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {0.5f, -1, 2, 0, 1.5f, -0.5f};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double total = 0;
    for (const float x : logits) total += std::exp(x / temperature);
    std::vector<double> counts(logits.size());
    constexpr int kDraws = 30000;
    const GenerateOptions options{.temperature = temperature, .seed = 11};
    Sampler sampler(options, -1);
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<std::size_t>(*sampler.sample(logits, {}, static_cast<std::uint64_t>(i)))];
    double chi_square = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * std::exp(logits[i] / temperature) / total;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 20.5) << temperature;  // 5 degrees of freedom: exceeded once in a thousand seeds
  }
}

TEST(Sampler, ADrawIsAFunctionOfSeedAndNumber) {
  std::vector<float> logits(50);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  std::set<TokenId> by_seed;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const GenerateOptions options{.temperature = 1, .seed = seed};
    EXPECT_EQ(winner(options, logits, {}, 3), winner(options, logits, {}, 3));
    by_seed.insert(winner(options, logits, {}, 3));
  }
  EXPECT_GT(by_seed.size(), 5u);
}

TEST(Sampler, RepeatPenaltyShrinksTowardsUnlikely) {
  const GenerateOptions options{.repeat_penalty = 2};
  EXPECT_EQ(winner(options, {3, 2}), 0);
  EXPECT_EQ(winner(options, {3, 2}, {0}), 1);        // 1.5 against 2
  EXPECT_EQ(winner(options, {3, 2}, {0, 0, 1}), 0);  // once for each token, not for each time
  EXPECT_EQ(winner(options, {-1, -1.5f}, {0}), 1);   // -2 against -1.5
}

TEST(Sampler, PresenceAndFrequencyPenalties) {
  EXPECT_EQ(winner({.presence_penalty = 0.6}, {2, 1.5f}, {0, 0, 0}), 1);
  EXPECT_EQ(winner({.presence_penalty = 0.4}, {2, 1.5f}, {0, 0, 0}), 0);  // counted once
  EXPECT_EQ(winner({.frequency_penalty = 0.2}, {2, 1.5f}, {0, 0}), 0);
  EXPECT_EQ(winner({.frequency_penalty = 0.2}, {2, 1.5f}, {0, 0, 0}), 1);  // 2 - 0.6
  EXPECT_EQ(winner({.presence_penalty = -1}, {1, 1.5f}, {0}), 0);          // a reward
}

TEST(Sampler, PenaltiesReachOnlyTheWindow) {
  GenerateOptions options{.repeat_penalty = 2, .penalty_window = 2};
  EXPECT_EQ(winner(options, {3, 2, 0}, {0, 2, 2}), 0);
  EXPECT_EQ(winner(options, {3, 2, 0}, {2, 0, 2}), 1);
  options.penalty_window = 10;  // more than there is
  EXPECT_EQ(winner(options, {3, 2, 0}, {0, 2, 2}), 1);
}

TEST(Sampler, LogitBias) {
  EXPECT_EQ(winner({.logit_bias = {{2, 5.0}}}, {3, 2, 0}), 2);
  EXPECT_EQ(winner({.logit_bias = {{0, -std::numeric_limits<double>::infinity()}}}, {3, 2, 0}), 1);
}

TEST(Sampler, BrokenLogitsAreErrors) {
  EXPECT_ERROR(sample({}, {1, NAN, 2}, {5, 6}), "token 1", "nan", "after 2 tokens", "doppler compare");
  EXPECT_ERROR(sample({.temperature = 1}, {1, 2, kInfinity}), "token 2", "inf");
  EXPECT_ERROR(sample({}, {-kInfinity, -kInfinity}), "Every token is ruled out");
  EXPECT_ERROR(sample({}, {-kInfinity, 3}, {}, 0, 1), "Every token is ruled out");
  EXPECT_ERROR(sample({}, {}), "Every token is ruled out");
}

TEST(Sampler, ExtremeLogitsStayExact) {
  EXPECT_EQ(winner({.temperature = 1}, {-3e38f, 3e38f}), 1);
  EXPECT_EQ(winner({.temperature = 1e-300}, {1, 2, 1.5f}), 1);
  EXPECT_EQ(support({.temperature = 1e30}, {-3e5f, 3e5f}), (std::set<TokenId>{0, 1}));
  EXPECT_EQ(winner({.temperature = 1, .repeat_penalty = 1e-6, .presence_penalty = -1e30}, {3e38f, 1}, {0}),
            0);
}

struct BadOption {
  GenerateOptions options;
  std::vector<const char*> parts;
};

TEST(Options, OutOfRangeIsNamed) {
  const double nan = NAN, infinity = std::numeric_limits<double>::infinity();
  const BadOption cases[] = {
      {{.temperature = -0.1}, {"temperature -0.1", "greedy"}},
      {{.temperature = nan}, {"temperature nan"}},
      {{.temperature = infinity}, {"temperature inf"}},
      {{.top_p = 1.01}, {"top-p 1.01", "between 0 and 1"}},
      {{.top_p = -0.5}, {"top-p -0.5"}},
      {{.min_p = 2}, {"min-p 2"}},
      {{.min_p = nan}, {"min-p nan"}},
      {{.repeat_penalty = 0}, {"repeat-penalty 0", "above 0"}},
      {{.repeat_penalty = infinity}, {"repeat-penalty inf"}},
      {{.presence_penalty = nan}, {"presence-penalty nan"}},
      {{.frequency_penalty = -infinity}, {"frequency-penalty -inf"}},
      {{.logit_bias = {{-1, 0.0}}}, {"logit bias -1=0", "0 to 99"}},
      {{.logit_bias = {{100, 0.0}}}, {"logit bias 100=0", "0 to 99"}},
      {{.logit_bias = {{5, nan}}}, {"logit bias 5=nan"}},
      {{.logit_bias = {{5, infinity}}}, {"logit bias 5=inf"}},
      {{.stop = {"a", ""}}, {"stop string is empty"}},
  };
  for (const BadOption& bad : cases) {
    const Status status = check_generate_options(bad.options, 100);
    ASSERT_FALSE(status.has_value()) << bad.parts[0];
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    for (const char* part : bad.parts)
      EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
}

TEST(Options, TheEdgesAreInside) {
  ASSERT_OK(check_generate_options({}, 100));
  ASSERT_OK(check_generate_options({.temperature = 0,
                                    .top_k = 4000000000u,
                                    .top_p = 0,
                                    .min_p = 1,
                                    .repeat_penalty = 1e-6,
                                    .logit_bias = {{0, -5.0}, {99, -std::numeric_limits<double>::infinity()}},
                                    .stop = {"\n"}},
                                   100));
}

}  // namespace
}  // namespace doppler
