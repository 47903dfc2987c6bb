#include "bench/statistics.h"

#include "testing.h"

namespace doppler::bench {
namespace {

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTwoMiddles) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_EQ(median(std::vector<double>{}), 0);
}

TEST(Statistics, RanksOfTheIntervalAreThoseOfTheSignTest) {
  // The table in any book on order statistics: k of n at 95%.
  EXPECT_EQ(interval_rank(5), 0u);
  EXPECT_EQ(interval_rank(6), 1u);
  EXPECT_EQ(interval_rank(8), 1u);
  EXPECT_EQ(interval_rank(9), 2u);
  EXPECT_EQ(interval_rank(12), 3u);
  EXPECT_EQ(interval_rank(20), 6u);
  EXPECT_EQ(interval_rank(25), 8u);
  EXPECT_EQ(interval_rank(100), 40u);
}

TEST(Statistics, OneBadValueMovesNeitherMedianNorInterval) {
  std::vector<double> values = {10, 11, 12, 13, 14, 15, 16, 17, 18};
  const Summary clean = summarise(values);
  values.back() = 1000;
  const Summary disturbed = summarise(values);
  EXPECT_EQ(clean.median, 14);
  EXPECT_EQ(clean.low, 11);
  EXPECT_EQ(clean.high, 17);
  EXPECT_EQ(disturbed.median, clean.median);
  EXPECT_EQ(disturbed.high, clean.high);
  EXPECT_EQ(disturbed.max, 1000);
}

TEST(Statistics, FewValuesGiveTheirWholeRange) {
  const Summary summary = summarise(std::vector<double>{2, 8, 5});
  EXPECT_EQ(summary.low, 2);
  EXPECT_EQ(summary.high, 8);
  EXPECT_EQ(summary.median, 5);
  EXPECT_EQ(summary.count, 3u);
}

TEST(Statistics, RatiosArePairedByRound) {
  // The machine was half as fast in the second round: the ratio does not notice.
  const Summary ratio = summarise_ratios(std::vector<double>{20, 10, 20}, std::vector<double>{10, 5, 10});
  EXPECT_EQ(ratio.median, 2);
  EXPECT_EQ(ratio.min, 2);
  EXPECT_EQ(ratio.max, 2);
}

TEST(Statistics, PercentilesAreTheNearestRanks) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  EXPECT_EQ(percentiles(values).p50, 100);
  EXPECT_EQ(percentiles(values).p99, 198);
  const std::vector<double> one = {7};
  EXPECT_EQ(percentiles(one).p50, 7);
  EXPECT_EQ(percentiles(one).p99, 7);
  EXPECT_EQ(percentiles({}).p99, 0);
}

TEST(Statistics, ASummaryKeepsTheRunsInTheirOrder) {
  EXPECT_EQ(summarise(std::vector<double>{3, 1, 2}).runs, (std::vector<double>{3, 1, 2}));
}

TEST(Statistics, GroupsShowTheirLargestValue) {
  const std::vector<double> values = {1, 5, 2, 9, 3, 4, 7};
  EXPECT_EQ(largest_of_groups(values, 100), values);
  EXPECT_EQ(largest_of_groups(values, 3), (std::vector<double>{5, 9, 7}));
  EXPECT_TRUE(largest_of_groups({}, 3).empty());
}

}  // namespace
}  // namespace doppler::bench
