// The reference backend: looking changes nothing, taps show exactly what they say, slots do not mix, bad
// steps change nothing.
#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "model_fixture.h"

namespace doppler {
namespace {

using testing::TinyModel;

// Counts what it sees and compares every event's sizes with the plan.
class ShapeTap final : public Tap {
 public:
  explicit ShapeTap(const Plan& plan) {
    for (const Value& value : plan.values) widths_[{value.stage, value.layer}] = value;
  }
  std::map<std::string, std::size_t> seen;
  bool wants(Stage, int) const override { return true; }
  void on_stage(const TapEvent& event) override {
    ++seen[stage_key(event.stage, event.layer)];
    EXPECT_EQ(event.data.size(), event.rows * event.width) << stage_name(event.stage);
    EXPECT_EQ(event.width % event.heads, 0u);
    if (event.stage == Stage::kAttnInput || event.stage == Stage::kAttnScores) return;
    const Value& value = widths_.at({event.stage, event.layer});
    EXPECT_EQ(event.width, value.width);
    EXPECT_EQ(event.heads, value.heads);
    const auto wanted = static_cast<std::size_t>(
        std::count(event.input->wants_logits.begin(), event.input->wants_logits.end(), 1));
    EXPECT_EQ(event.rows, value.rows == Rows::kAll ? event.input->size() : wanted);
    for (const float x : event.data) EXPECT_TRUE(std::isfinite(x)) << stage_name(event.stage);
  }

 private:
  std::map<std::pair<Stage, int>, Value> widths_;
};

class Reference : public ::testing::Test {
 protected:
  Reference() : model_("gemma3"), spec_(*model_.spec()), weights_(*model_.bind()) {}
  std::unique_ptr<Backend> backend(BackendOptions options = {.context = 32,
                                                             .slots = 2,
                                                             .max_step_tokens = 8,
                                                             .disabled_passes = {}}) const {
    auto made = make_reference_backend(spec_, weights_, options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return std::move(*made);
  }
  // Tokens for one slot, continuing at its length; only the last wants logits unless `all`.
  static StepInput step(const Backend& backend, std::int32_t slot, std::vector<std::int32_t> ids,
                        bool all = false) {
    StepInput input;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      input.positions.push_back(
          static_cast<std::int32_t>(backend.length(static_cast<std::uint32_t>(slot)) + i));
      input.slots.push_back(slot);
      input.wants_logits.push_back(all || i + 1 == ids.size());
    }
    input.ids = std::move(ids);
    return input;
  }
  static std::vector<float> run(Backend& backend, const StepInput& input, Tap* tap = nullptr) {
    const auto logits = backend.step(input, tap);
    EXPECT_TRUE(logits.has_value()) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

  TinyModel model_;
  ModelSpec spec_;
  Weights weights_;
};

TEST_F(Reference, TapsShowExactlyTheirShape) {
  const auto made = backend();
  ShapeTap tap(made->plan());
  run(*made, step(*made, 0, {2, 5, 6, 7, 8}), &tap);
  run(*made, step(*made, 0, {9}), &tap);
  EXPECT_EQ(tap.seen.size(), 3u * 21 + 5) << "every stage of three layers, and those outside them";
  for (const auto& [key, times] : tap.seen) EXPECT_EQ(times, 2u) << key;
}

TEST_F(Reference, LookingChangesNoBit) {
  const auto seen = backend(), unseen = backend();
  ShapeTap tap(seen->plan());
  for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{2, 5, 6}, {7}, {8, 9}}) {
    EXPECT_EQ(run(*seen, step(*seen, 0, ids), &tap), run(*unseen, step(*unseen, 0, ids)));
  }
}

TEST_F(Reference, PiecesGiveTheSameBits) {
  const std::vector<std::int32_t> ids = {2, 5, 6, 7, 8, 9, 10, 11};
  const auto whole = backend(), pieces = backend();
  const std::vector<float> all = run(*whole, step(*whole, 0, ids, true));
  std::vector<float> joined;
  for (const std::size_t end : {1u, 4u, 6u, 8u}) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(pieces->length(0));
    const auto logits =
        run(*pieces, step(*pieces, 0, {begin, ids.begin() + static_cast<std::ptrdiff_t>(end)}, true));
    joined.insert(joined.end(), logits.begin(), logits.end());
  }
  EXPECT_EQ(all, joined);
}

// Rows of a product are shared out; each is summed by one thread, in the order of columns.
TEST_F(Reference, ThreadsGiveTheSameBits) {
  TinyModel wide("llama", [] {
    Json config = testing::tiny_config("llama");
    config["intermediate_size"] = 1037;  // so that products are worth threads, and rows are odd in number
    return config;
  }());
  const ModelSpec spec = *wide.spec();
  const Weights weights = *wide.bind();
  std::vector<std::vector<float>> results;
  for (const std::size_t threads : {1u, 2u, 5u}) {
    const auto made = make_reference_backend(
        spec, weights, {.threads = threads, .context = 32, .max_step_tokens = 16, .disabled_passes = {}});
    ASSERT_OK(made);
    results.push_back(run(**made, step(**made, 0, {2, 5, 6, 7, 8, 9, 10, 11, 12}, true)));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_F(Reference, SlotsDoNotMix) {
  const auto alone = backend(), together = backend();
  const std::vector<float> first = run(*alone, step(*alone, 0, {2, 5, 6}));
  const std::vector<float> second = run(*alone, step(*alone, 1, {3, 9, 8}));
  StepInput both;  // taken in turn
  for (std::int32_t i = 0; i < 3; ++i) {
    for (std::int32_t slot = 0; slot < 2; ++slot) {
      both.ids.push_back(slot == 0 ? std::vector{2, 5, 6}[static_cast<std::size_t>(i)]
                                   : std::vector{3, 9, 8}[static_cast<std::size_t>(i)]);
      both.positions.push_back(i);
      both.slots.push_back(slot);
      both.wants_logits.push_back(i == 2);
    }
  }
  std::vector<float> joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  EXPECT_EQ(run(*together, both), joined);
  together->clear(0);
  EXPECT_EQ(together->length(0), 0u);
  EXPECT_EQ(together->length(1), 3u);
  EXPECT_EQ(run(*together, step(*together, 0, {2, 5, 6})), first) << "a cleared slot starts over";
}

TEST_F(Reference, RefusedStepsChangeNothing) {
  const auto made = backend();
  run(*made, step(*made, 0, {2, 5}));
  const StepInput good = step(*made, 0, {6, 7});
  const auto refused = [&](const std::function<void(StepInput&)>& change) {
    StepInput input = good;
    change(input);
    return made->step(input, nullptr);
  };
  EXPECT_ERROR(refused([](StepInput& s) { s.ids.push_back(3); }), "3 ids, 2 positions");
  EXPECT_ERROR(refused([](StepInput& s) { s = {}; }), "0 tokens", "1 to 8");
  EXPECT_ERROR(made->step(step(*made, 0, std::vector<std::int32_t>(9, 3)), nullptr), "9 tokens", "1 to 8");
  EXPECT_ERROR(refused([](StepInput& s) { s.ids[1] = 64; }), "token id 64 at place 1", "64 tokens");
  EXPECT_ERROR(refused([](StepInput& s) { s.ids[1] = -1; }), "token id -1");
  EXPECT_ERROR(refused([](StepInput& s) { s.slots[1] = 2; }), "slot 2 does not exist", "there are 2");
  EXPECT_ERROR(refused([](StepInput& s) { s.slots[0] = -1; }), "slot -1");
  EXPECT_ERROR(refused([](StepInput& s) { s.positions[1] = 9; }), "position 9", "slot 0 continues at 3");
  EXPECT_ERROR(refused([](StepInput& s) { s.positions[0] = 0; }), "position 0", "continues at 2");
  EXPECT_EQ(made->length(0), 2u);
  const auto untouched = backend();
  run(*untouched, step(*untouched, 0, {2, 5}));
  EXPECT_EQ(run(*made, good), run(*untouched, good));
}

TEST_F(Reference, TheContextEnds) {
  const auto made = backend({.context = 3, .max_step_tokens = 8, .disabled_passes = {}});
  EXPECT_ERROR(made->step(step(*made, 0, {2, 5, 6, 7}), nullptr), "exceeds the context of 3");
  run(*made, step(*made, 0, {2, 5, 6}));
  EXPECT_ERROR(made->step(step(*made, 0, {7}), nullptr), "exceeds the context of 3");
}

TEST_F(Reference, PlansFromElsewhereAreChecked) {
  const BackendOptions options{.context = 32, .disabled_passes = {}};
  ASSERT_OK_AND_ASSIGN(Plan plan, build_plan(spec_, weights_, 32));
  ASSERT_OK(make_reference_backend_for_plan(plan, weights_, options));
  plan.ops.pop_back();
  EXPECT_ERROR(make_reference_backend_for_plan(plan, weights_, options), "never writes its logits");
}

TEST_F(Reference, OptionsThatMakeNoSense) {
  EXPECT_ERROR(make_reference_backend(spec_, weights_, {.context = 0, .disabled_passes = {}}), "context",
               "0");
  EXPECT_ERROR(make_reference_backend(spec_, weights_, {.slots = 0, .disabled_passes = {}}), "slots", "0");
  EXPECT_ERROR(make_reference_backend(spec_, weights_, {.max_step_tokens = 0, .disabled_passes = {}}),
               "0 tokens");
  EXPECT_ERROR(
      make_reference_backend(spec_, weights_, {.context = std::uint64_t{1} << 40, .disabled_passes = {}}),
      "context", "1099511627776");
}

TEST_F(Reference, UnknownBackend) {
  EXPECT_ERROR(make_backend("gpuu", spec_, weights_, {.disabled_passes = {}}), "no backend gpuu",
               "cpu, reference");
}

}  // namespace
}  // namespace doppler
