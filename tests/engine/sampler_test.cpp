// The sampler does exactly what GenerateOptions say.
#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
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

// The same choice the slow way: every token sorted, every probability, libm's exp. It differs in the order of
// its sums and in the last bit of its exponentials, which moves the edges between tokens by some 1e-15 of the
// mass: no draw of these tests is so close to one, but for shares that ties put on an edge exactly, where all
// sums are exact.
class SlowSampler {
 public:
  SlowSampler(const GenerateOptions& o, const std::vector<float>& logits, const std::vector<TokenId>& history,
              TokenId pad)
      : seed_(o.seed) {
    std::vector<double> scores(logits.begin(), logits.end());
    const std::size_t window = o.penalty_window == 0 ? history.size() : o.penalty_window;
    std::map<TokenId, int> counts;
    for (std::size_t i = history.size() - std::min(window, history.size()); i < history.size(); ++i)
      ++counts[history[i]];
    for (const auto& [id, count] : counts) {
      double& score = scores[static_cast<std::size_t>(id)];
      score = score > 0 ? score / o.repeat_penalty : score * o.repeat_penalty;
      score -= o.presence_penalty + o.frequency_penalty * count;
    }
    for (const auto& [id, bias] : o.logit_bias) scores[static_cast<std::size_t>(id)] += bias;
    if (pad >= 0) scores[static_cast<std::size_t>(pad)] = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < scores.size(); ++i) ids_.push_back(static_cast<TokenId>(i));
    const auto score = [&](TokenId id) { return scores[static_cast<std::size_t>(id)]; };
    std::sort(ids_.begin(), ids_.end(),
              [&](TokenId a, TokenId b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
    if (o.temperature == 0) ids_.resize(1);
    if (o.top_k > 0 && o.top_k < ids_.size()) ids_.resize(o.top_k);
    double total = 0, sum = 0;
    for (const TokenId id : ids_)
      total += o.temperature == 0 ? 1 : std::exp((score(id) - score(ids_[0])) / o.temperature);
    for (const TokenId id : ids_) {
      const double weight = o.temperature == 0 ? 1 : std::exp((score(id) - score(ids_[0])) / o.temperature);
      if (sum > 0 && ((o.top_p < 1 && sum >= o.top_p * total) || weight < o.min_p || weight == 0)) break;
      sums_.push_back(sum += weight);
    }
  }

  TokenId sample(std::uint64_t draw) const {
    const double target = uniform(seed_, draw) * sums_.back();
    const auto at = std::upper_bound(sums_.begin(), sums_.end() - 1, target);
    return ids_[static_cast<std::size_t>(at - sums_.begin())];
  }

 private:
  std::uint64_t seed_;
  std::vector<TokenId> ids_;
  std::vector<double> sums_;
};

enum class Shape { kRandom, kPeaked, kFlat, kTied, kAllTied, kClustered, kRuledOut, kZeros };
constexpr Shape kShapes[] = {Shape::kRandom,  Shape::kPeaked,    Shape::kFlat,     Shape::kTied,
                             Shape::kAllTied, Shape::kClustered, Shape::kRuledOut, Shape::kZeros};

std::vector<float> make_logits(Shape shape, std::size_t size) {
  std::mt19937 generator(static_cast<std::uint32_t>(size) + 7);
  std::normal_distribution<float> normal;
  std::vector<float> logits(size);
  for (float& x : logits) {
    const float gauss = normal(generator);
    const std::uint32_t chance = generator();
    switch (shape) {
      case Shape::kRandom:
        x = 3 * gauss;
        break;
      case Shape::kPeaked:
        x = chance % 97 == 0 ? 9 + gauss : -9 + gauss;
        break;
      case Shape::kFlat:
        x = 5 + 1e-4f * gauss;
        break;
      case Shape::kTied:
        x = static_cast<float>(chance % 5);
        break;
      case Shape::kAllTied:
        x = -2.5f;
        break;
      // Distances that halve and halve again: most of a histogram's tokens stay in its first bucket.
      case Shape::kClustered:
        x = -std::ldexp(1.0f, -static_cast<int>(chance % 100));
        break;
      case Shape::kRuledOut:
        x = chance % 10 == 0 ? 2 * gauss : -kInfinity;
        break;
      case Shape::kZeros:
        x = chance % 2 == 0 ? 0.0f : -0.0f;
        break;
    }
  }
  return logits;
}

struct Setting {
  const char* name;
  GenerateOptions options;
};

std::vector<Setting> settings() {
  return {
      {"greedy", {}},
      {"temperature", {.temperature = 0.8}},
      {"cold", {.temperature = 0.01}},
      {"hot", {.temperature = 50}},
      {"top-k", {.temperature = 1, .top_k = 7}},
      {"large top-k", {.temperature = 2, .top_k = 300}},
      {"top-p", {.temperature = 1, .top_p = 0.9}},
      {"small top-p", {.temperature = 1, .top_p = 0.013}},
      {"min-p", {.temperature = 1.3, .min_p = 0.05}},
      {"top-p and min-p", {.temperature = 1.3, .top_p = 0.7, .min_p = 0.02}},
      {"all filters", {.temperature = 0.8, .top_k = 64, .top_p = 0.95, .min_p = 0.05}},
  };
}

void expect_as_slow(const GenerateOptions& options, const std::vector<float>& logits,
                    const std::vector<TokenId>& history, TokenId pad, std::uint64_t draws) {
  const SlowSampler slow(options, logits, history, pad);
  Sampler sampler(options, pad);
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    const auto id = sampler.sample(logits, history, draw);
    ASSERT_TRUE(id.has_value()) << id.error().message;
    ASSERT_EQ(*id, slow.sample(draw)) << "draw " << draw;
  }
}

TEST(Sampler, ChoosesAsTheSlowWayDoes) {
  for (const std::size_t size : {1u, 2u, 255u, 256u, 257u, 3000u, 20000u}) {
    for (const Shape shape : kShapes) {
      std::vector<float> logits = make_logits(shape, size);
      logits[size / 2] = std::max(logits[size / 2], -2.0f);  // one at least is possible
      for (const Setting& setting : settings()) {
        SCOPED_TRACE(fmt::format("{}, shape {}, {} logits", setting.name, static_cast<int>(shape), size));
        expect_as_slow(setting.options, logits, {}, -1, size < 5000 ? 60 : 12);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Sampler, ChoosesAsTheSlowWayDoesWithPenaltiesBiasesAndPad) {
  for (const std::size_t size : {3u, 256u, 700u, 20000u}) {
    std::mt19937 generator(3);
    std::vector<TokenId> history;
    for (int i = 0; i < 900; ++i)  // some many times, some never
      history.push_back(static_cast<TokenId>(generator() % (i % 2 == 0 ? size : size / 30 + 1)));
    for (const Shape shape : kShapes) {
      std::vector<float> logits = make_logits(shape, size);
      logits[1] = logits[size / 2] = 1;
      for (Setting& setting : settings()) {
        SCOPED_TRACE(fmt::format("{}, shape {}, {} logits", setting.name, static_cast<int>(shape), size));
        setting.options.repeat_penalty = 1.2;
        setting.options.presence_penalty = 0.3;
        setting.options.frequency_penalty = -0.01;
        setting.options.penalty_window = generator() % 2 == 0 ? 0 : 500;
        setting.options.logit_bias = {{0, 1.5}, {2, -std::numeric_limits<double>::infinity()}};
        if (size > 500) setting.options.logit_bias[333] = 0.25;
        expect_as_slow(setting.options, logits, history, size > 3 ? 5 : -1, size < 5000 ? 60 : 12);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Ties put shares on the edges between tokens exactly; every sum is exact there, and so must the choice be.
TEST(Sampler, SharesOnAnEdgeAreExact) {
  for (const int size : {512, 4096}) {
    for (const double share : {0.125, 0.25, 0.5, 0.75}) {
      const std::vector<float> logits(static_cast<std::size_t>(size), 1.0f);
      const GenerateOptions options{.temperature = 1, .top_p = share};
      Sampler sampler(options, -1);
      TokenId last = 0;
      for (std::uint64_t draw = 0; draw < 3000; ++draw)
        last = std::max(last, *sampler.sample(logits, {}, draw));
      EXPECT_LT(last, size * share);
      expect_as_slow(options, logits, {}, -1, 1000);
    }
  }
}

// A bias of nothing leaves a token at its place among its equals, though it is kept apart.
TEST(Sampler, AdjustedTokensStandAmongTheirEquals) {
  const std::vector<float> logits(5000, 1.0f);
  const GenerateOptions options{.temperature = 1, .logit_bias = {{100, 0.0}, {2000, 0.0}, {4999, 0.0}}};
  expect_as_slow(options, logits, {}, -1, 3000);
}

// A sampler keeps buffers from call to call; nothing of a call may be left in the next.
TEST(Sampler, CallsDoNotTouchEachOther) {
  const GenerateOptions options{
      .temperature = 1, .top_p = 0.9, .repeat_penalty = 1.5, .logit_bias = {{3, 2.0}}};
  Sampler sampler(options, 0);
  std::mt19937 generator(9);
  for (std::uint64_t draw = 0; draw < 300; ++draw) {
    std::vector<float> logits = make_logits(kShapes[draw % 4], 10 + generator() % 900);
    std::vector<TokenId> history;
    for (std::size_t i = generator() % 50; i > 0; --i)
      history.push_back(static_cast<TokenId>(generator() % logits.size()));
    if (draw % 7 == 0) {
      logits[generator() % logits.size()] = NAN;
      EXPECT_FALSE(sampler.sample(logits, history, draw).has_value());
    } else {
      EXPECT_EQ(*sampler.sample(logits, history, draw), winner(options, logits, history, draw, 0));
    }
  }
}

// Wherever it stands, and whether or not a penalty or the pad hides the token from the search.
TEST(Sampler, ABadLogitIsFoundAnywhere) {
  for (const float bad : {static_cast<float>(NAN), -static_cast<float>(NAN), kInfinity}) {
    for (const std::size_t at : {0u, 5u, 255u, 256u, 599u}) {
      std::vector<float> logits = make_logits(Shape::kRandom, 600);
      logits[at] = bad;
      const TokenId id = static_cast<TokenId>(at);
      for (const double temperature : {0.0, 1.0}) {
        const std::string name = fmt::format("token {} is", at);
        EXPECT_ERROR(sample({.temperature = temperature}, logits), name.c_str());
        EXPECT_ERROR(sample({.temperature = temperature, .repeat_penalty = 2}, logits, {id, 7}),
                     name.c_str());
        EXPECT_ERROR(sample({.temperature = temperature}, logits, {}, 0, id), name.c_str());
      }
    }
  }
}

// Within one unit in the last place of libm's, and the same in whole blocks as one by one.
TEST(SamplerKernels, WeightsAreExponentials) {
  EXPECT_EQ(weight_of(0), 1);
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform_logit(-70, 0);
  const Weighing weighing = {.largest = 0, .temperature = 1.03, .lowest = -20, .scale = 30};
  for (int repetition = 0; repetition < 200; ++repetition) {
    float block[kSamplerBlock];
    for (float& x : block) x = uniform_logit(generator);
    block[repetition % kSamplerBlock] = -kInfinity;
    double weights[kSamplerBlock], sum = 0;
    std::int32_t buckets[kSamplerBlock];
    weigh_block(block, weighing, weights, buckets);
    for (std::size_t i = 0; i < kSamplerBlock; ++i) {
      const double x = block[i] / 1.03, expected = x < kNegligible ? 0 : std::exp(x);
      ASSERT_NEAR(weights[i], expected, expected * 0x1.8p-52) << x;
      ASSERT_EQ(weights[i], x < kNegligible ? 0 : weight_of(x)) << x;
      ASSERT_EQ(buckets[i], bucket_of(x, weighing)) << x;
      ASSERT_EQ(buckets[i], x < -20 ? kSamplerBuckets : static_cast<std::int32_t>(-x * 30)) << x;
      sum += weights[i];
    }
    ASSERT_NEAR(block_weight(block, weighing), sum, sum * 1e-13);
  }
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
