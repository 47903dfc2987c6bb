#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <memory>

namespace doppler {
namespace {

class ThreadPoolOf : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ThreadPoolOf, RunsTheBodyOnceOnEachThread) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (int round = 0; round < 500; ++round) {
    std::vector<std::atomic<int>> calls(pool.size());
    pool.run([&](std::size_t thread) { ++calls[thread]; });
    for (const auto& count : calls) ASSERT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolOf, VisitsEveryIndexExactlyOnce) {
  ThreadPool pool(GetParam());
  for (std::size_t round = 0; round < 400; ++round) {
    const std::size_t count = (round * round * 7) % 1009, grain = round % 37;
    std::vector<std::atomic<int>> visits(count);
    pool.parallel_for(count, grain, [&](std::size_t begin, std::size_t end) {
      EXPECT_LT(begin, end);
      if (grain > 1) {
        EXPECT_EQ(begin % grain, 0u);
      }
      if (end != count && grain > 1) {
        EXPECT_EQ((end - begin) % grain, 0u);
      }
      for (std::size_t i = begin; i < end; ++i) ++visits[i];
    });
    for (const auto& visit : visits) ASSERT_EQ(visit, 1) << "count " << count << " grain " << grain;
  }
}

// The gap lets the workers fall asleep, so that waking them is tested as well.
TEST_P(ThreadPoolOf, WakesSleepers) {
  ThreadPool pool(GetParam());
  std::atomic<std::uint64_t> total{0};
  for (int round = 0; round < 20; ++round) {
    volatile std::uint64_t busy = 0;
    for (int i = 0; i < 300'000; ++i) busy = busy + 1;
    pool.run([&](std::size_t thread) { total += thread + 1; });
  }
  EXPECT_EQ(total, 20 * pool.size() * (pool.size() + 1) / 2);
}

TEST_P(ThreadPoolOf, CanBeDroppedAtOnce) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(GetParam());
    if (round % 2 == 0) pool.run([](std::size_t) {});
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, ::testing::Values(1, 2, 3, 4));

TEST(ThreadPool, ZeroMeansTheHardware) {
  EXPECT_GE(ThreadPool(0).size(), 1u);
}

}  // namespace
}  // namespace doppler
