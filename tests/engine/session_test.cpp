// A session feeds its backend only what is new, in steps that fit, and keeps count when things go wrong.
#include "engine/session.h"

#include <algorithm>
#include <functional>

#include "testing.h"

namespace doppler {
namespace {

// Notes what it is fed; its logits say how long the sequence is.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(BackendOptions options) : options_(std::move(options)), lengths_(options_.slots) {
    plan_.vocab_size = 100;
  }

  std::vector<std::vector<std::int32_t>> steps;  // the ids of each
  std::vector<StepInput> inputs;
  std::function<void()> on_step;
  int clears = 0;

  std::string_view name() const override { return "fake"; }
  const Plan& plan() const override { return plan_; }
  const BackendOptions& options() const override { return options_; }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_[slot] = 0, ++clears; }
  MemoryUse memory() const override { return {}; }
  Result<std::span<const float>> step(const StepInput& input, Tap*) override {
    DOPPLER_TRY(check_step(input, plan_, options_, lengths_));
    for (const std::int32_t slot : input.slots) ++lengths_[static_cast<std::size_t>(slot)];
    steps.push_back(input.ids);
    inputs.push_back(input);
    if (on_step) on_step();
    const auto wanting = std::count(input.wants_logits.begin(), input.wants_logits.end(), 1);
    logits_.assign(static_cast<std::size_t>(wanting) * 100,
                   static_cast<float>(lengths_[static_cast<std::size_t>(input.slots[0])]));
    return std::span<const float>(logits_);
  }

 private:
  BackendOptions options_;
  Plan plan_;
  std::vector<std::uint64_t> lengths_;
  std::vector<float> logits_;
};

using Ids = std::vector<TokenId>;
using Steps = std::vector<std::vector<std::int32_t>>;

struct Fixture {
  FakeBackend backend{{.context = 10, .slots = 2, .max_step_tokens = 4, .disabled_passes = {}}};
  Session session{backend, 1};
  std::size_t reused = 99;

  Result<std::span<const float>> prompt(const Ids& ids, const CancelToken* cancel = nullptr) {
    return session.prompt(ids, cancel, &reused);
  }
};

TEST(Session, FeedsThePromptInStepsThatFit) {
  Fixture f;
  ASSERT_OK_AND_ASSIGN(const auto logits, f.prompt({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(f.backend.steps, (Steps{{1, 2, 3, 4}, {5, 6, 7, 8}, {9}}));
  EXPECT_EQ(f.reused, 0u);
  ASSERT_EQ(logits.size(), 100u) << "only the last token's";
  EXPECT_EQ(logits[0], 9);
  EXPECT_EQ(f.backend.inputs[1].positions, (std::vector<std::int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(f.backend.inputs[1].slots, (std::vector<std::int32_t>{1, 1, 1, 1}));
  EXPECT_EQ(f.backend.length(0), 0u) << "the other slot is not touched";
}

TEST(Session, KeepsWhatThePromptContinues) {
  Fixture f;
  ASSERT_OK(f.prompt({1, 2, 3}));
  ASSERT_OK(f.session.append(4));
  f.backend.steps.clear();
  ASSERT_OK(f.prompt({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(f.reused, 4u);
  EXPECT_EQ(f.backend.steps, (Steps{{5, 6}}));
  EXPECT_TRUE(std::ranges::equal(f.session.cached(), Ids{1, 2, 3, 4, 5, 6}));
}

TEST(Session, StartsOverWhereACacheCannotBeCut) {
  for (const Ids& next : {Ids{1, 2, 9, 4}, Ids{1, 2}, Ids{7}, Ids{1, 2, 3}}) {
    Fixture f;
    ASSERT_OK(f.prompt({1, 2, 3}));
    f.backend.steps.clear();
    ASSERT_OK(f.prompt(next));
    EXPECT_EQ(f.reused, 0u);
    EXPECT_EQ(f.backend.steps, (Steps{{next.begin(), next.end()}}));
    EXPECT_TRUE(std::ranges::equal(f.session.cached(), next));
    EXPECT_EQ(f.backend.length(1), next.size());
  }
}

TEST(Session, ContextIsTheLimit) {
  Fixture f;
  EXPECT_ERROR(f.prompt(Ids(11, 1)), "11 tokens", "context holds 10");
  EXPECT_TRUE(f.backend.steps.empty());
  ASSERT_OK(f.prompt(Ids(9, 1)));
  ASSERT_OK(f.session.append(2));
  EXPECT_ERROR(f.session.append(3), "context of 10");
  EXPECT_EQ(f.session.cached().size(), 10u) << "a refused token is not counted";
  EXPECT_ERROR(f.prompt({}), "no tokens");
}

TEST(Session, CancelEndsBetweenSteps) {
  Fixture f;
  CancelToken cancel;
  f.backend.on_step = [&] {
    if (f.backend.steps.size() == 2) cancel.cancel();
  };
  ASSERT_OK_AND_ASSIGN(const auto logits, f.prompt({1, 2, 3, 4, 5, 6, 7, 8, 9}, &cancel));
  EXPECT_TRUE(logits.empty());
  EXPECT_EQ(f.backend.steps.size(), 2u);
  // What was fed counts: the same prompt goes on where it stopped.
  f.backend.steps.clear();
  ASSERT_OK(f.prompt({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(f.reused, 8u);
  EXPECT_EQ(f.backend.steps, (Steps{{9}}));
}

TEST(Session, CancelledBeforeItBegan) {
  Fixture f;
  CancelToken cancel;
  cancel.cancel();
  ASSERT_OK_AND_ASSIGN(const auto logits, f.prompt({1, 2}, &cancel));
  EXPECT_TRUE(logits.empty());
  EXPECT_TRUE(f.backend.steps.empty());
}

TEST(Session, AStepThatFailsLeavesTheCountRight) {
  Fixture f;
  EXPECT_ERROR(f.prompt({1, 2, 3, 4, 500}), "token id 500");
  EXPECT_TRUE(std::ranges::equal(f.session.cached(), Ids{1, 2, 3, 4}));
  ASSERT_OK(f.prompt({1, 2, 3, 4, 5}));
  EXPECT_EQ(f.reused, 4u);
  EXPECT_EQ(f.backend.length(1), 5u);
}

}  // namespace
}  // namespace doppler
