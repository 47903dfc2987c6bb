// The beginning that a prompt shares with the cache is kept whatever follows, and what is computed behind it
// is what a fresh run computes: bit for bit on the host, within rounding on a GPU, which sums in the order of
// the step that a token comes in.
#include <algorithm>
#include <cmath>
#include <random>

#include "engine/session.h"
#include "model/family.h"
#include "testing.h"

namespace doppler {
namespace {

using Ids = std::vector<TokenId>;

// Gemma's windows are 8 tokens here, so that rings turn; llama has none.
struct ReuseCase {
  const char* backend;
  const char* model;
  KvType kv_type;
};
constexpr ReuseCase kReuseCases[] = {{"cpu", "llama", KvType::kF32},
                                     {"cpu", "gemma3", KvType::kF32},
                                     {"cpu", "gemma3", KvType::kF16},
                                     {"cpu", "gemma3", KvType::kQ8_0},
                                     {"reference", "llama", KvType::kF32},
                                     {"reference", "gemma3", KvType::kF32},
#if DOPPLER_GPU
                                     {"gpu", "llama", KvType::kF32},
                                     {"gpu", "gemma3", KvType::kF16}
#endif
};

constexpr std::uint64_t kContext = 128;

// A backend with one session that goes on and one that begins anew each time.
class Reuse : public ::testing::TestWithParam<ReuseCase> {
 protected:
  void make(std::uint32_t cut_tokens) {
    ASSERT_OK_AND_ASSIGN(Model model, load_model(testing::data_path("models/") / GetParam().model));
    model_ = std::make_unique<Model>(std::move(model));
    BackendOptions options{.threads = 2, .context = kContext, .slots = 2, .max_step_tokens = 8};
    options.cut_tokens = cut_tokens;
    options.kv_type = GetParam().kv_type;
    options.gpu_setup.self_check = false;
    options.gpu_setup.tune = false;
    auto made = make_backend(GetParam().backend, model_->spec, model_->weights, options);
    if (!made && made.error().code == ErrorCode::kNotFound) GTEST_SKIP() << made.error().message;
    ASSERT_OK(made);
    backend_ = std::move(*made);
    session_.emplace(*backend_, 0);
    fresh_.emplace(*backend_, 1);
  }

  // Gives the prompt to both and compares their logits; returns how many tokens the first one kept.
  std::size_t prompt(const Ids& ids) {
    std::size_t kept = 0;
    const auto got = session_->prompt(ids, nullptr, &kept);
    EXPECT_TRUE(got.has_value());
    const std::vector<float> logits(got->begin(), got->end());
    fresh_->clear();
    std::size_t none = 0;
    const auto wanted = fresh_->prompt(ids, nullptr, &none);
    EXPECT_TRUE(wanted.has_value());
    EXPECT_EQ(none, 0u);
    expect_same(logits, *wanted);
    EXPECT_TRUE(std::ranges::equal(session_->cached(), ids));
    return kept;
  }
  // So many tokens more, as an answer.
  void answer(std::size_t tokens) {
    for (std::size_t i = 0; i < tokens; ++i) {
      const auto id = static_cast<TokenId>(5 + (session_->cached().size() * 11) % 50);
      const auto got = session_->append(id);
      EXPECT_TRUE(got.has_value());
      const std::vector<float> logits(got->begin(), got->end());
      const auto wanted = fresh_->append(id);
      EXPECT_TRUE(wanted.has_value());
      expect_same(logits, *wanted);
    }
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_, fresh_;

 private:
  void expect_same(std::span<const float> got, std::span<const float> wanted) const {
    ASSERT_EQ(got.size(), wanted.size());
    if (std::string_view(GetParam().backend) != "gpu") {
      EXPECT_TRUE(std::ranges::equal(got, wanted)) << "not the bits of a fresh run";
      return;
    }
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      worst = std::max(worst, std::abs(got[i] - wanted[i]));
    }
    // A cache in f16 rounds by 2^-11; a few layers add up a few of these.
    EXPECT_LE(worst, largest * (GetParam().kv_type == KvType::kF16 ? 4e-3f : 1e-4f));
  }
};

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
Ids text(std::size_t count, TokenId first) {
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>(3 + (first + 7 * i) % 60);
  return ids;
}

TEST_P(Reuse, KeepsTheLongestCommonBeginningWhateverFollows) {
  make(kContext);
  if (!backend_) return;
  const Ids system = text(30, 1), question = text(9, 20), other = text(12, 41);
  EXPECT_EQ(prompt(joined({system, question})), 0u);
  answer(40);
  EXPECT_EQ(prompt(joined({system, question})), 38u) << "the same again: its last token gives the logits";
  answer(40);
  EXPECT_EQ(prompt(joined({system, other})), 30u) << "another question behind the same text";
  answer(20);
  const Ids answered(session_->cached().begin(), session_->cached().end());
  EXPECT_EQ(prompt(joined({answered, text(5, 9)})), 62u) << "the next turn";
  EXPECT_EQ(prompt(joined({answered, text(4, 10)})), 62u) << "the same turn, edited";
  EXPECT_EQ(prompt(text(31, 1)), 30u) << "a prompt that is shorter than the cache, and its beginning";
  EXPECT_EQ(prompt(text(7, 50)), 0u);
}

TEST_P(Reuse, OfAnyPromptsAfterAnyOthers) {
  make(kContext);
  if (!backend_) return;
  std::mt19937 random(3);
  Ids before;
  for (int round = 0; round < 25; ++round) {
    Ids ids(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(random() % (before.size() + 1)));
    for (std::size_t more = 1 + random() % 20; more > 0 && ids.size() < 100; --more)
      ids.push_back(static_cast<TokenId>(3 + random() % 60));
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(before, ids).in1 - before.begin());
    EXPECT_EQ(prompt(ids), std::min(common, ids.size() - 1));
    answer(random() % 20);
    before.assign(session_->cached().begin(), session_->cached().end());
  }
}

// Rings that have room for 16 tokens besides the window: so far back, and no further.
TEST_P(Reuse, StartsOverWhereARingHasOverwrittenWhatAPromptNeeds) {
  make(16);
  if (!backend_) return;
  const bool windows =
      std::ranges::any_of(backend_->plan().kv_layers, [](const KvLayer& layer) { return layer.window != 0; });
  const Ids long_one = text(60, 1);
  EXPECT_EQ(prompt(long_one), 0u);
  answer(10);
  EXPECT_EQ(prompt(joined({text(55, 1), text(3, 30)})), 55u);
  answer(15);
  EXPECT_EQ(prompt(joined({text(50, 1), text(3, 33)})), windows ? 0u : 50u);
}

// Recurrent layers go back to a border: in front of a prompt's last token, or farther.
using ReuseOfStates = Reuse;
TEST_P(ReuseOfStates, GoesBackToTheNearestBorder) {
  make(kContext);
  if (!backend_) return;
  const Ids system = text(30, 1), question = text(9, 20), other = text(12, 41);
  EXPECT_EQ(prompt(joined({system, question})), 0u);
  answer(20);
  EXPECT_EQ(prompt(joined({system, question})), 38u) << "the same again";
  answer(20);
  const Ids answered(session_->cached().begin(), session_->cached().end());
  EXPECT_EQ(prompt(joined({answered, text(5, 9)})), answered.size()) << "the next turn";
  EXPECT_EQ(prompt(joined({system, question, text(3, 50)})), 38u) << "another answer";
  EXPECT_EQ(prompt(joined({system, other})), 8u) << "the first step of the prompt ends there";
  EXPECT_EQ(prompt(text(7, 50)), 0u);
}
// What a device has computed beyond the last token that is kept changes nothing.
TEST_P(ReuseOfStates, GoesOnWhereAContinuationWasStopped) {
  make(kContext);
  if (!backend_) return;
  const GenerateOptions greedy;
  if (!session_->can_continue(greedy)) GTEST_SKIP() << "only a device continues by itself";
  Ids ids = text(12, 1);
  ASSERT_OK(session_->prompt(ids, nullptr, nullptr));
  ids.push_back(9);
  ASSERT_OK(session_->begin_continuation(ids, 40, greedy, 0, -1));
  for (int i = 0; i < 11; ++i) {  // a submission and a part of the next
    ASSERT_OK_AND_ASSIGN(const TokenId id, session_->next());
    ids.push_back(id);
  }
  ASSERT_OK(session_->end_continuation());
  ASSERT_EQ(session_->cached().size(), ids.size() - 1);
  EXPECT_EQ(prompt(joined({ids, {3, 4}})), ids.size() - 1);
}
constexpr ReuseCase kRecurrentReuse[] = {{"cpu", "qwen3_5", KvType::kF32},
                                         {"cpu", "lfm2", KvType::kF32},
                                         {"reference", "mamba2", KvType::kF32},
#if DOPPLER_GPU
                                         {"gpu", "qwen3_5", KvType::kF32}
#endif
};
INSTANTIATE_TEST_SUITE_P(Backends, ReuseOfStates, ::testing::ValuesIn(kRecurrentReuse),
                         [](const auto& parameter) {
                           const ReuseCase& c = parameter.param;
                           return std::string(c.backend) + "_" + c.model;
                         });

INSTANTIATE_TEST_SUITE_P(Backends, Reuse, ::testing::ValuesIn(kReuseCases), [](const auto& parameter) {
  const ReuseCase& c = parameter.param;
  return std::string(c.backend) + "_" + c.model + "_" + std::string(kv_type_name(c.kv_type));
});

}  // namespace
}  // namespace doppler
