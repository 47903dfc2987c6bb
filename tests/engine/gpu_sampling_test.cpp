// The GPU chooses the tokens that the engine's Sampler chooses.
#include "backend/gpu/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "changed_shaders.h"
#include "engine/philox.h"
#include "engine/sampler.h"
#include "testing.h"

namespace doppler::gpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr TokenId kNone = -1;  // what the GPU writes where the Sampler reports an error

using Logits = std::vector<float>;

// A Sampling with its buffers, for one vocabulary.
class Chooser {
 public:
  static Result<std::unique_ptr<Chooser>> create(Device& device, KernelCache& kernels, std::uint32_t vocab) {
    std::unique_ptr<Chooser> chooser(new Chooser(device, vocab));
    DOPPLER_ASSIGN(chooser->logits_, device.make_buffer("logits", std::uint64_t{vocab} * 4));
    DOPPLER_ASSIGN(chooser->chosen_, device.make_buffer("chosen", 4));
    DOPPLER_ASSIGN(chooser->sampling_,
                   Sampling::create(device, kernels, {.vocab = vocab}, chooser->logits_, chooser->chosen_));
    return chooser;
  }

  // One token for each row of logits, in one submission; each becomes part of the history of the next.
  Result<std::vector<TokenId>> choose(const GenerateOptions& options, const std::vector<Logits>& rows,
                                      const std::vector<TokenId>& history, std::uint64_t draw, TokenId pad) {
    DOPPLER_TRY(sampling_->begin_alone(options, pad, history, draw));
    return go_on(rows);
  }
  Result<std::vector<TokenId>> go_on(const std::vector<Logits>& rows) {
    const std::uint64_t row_bytes = std::uint64_t{vocab_} * 4;
    DOPPLER_ASSIGN(const Buffer all,
                   device_.make_filled("rows", rows.size() * row_bytes, [&](std::span<std::byte> out) {
                     for (std::size_t i = 0; i < rows.size(); ++i)
                       std::memcpy(out.data() + i * row_bytes, rows[i].data(), row_bytes);
                   }));
    DOPPLER_ASSIGN(const Buffer back, device_.make_read_back("ids", rows.size() * 4));
    Recorder recorder(device_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      recorder.copy(all, i * row_bytes, logits_, 0, row_bytes);
      sampling_->record(recorder);
      recorder.copy(chosen_, 0, back, i * 4, 4);
    }
    EXPECT_EQ(recorder.dispatches(), rows.size() * sampling_->dispatches());
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
    std::vector<TokenId> ids(rows.size());
    DOPPLER_TRY(device_.read(back, ids.size() * 4, submission, [&](std::span<const std::byte> bytes) {
      std::memcpy(ids.data(), bytes.data(), bytes.size());
    }));
    return ids;
  }
  Sampling& sampling() { return *sampling_; }
  const Buffer& logits() const { return logits_; }

 private:
  Chooser(Device& device, std::uint32_t vocab) : device_(device), vocab_(vocab) {}
  Device& device_;
  std::uint32_t vocab_;
  Buffer logits_, chosen_;
  std::optional<Sampling> sampling_;
};

// The order and the masses by definition, in long doubles: which tokens a share may mean if masses are known
// to `tolerance` of the whole.
class Definition {
 public:
  Definition(const GenerateOptions& o, const Logits& logits, const std::vector<TokenId>& history, TokenId pad)
      : options_(o) {
    std::map<TokenId, std::uint32_t> seen;
    const std::size_t window = o.penalty_window == 0 ? history.size() : o.penalty_window;
    for (std::size_t i = history.size() - std::min(window, history.size()); i < history.size(); ++i)
      ++seen[history[i]];
    for (TokenId id = 0; id < static_cast<TokenId>(logits.size()); ++id) {
      double score = logits[static_cast<std::size_t>(id)];
      if (const auto found = seen.find(id); found != seen.end()) {
        score = score > 0 ? score / o.repeat_penalty : score * o.repeat_penalty;
        score -= o.presence_penalty + o.frequency_penalty * found->second;
      }
      if (const auto found = o.logit_bias.find(id); found != o.logit_bias.end()) score += found->second;
      if (id != pad && score > -kInfinity) tokens_.push_back({score, id});
    }
    std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    });
    if (o.top_k != 0 && o.top_k < tokens_.size()) tokens_.resize(o.top_k);
    long double sum = 0;
    for (Token& token : tokens_) {
      token.before = sum;
      sum += std::exp((static_cast<long double>(token.score) - tokens_[0].score) / o.temperature);
      token.with = sum;
    }
    whole_ = sum;
  }

  // Whether masses that are off by `tolerance` of the whole could make this the drawn token.
  bool may_draw(TokenId id, double share, double tolerance) const {
    const auto drawn =
        std::find_if(tokens_.begin(), tokens_.end(), [&](const Token& token) { return token.id == id; });
    if (drawn == tokens_.end()) return false;
    const long double slack = static_cast<long double>(tolerance) * whole_;
    const double lowest = std::log(options_.min_p) * options_.temperature;
    for (const Token& last : tokens_) {
      const bool cut = last.score - tokens_[0].score < lowest;
      if (cut) break;
      // `last` may be the last that the filters leave.
      const bool next_cut = &last == &tokens_.back() || (&last)[1].score - tokens_[0].score < lowest;
      const long double enough = options_.top_p * whole_;
      const bool starts = last.before<enough + slack, ends = last.with> enough - slack;
      if (!(options_.top_p < 1 ? starts && (ends || next_cut) : next_cut)) continue;
      const long double target = share * last.with;
      if (target >= drawn->before - slack && target < drawn->with + slack && drawn->before <= last.before)
        return true;
    }
    return false;
  }

 private:
  struct Token {
    double score;
    TokenId id;
    long double before = 0, with = 0;
  };
  const GenerateOptions& options_;
  std::vector<Token> tokens_;
  long double whole_ = 0;
};

class GpuSampling : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Every buffer begins as NaN, and no access may leave its buffer.
    auto opened = Device::open({.checked = true, .poison = true});
    if (!opened) {
      message_ = opened.error().message;
      return;
    }
    device_ = *opened;
    kernels_ = std::make_unique<KernelCache>(*device_);
    fmt::print("The adapter is {} ({}).\n", device_->adapter().name, device_->adapter().kind);
  }
  static void TearDownTestSuite() {
    choosers_.clear();
    kernels_.reset();
    device_.reset();
  }
  void SetUp() override {
    if (!device_) GTEST_SKIP() << message_;
  }

  static Chooser& chooser(std::uint32_t vocab) {
    auto& made = choosers_[vocab];
    if (!made) {
      auto created = Chooser::create(*device_, *kernels_, vocab);
      if (!created) {
        ADD_FAILURE() << created.error().message;
        std::abort();
      }
      made = std::move(*created);
    }
    return *made;
  }

  // Chooses a token for every row on both sides. They may differ only where the definition itself allows both
  // within the tolerance; the history goes on with what the GPU chose.
  void compare(const GenerateOptions& options, const std::vector<Logits>& rows, std::vector<TokenId> history,
               std::uint64_t draw = 0, TokenId pad = -1) {
    ASSERT_OK(check_generate_options(options, static_cast<std::uint32_t>(rows[0].size())));
    const auto vocab = static_cast<std::uint32_t>(rows[0].size());
    ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> ids,
                         chooser(vocab).choose(options, rows, history, draw, pad));
    Sampler sampler(options, pad);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto expected = sampler.sample(rows[i], history, draw + i);
      ++cases_;
      if (ids[i] != expected.value_or(kNone)) {
        ++differing_;
        const double share = uniform(options.seed, draw + i);
        ASSERT_TRUE(options.temperature > 0 && expected.has_value() &&
                    Definition(options, rows[i], history, pad).may_draw(ids[i], share, kTolerance))
            << describe(options, vocab) << ": token " << i << " of " << rows.size() << " is " << ids[i]
            << ", not " << expected.value_or(kNone) << ", for a share of " << share;
      }
      if (ids[i] == kNone) return;
      history.push_back(ids[i]);
    }
  }

  static std::string describe(const GenerateOptions& o, std::uint32_t vocab) {
    return fmt::format(
        "vocab {} temperature {} top-k {} top-p {} min-p {} repeat {} presence {} frequency {} window {} "
        "biases {} seed {}",
        vocab, o.temperature, o.top_k, o.top_p, o.min_p, o.repeat_penalty, o.presence_penalty,
        o.frequency_penalty, o.penalty_window, o.logit_bias.size(), o.seed);
  }

  // What rounding to 2^-25 halvings and units of 2^-42 can move, with room to spare.
  static constexpr double kTolerance = 5e-7;
  std::size_t cases_ = 0, differing_ = 0;
  static inline std::string message_;
  static inline std::shared_ptr<Device> device_;
  static inline std::unique_ptr<KernelCache> kernels_;
  static inline std::map<std::uint32_t, std::unique_ptr<Chooser>> choosers_;
};

// Random settings, with everything switched on about every third time.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool often() { return below(3) == 0; }
  double unit() { return static_cast<double>(below(1 << 30)) / (1 << 30); }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

  Logits logits(std::uint32_t vocab) {
    Logits made(vocab);
    const double spread = one_of({0.0, 0.01, 1.0, 3.0, 10.0});
    const double center = one_of({0.0, 0.0, -20.0, 15.0});
    const bool ties = often(), gaps = often();
    std::normal_distribution<double> normal(center, spread);
    for (float& x : made) {
      x = static_cast<float>(normal(random_));
      if (ties) x = std::round(x * 2) / 2;
      if (gaps && below(4) == 0) x = -kInfinity;
    }
    if (gaps) made[below(vocab)] = 1;
    if (often()) made[below(vocab)] += 8;  // one that stands out
    return made;
  }

  GenerateOptions options(std::uint32_t vocab) {
    GenerateOptions o;
    o.seed = random_();
    o.temperature = one_of({0.0, 0.7, 1.0, 1.0, 2.5, 1e-9, 1e9, 0.05});
    if (often()) o.top_k = one_of<std::uint32_t>({1, 2, 5, 40, 1000, vocab, vocab + 1});
    if (often()) o.top_p = one_of({0.0, 0.1, 0.5, 0.9, 0.95, 0.999});
    if (often()) o.min_p = one_of({0.01, 0.05, 0.3, 1.0, 1e-9});
    if (often()) o.repeat_penalty = one_of({1.1, 1.3, 0.8});
    if (often()) o.presence_penalty = one_of({0.1, -0.5, 2.0});
    if (often()) o.frequency_penalty = one_of({0.3, 1.0, -0.1});
    if (often()) o.penalty_window = one_of<std::uint32_t>({1, 3, 16, 1000});
    if (often()) {
      for (std::uint64_t i = below(6); i > 0; --i)
        o.logit_bias[static_cast<TokenId>(below(vocab))] =
            one_of<double>({-kInfinity, 0.1, 5.0, -3.25, 1e-3});
    }
    return o;
  }

  std::vector<TokenId> history(std::uint32_t vocab) {
    std::vector<TokenId> made(below(24));
    for (TokenId& id : made) id = static_cast<TokenId>(below(vocab));
    return made;
  }

 private:
  std::mt19937_64 random_;
};

TEST_F(GpuSampling, ChoosesAsTheSamplerDoesInRandomCases) {
  Maker maker(1);
  for (const std::uint32_t vocab : {1u, 7u, 1000u}) {
    for (int setting = vocab == 1 ? 140 : 0; setting < 160; ++setting) {
      const GenerateOptions options = maker.options(vocab);
      std::vector<Logits> rows;
      for (int row = 0; row < 8; ++row) rows.push_back(maker.logits(vocab));
      const TokenId pad = maker.often() ? static_cast<TokenId>(maker.below(vocab)) : -1;
      compare(options, rows, maker.history(vocab), maker.below(1000), pad);
      if (HasFatalFailure()) return;
    }
  }
  fmt::print("{} of {} tokens differ, all within {} of a boundary.\n", differing_, cases_, kTolerance);
  EXPECT_LT(differing_ * 1000, cases_);
}

TEST_F(GpuSampling, ReadsLargeVocabularies) {
  Maker maker(2);
  for (const std::uint32_t vocab : {32000u, 262144u, 300000u}) {
    for (int setting = 0; setting < (vocab == 300000 ? 1 : 5); ++setting) {
      compare(maker.options(vocab), {maker.logits(vocab), maker.logits(vocab)}, maker.history(vocab),
              maker.below(1000));
      if (HasFatalFailure()) return;
    }
  }
}

// Nothing tells the tokens apart but their ids.
TEST_F(GpuSampling, FindsItsWayAmongEqualTokens) {
  for (const std::uint32_t vocab : {7u, 1000u, 32000u}) {
    const Logits equal(vocab, -2.5f);
    GenerateOptions options{.temperature = 0.5, .seed = 5};
    compare(options, {equal, equal, equal, equal}, {});
    options.top_p = 0.5;
    compare(options, {equal, equal, equal, equal}, {});
    options.top_k = vocab / 2;
    compare(options, {equal, equal, equal, equal}, {});
    options.temperature = 0;
    compare(options, {equal}, {});
  }
}

// Scores so near each other that they share buckets, beside tokens so far away that the buckets are wide.
TEST_F(GpuSampling, FindsItsWayAmongNeighbours) {
  std::mt19937_64 random(3);
  for (const double temperature : {1.0, 1e12}) {
    Logits logits(1000, -1e9f);
    for (std::size_t i = 0; i < 900; ++i) logits[i] = 1 + 1e-6f * static_cast<float>(random() % 4);
    const std::vector<Logits> rows(16, logits);
    compare({.temperature = temperature, .seed = 1}, rows, {});
    compare({.temperature = temperature, .top_p = 0.3, .seed = 2}, rows, {});
    compare({.temperature = temperature, .top_k = 500, .seed = 3}, rows, {});
    compare({.temperature = temperature, .top_k = 950, .top_p = 0.9, .min_p = 0.1, .seed = 4}, rows, {});
  }
}

// Those furthest from the likeliest fill the last bucket.
TEST_F(GpuSampling, FindsItsWayAmongTheLeastLikely) {
  for (const std::uint32_t vocab : {7u, 1000u}) {
    Logits logits(vocab, -1);
    for (std::size_t i = 0; i < vocab; i += 7) logits[i] = 0;
    const std::vector<Logits> rows(20, logits);
    compare({.temperature = 1, .seed = 1}, rows, {});
    compare({.temperature = 1, .top_p = 0.9, .seed = 2}, rows, {});
    compare({.temperature = 1, .top_k = vocab - 2, .seed = 3}, rows, {});
  }
}

// 64 tokens, each of which changes what the penalties do to the next; the window slides over history and new
// tokens.
TEST_F(GpuSampling, RemembersWhatItChose) {
  Maker maker(4);
  for (const std::uint32_t window : {0u, 1u, 10u, 40u, 64u, 100u, 4000000000u}) {
    for (const double temperature : {0.0, 1.0}) {
      const Logits logits = maker.logits(1000);
      GenerateOptions options{.temperature = temperature,
                              .repeat_penalty = 1.2,
                              .presence_penalty = 0.25,
                              .frequency_penalty = 0.75,
                              .penalty_window = window,
                              .seed = 9};
      compare(options, std::vector<Logits>(64, logits), maker.history(1000));
      if (HasFatalFailure()) return;
    }
  }
}

// What lies in a window of the history counts, known or not; unknown ids are no tokens.
TEST_F(GpuSampling, LeavesUnknownTokensOfTheHistoryAlone) {
  const std::vector<Logits> rows(6, Logits{1, 1.5, 2, 2.5, 3, 3.5, 4});
  compare({.repeat_penalty = 2, .penalty_window = 3}, rows, {6, 7, 1000000, -1, -2147483647 - 1});
  compare({.repeat_penalty = 2}, rows, {6, 7, 1000000, -1, -2147483647 - 1});
}

// A penalised score against a bias on a logit of 0 that is the same double, or the next one above or below.
TEST_F(GpuSampling, RoundsScoresAsDoubles) {
  Maker maker(5);
  for (int i = 0; i < 300; ++i) {
    GenerateOptions options{.repeat_penalty = maker.one_of({1.0, 1.1, 1.3, 0.7, 3.0, 1 + maker.unit()}),
                            .presence_penalty = maker.one_of({0.0, 0.1, -7.3, 1e-12, maker.unit()}),
                            .frequency_penalty = maker.one_of({0.0, 0.1, -1e5, 1e-9, maker.unit()})};
    const std::vector<TokenId> history(1 + maker.below(9), 3);
    const float logit = static_cast<float>((maker.unit() - 0.5) * maker.one_of({1.0, 30.0, 1e-6, 1e20}));
    double score = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    score -= options.presence_penalty + options.frequency_penalty * static_cast<double>(history.size());
    Logits logits(7, -kInfinity);
    const TokenId other = maker.often() ? 2 : 4;
    logits[3] = logit;
    logits[static_cast<std::size_t>(other)] = 0;
    for (const double bias : {score, std::nextafter(score, -1e300), std::nextafter(score, 1e300)}) {
      options.logit_bias = {{other, bias}};
      compare(options, {logits}, history);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuSampling, TakesFloatsOfEverySize) {
  const float tiny = std::numeric_limits<float>::denorm_min(), huge = std::numeric_limits<float>::max();
  for (const Logits& logits :
       {Logits{0, -0.0f, tiny, 2 * tiny, -tiny, 0, 0}, Logits{-0.0f, 0, -1, -tiny, -2, -3, -huge},
        Logits{-huge, huge, huge, 1, 0, -1, -2}, Logits{-huge, -huge, -huge, -huge, -huge, -huge, -huge}}) {
    compare({}, {logits}, {});
    for (const double temperature : {1e-44, 1.0, 1e30}) {
      compare({.temperature = temperature, .seed = 3}, std::vector<Logits>(5, logits), {});
      compare({.temperature = temperature, .repeat_penalty = 3e5, .logit_bias = {{2, 1e30}, {3, -1e300}}},
              std::vector<Logits>(5, logits), {1, 4});
    }
  }
}

TEST_F(GpuSampling, RulesTokensOut) {
  const Logits logits = {-kInfinity, 5, 4, -kInfinity, 3, 2, 1};
  for (const double temperature : {0.0, 1.0, 1e9}) {
    const std::vector<Logits> rows(12, logits);
    compare({.temperature = temperature, .logit_bias = {{1, -kInfinity}, {0, 4}}}, rows, {1, 2}, 0, 2);
    compare({.temperature = temperature, .repeat_penalty = 1.5, .penalty_window = 2}, rows, {2, 2, 1}, 0, 2);
    compare({.temperature = temperature, .logit_bias = {{2, 100}}}, rows, {}, 0,
            2);  // nor does a bias help PAD
  }
}

TEST_F(GpuSampling, ReportsLogitsThatMeanNothing) {
  const float nan = std::nanf("");
  for (const double temperature : {0.0, 1.0}) {
    const GenerateOptions options{.temperature = temperature, .repeat_penalty = 1.1};
    for (const float bad : {nan, -nan, kInfinity}) {
      for (const std::size_t at : {0u, 6u}) {
        Logits logits(7, 1);
        logits[at] = bad;
        compare(options, {logits}, {0});
        compare({.temperature = temperature, .logit_bias = {{6, -kInfinity}}}, {logits}, {}, 0, 0);
      }
    }
    compare(options, {Logits(7, -kInfinity)}, {});
    compare({.temperature = temperature, .logit_bias = {{0, -kInfinity}}}, {{1}}, {});
  }
}

// The same seed, draws and logits give the same tokens: at once, one by one, and after other settings.
TEST_F(GpuSampling, RepeatsItself) {
  Maker maker(6);
  const std::vector<Logits> rows = {maker.logits(1000), maker.logits(1000), maker.logits(1000)};
  const GenerateOptions options{.temperature = 1.5, .top_p = 0.99, .repeat_penalty = 1.2, .seed = 77};
  ASSERT_OK_AND_ASSIGN(const auto first, chooser(1000).choose(options, rows, {5}, 3, -1));
  compare({.temperature = 1, .presence_penalty = 1, .logit_bias = {{7, 1}}}, rows, {1, 2, 3, 4, 5, 6});
  ASSERT_OK_AND_ASSIGN(auto second, chooser(1000).choose(options, {rows[0]}, {5}, 3, -1));
  for (std::size_t i = 1; i < rows.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const auto next, chooser(1000).go_on({rows[i]}));
    second.push_back(next[0]);
  }
  EXPECT_EQ(first, second);
}

TEST_F(GpuSampling, CountsDrawsIn64Bits) {
  const std::vector<Logits> rows(4, Logits(1000, 0.5f));
  compare({.temperature = 1, .seed = 0xfedcba9876543210}, rows, {}, 0xfffffffe);
  EXPECT_EQ(differing_, 0u);
}

// Rows of different options, listed in another order than their logits', of which one begins anew, with more
// biases than any before, while the others go on. A window that no sequence fills takes no room.
TEST_F(GpuSampling, ChoosesForRowsAsForEachAlone) {
  constexpr std::uint32_t kRows = 5, kOfLogits = 6, kTokens = 4, kMostTokens = 20;
  for (const std::uint32_t vocab : {7u, 1000u}) {
    Maker maker(7 + vocab);
    std::vector<Logits> logits;
    Logits all;
    for (std::uint32_t row = 0; row < kOfLogits; ++row) {
      logits.push_back(maker.logits(vocab));
      all.insert(all.end(), logits.back().begin(), logits.back().end());
    }
    all.resize((all.size() + 3) / 4 * 4);
    ASSERT_OK_AND_ASSIGN(const Buffer rows, device_->make_filled("rows", all.size() * 4, [&](auto out) {
      std::memcpy(out.data(), all.data(), out.size());
    }));
    ASSERT_OK_AND_ASSIGN(const Buffer chosen, device_->make_buffer("chosen", kOfLogits * 4));
    ASSERT_OK_AND_ASSIGN(
        Sampling together,
        Sampling::create(*device_, *kernels_, {vocab, kRows, kOfLogits, kMostTokens}, rows, chosen));
    GenerateOptions options[kRows] = {
        {.temperature = 0.9, .seed = 1},
        {.repeat_penalty = 1.4, .logit_bias = {{3, 2.0}}},
        {.temperature = 1, .frequency_penalty = 0.5, .penalty_window = 3, .seed = 2},
        {.temperature = 2, .top_k = 5, .top_p = 0.9, .seed = 3},
        {.presence_penalty = 1, .penalty_window = 1 << 24}};
    const std::vector<TokenId> history = {5, 1, 1, 2, 6};
    for (std::uint32_t row = 0; row < kRows; ++row)
      ASSERT_OK(together.begin(row, options[row], -1, history, 10 * row));
    std::vector<Sampling::Listed> listed = {{4, 5}, {0, 0}, {2, 3}, {1, 1}};  // row 3 rests
    ASSERT_OK(together.list(listed));
    std::vector<TokenId> said[kRows];
    const auto take = [&](std::uint32_t tokens) -> Status {
      for (std::uint32_t i = 0; i < tokens; ++i) {
        Recorder recorder(*device_);
        together.record(recorder);
        DOPPLER_TRY(recorder.submit());
        DOPPLER_ASSIGN(const auto bytes, device_->download(chosen));
        std::vector<TokenId> ids(kOfLogits);
        std::memcpy(ids.data(), bytes.data(), ids.size() * 4);
        for (const auto& [row, of_logits] : listed) said[row].push_back(ids[of_logits]);
      }
      return {};
    };
    ASSERT_OK(take(kTokens));
    options[3].logit_bias = {{0, 1.0}, {1, -kInfinity}, {2, 0.5}, {4, 0.25}, {6, 3.0}};
    ASSERT_OK(together.begin(3, options[3], -1, history, 30));
    listed = {{1, 1}, {3, 2}, {2, 3}, {0, 0}, {4, 5}};
    ASSERT_OK(together.list(listed));
    EXPECT_EQ(together.dispatches(), 5u);
    ASSERT_OK(take(kTokens));
    for (const auto& [row, of_logits] : listed) {
      ASSERT_OK_AND_ASSIGN(
          const auto alone,
          chooser(vocab).choose(options[row], std::vector<Logits>(said[row].size(), logits[of_logits]),
                                history, 10 * row, -1));
      EXPECT_EQ(said[row], alone) << "row " << row << " of " << vocab << " tokens";
    }
  }
}

// Options and the vocabulary are values in buffers: other ones compile nothing.
TEST_F(GpuSampling, CompilesNothingWhenOptionsChange) {
  chooser(7);
  const std::size_t kernels = kernels_->size();
  const Logits logits(7, 0);
  for (const double top_p : {0.3, 0.6, 1.0}) {
    for (const std::uint32_t top_k : {0u, 3u})
      compare({.temperature = 1, .top_k = top_k, .top_p = top_p}, {logits}, {});
  }
  compare({.temperature = 1}, {Logits(8, 0)}, {});
  EXPECT_EQ(kernels_->size(), kernels);
}

TEST_F(GpuSampling, RefusesWhatItCannotHold) {
  EXPECT_ERROR(Chooser::create(*device_, *kernels_, 1 << 22), "4194304 tokens", "Choose them on the CPU");
  const GenerateOptions options{.max_tokens = 4000000000, .repeat_penalty = 2, .penalty_window = 100000000};
  EXPECT_ERROR(chooser(7).sampling().begin_alone(options, -1, {}, 0), "100000000", "--backend cpu");
}

// Not a test of anything: what a token costs, for whoever has a real GPU. Run it with
// --gtest_also_run_disabled_tests --gtest_filter=*Speed.
TEST_F(GpuSampling, DISABLED_Speed) {
  ASSERT_OK_AND_ASSIGN(const auto device, Device::open({}));
  KernelCache kernels(*device);
  constexpr std::uint32_t kVocab = 262144;
  ASSERT_OK_AND_ASSIGN(const auto chooser, Chooser::create(*device, kernels, kVocab));
  const int repeats = device->adapter().software() ? 2 : 400;
  for (const double spread : {1.0, 3.0, 6.0}) {
    std::mt19937_64 random(8);
    std::normal_distribution<float> normal(0, static_cast<float>(spread));
    Logits logits(kVocab);
    for (float& x : logits) x = normal(random);
    ASSERT_OK(device->write(chooser->logits(), 0, std::as_bytes(std::span(logits))));
    const std::pair<const char*, GenerateOptions> settings[] = {
        {"greedy", {}},
        {"greedy, penalties", {.repeat_penalty = 1.1, .penalty_window = 64}},
        {"top-k 40", {.temperature = 1, .top_k = 40}},
        {"top-k 40, top-p 0.95, penalties",
         {.temperature = 1, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1.1}},
        {"top-p 0.95", {.temperature = 1, .top_p = 0.95}},
        {"min-p 0.05", {.temperature = 1, .min_p = 0.05}},
        {"temperature 1", {.temperature = 1}},
    };
    for (const auto& [name, options] : settings) {
      ASSERT_OK(chooser->sampling().begin_alone(options, -1, {}, 0));
      double best[2] = {1e30, 1e30};
      for (int round = 0; round < 5; ++round) {
        for (const int many : {0, 1}) {
          Recorder recorder(*device);
          for (int i = 0; i < 1 + many * repeats; ++i) chooser->sampling().record(recorder);
          const auto start = std::chrono::steady_clock::now();
          ASSERT_OK_AND_ASSIGN(const std::uint64_t submission, recorder.submit());
          ASSERT_OK(device->wait(submission));
          const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
          best[many] = std::min(best[many], seconds.count());
        }
      }
      fmt::print("spread {}: {:32} {:8.1f} us\n", spread, name, (best[1] - best[0]) / repeats * 1e6);
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
