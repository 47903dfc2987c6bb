// Routing on numbers made by hand, each of which a person can check.
#include "backend/routing.h"

#include <cmath>

#include "testing.h"

namespace doppler {
namespace {

struct Routed {
  std::vector<float> ids, weights;
};

Routed route(const RouterSpec& router, const std::vector<float>& logits,
             const std::vector<float>& correction = {}, const std::vector<float>& scales = {}) {
  Routed routed{std::vector<float>(router.top_k), std::vector<float>(router.top_k)};
  choose_experts(router, logits, correction, routed.ids);
  weigh_experts(router, logits, routed.ids, scales, routed.weights);
  return routed;
}

void expect_weights(const Routed& routed, const std::vector<double>& expected) {
  ASSERT_EQ(routed.weights.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(routed.weights[i], expected[i], 1e-6) << i;
}

// Shares 1/8, 4/8, 2/8, 1/8.
const std::vector<float> kLogits = {0, std::log(4.0f), std::log(2.0f), 0};

TEST(Routing, SoftmaxOverAllLeavesSharesOfAll) {
  const Routed routed = route({.top_k = 2}, kLogits);
  EXPECT_EQ(routed.ids, (std::vector<float>{1, 2}));
  expect_weights(routed, {0.5, 0.25});
}

TEST(Routing, NormalisedSharesAddToOneAndThenAreScaled) {
  expect_weights(route({.top_k = 2, .normalise = true}, kLogits), {2.0 / 3, 1.0 / 3});
  expect_weights(route({.top_k = 2, .normalise = true, .scale = 1.5}, kLogits), {1, 0.5});
  expect_weights(route({.top_k = 2, .normalise = true, .norm_eps = 0.25}, kLogits), {0.5, 0.25});
  expect_weights(route({.top_k = 2, .normalise = true, .norm_floor = 1.5}, kLogits), {1.0 / 3, 0.5 / 3});
}

TEST(Routing, SoftmaxOfTheChosenIsOverTheseAlone) {
  expect_weights(route({.score = RouterScore::kSoftmaxOfChosen, .top_k = 2}, kLogits), {2.0 / 3, 1.0 / 3});
}

TEST(Routing, ACorrectionChoosesAndDoesNotWeigh) {
  // Sigmoids 1/2, 4/5, 2/3, 1/2; the correction puts expert 3 first.
  const RouterSpec router{.score = RouterScore::kSigmoid, .top_k = 2, .correction = true};
  const Routed routed = route(router, kLogits, {0, 0, 0, 1});
  EXPECT_EQ(routed.ids, (std::vector<float>{3, 1}));
  expect_weights(routed, {0.5, 0.8});
}

TEST(Routing, GroupsAreKeptByTheirBestOrTheSumOfTheirTwoBest) {
  // Groups {3, 0}, {2, 2}, {1, 1}: the first has the best expert, the second the best two.
  const std::vector<float> logits = {3, 0, 2, 2, 1, 1};
  RouterSpec router{.score = RouterScore::kSoftmaxOfChosen, .top_k = 2, .groups = 3, .kept_groups = 1};
  router.group_best = 1;
  EXPECT_EQ(route(router, logits).ids, (std::vector<float>{0, 1}));
  router.group_best = 2;
  EXPECT_EQ(route(router, logits).ids, (std::vector<float>{2, 3}));
  router.kept_groups = 2;
  EXPECT_EQ(route(router, logits).ids, (std::vector<float>{0, 2}));
}

TEST(Routing, EachExpertMayHaveAScale) {
  expect_weights(route({.top_k = 2, .expert_scale = true}, kLogits, {}, {9, 2, 4, 9}), {1, 1});
}

TEST(Routing, TheSparseMixerWeighsAmongThoseNearTheBest) {
  // Of 2, 1.9 and -2 with a band of 0.2 times the larger size, only the first two are near 2, and of the rest
  // only 1.9 is near itself.
  const Routed routed = route({.score = RouterScore::kSparseMixer, .top_k = 2, .jitter = 0.1}, {1.9f, 2, -2});
  EXPECT_EQ(routed.ids, (std::vector<float>{1, 0}));
  expect_weights(routed, {1 / (1 + std::exp(-0.1)), 1});
}

TEST(Routing, OfEqualsTheFirstIsChosen) {
  EXPECT_EQ(route({.top_k = 3}, {1, 1, 1, 1}).ids, (std::vector<float>{0, 1, 2}));
}

TEST(Routing, LogitsThatAreNotNumbersChooseExpertsThatExist) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routed routed = route({.top_k = 3}, {nan, nan, nan, nan});
  for (const float id : routed.ids) EXPECT_TRUE(id >= 0 && id < 4);
  EXPECT_NE(routed.ids[0], routed.ids[1]);
  for (const float weight : routed.weights) EXPECT_TRUE(std::isnan(weight));
}

TEST(Routing, IdsThatNoExpertHasCountNothing) {
  std::vector<float> weights(2);
  weigh_experts({.top_k = 2}, kLogits, std::vector<float>{1, 7}, {}, weights);
  EXPECT_EQ(weights[1], 0);
}

}  // namespace
}  // namespace doppler
