// A measurement against an older one: what counts as worse, what is only told, and what is no baseline.
#include "bench/baseline.h"

#include "base/json.h"
#include "testing.h"

namespace doppler::bench {
namespace {

Json summary(double median, double spread) {
  return {{"median", median}, {"low", median * (1 - spread)}, {"high", median * (1 + spread)}};
}

Json measurement(double speed, double load, double spread = 0.01) {
  return {{"schema", 1},
          {"suite", "inference"},
          {"cpu", "A chip"},
          {"backend", "cpu"},
          {"threads", 2},
          {"device", nullptr},
          {"load_seconds", summary(load, spread)},
          {"prefill", {{"tokens", 512}, {"tokens_per_second", summary(10 * speed, spread)}}},
          {"decode",
           Json::array({{{"depth", 0}, {"sequences", 1}, {"tokens_per_second", summary(speed, spread)}}})},
          {"quality", {{"ok", true}, {"why", ""}, {"loss", 3.0}, {"ids", {1, 2}}}}};
}

Result<BaselineComparison> compared(const Json& old, const Json& now, double fail_over = 0.05) {
  return compare_with_baseline(old, now, fail_over);
}

TEST(Baseline, TheSameIsNoFailure) {
  ASSERT_OK_AND_ASSIGN(const BaselineComparison same, compared(measurement(100, 2), measurement(100, 2)));
  EXPECT_EQ(same.figures.size(), 3u);
  EXPECT_TRUE(same.failures.empty());
  EXPECT_TRUE(same.differences.empty());
}

TEST(Baseline, WorseIsWhatEvenTheIntervalsSay) {
  ASSERT_OK_AND_ASSIGN(const BaselineComparison slow, compared(measurement(100, 2), measurement(80, 2)));
  ASSERT_EQ(slow.failures.size(), 2u);  // decode and prefill
  EXPECT_NE(slow.failures[0].find("decode @0, tok/s: 20.0% worse"), std::string::npos) << slow.failures[0];
  EXPECT_EQ(slow.figures[0].change, Change::kWorse);
  // The same medians, measured so loosely that they may be equal.
  ASSERT_OK_AND_ASSIGN(const BaselineComparison loose,
                       compared(measurement(100, 2, 0.2), measurement(80, 2, 0.2)));
  EXPECT_TRUE(loose.failures.empty());
  EXPECT_EQ(loose.figures[0].change, Change::kPerhaps);
}

TEST(Baseline, SecondsAreWorseWhenTheyGrow) {
  ASSERT_OK_AND_ASSIGN(const BaselineComparison slow, compared(measurement(100, 2), measurement(100, 3)));
  ASSERT_EQ(slow.failures.size(), 1u);
  EXPECT_NE(slow.failures[0].find("load, s"), std::string::npos);
  EXPECT_NEAR(slow.figures.back().speed, 2.0 / 3, 1e-9);
  ASSERT_OK_AND_ASSIGN(const BaselineComparison fast, compared(measurement(100, 3), measurement(100, 2)));
  EXPECT_TRUE(fast.failures.empty());
}

TEST(Baseline, NothingFailsWithoutAShare) {
  ASSERT_OK_AND_ASSIGN(const BaselineComparison slow, compared(measurement(100, 2), measurement(10, 20), -1));
  EXPECT_TRUE(slow.failures.empty());
  EXPECT_NEAR(slow.figures[0].speed, 0.1, 1e-9);
}

TEST(Baseline, WrongAnswersFail) {
  Json wrong = measurement(100, 2);
  wrong["quality"] = {{"ok", false}, {"why", "its logits are not finite"}, {"loss", 0}};
  ASSERT_OK_AND_ASSIGN(const BaselineComparison broken, compared(measurement(100, 2), wrong));
  ASSERT_EQ(broken.failures.size(), 1u);
  EXPECT_EQ(broken.failures[0], "The answers are wrong: its logits are not finite.");
  Json worse = measurement(100, 2);
  worse["quality"]["loss"] = 3.1;
  ASSERT_OK_AND_ASSIGN(const BaselineComparison lost, compared(measurement(100, 2), worse));
  ASSERT_EQ(lost.failures.size(), 1u);
  EXPECT_EQ(lost.failures[0], "The loss grew from 3.0000 to 3.1000 nats a token.");
}

TEST(Baseline, AnotherMachineIsTold) {
  Json other = measurement(100, 2);
  other["cpu"] = "Another chip";
  other["threads"] = 4;
  ASSERT_OK_AND_ASSIGN(const BaselineComparison told, compared(measurement(100, 2), other));
  ASSERT_EQ(told.differences.size(), 2u);
  EXPECT_EQ(told.differences[0], "The processor is Another chip; the baseline's was A chip.");
  EXPECT_EQ(told.differences[1], "The number of threads is 4; the baseline's was 2.");
}

TEST(Baseline, WhatIsNoMeasurementIsRefused) {
  for (const char* text : {"{}", "[]", "3", R"({"suite": 3})"})
    EXPECT_ERROR(compared(Json::parse(text), measurement(1, 1)), "not what doppler bench --save writes");
  EXPECT_ERROR(compared({{"suite", "loading"}}, measurement(1, 1)), "suite loading", "of inference");
  // A measurement with members of the wrong types has nothing to compare.
  const Json odd = {
      {"suite", "inference"}, {"decode", 3}, {"prefill", Json::array()}, {"quality", "good"}, {"cpu", 7}};
  ASSERT_OK_AND_ASSIGN(const BaselineComparison none, compared(odd, measurement(1, 1)));
  EXPECT_TRUE(none.figures.empty());
}

TEST(Baseline, SharesAreReadAsPeopleWriteThem) {
  ASSERT_OK_AND_ASSIGN(const double percent, parse_share("5%"));
  EXPECT_DOUBLE_EQ(percent, 0.05);
  ASSERT_OK_AND_ASSIGN(const double plain, parse_share("0.1"));
  EXPECT_DOUBLE_EQ(plain, 0.1);
  for (const char* wrong : {"", "%", "five", "5", "-1%", "100%", "nan", "1e400"})
    EXPECT_ERROR(parse_share(wrong), "is not between 0% and 100%");
}

}  // namespace
}  // namespace doppler::bench
