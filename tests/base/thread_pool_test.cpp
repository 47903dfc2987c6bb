#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <memory>

namespace doppler {
namespace {

class ThreadPoolOf : public ::testing::TestWithParam<std::size_t> {};

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

// The gap lets the workers fall asleep, so that waking them is tested as well; a chunk that takes longer than
// the others' spinning lets the caller fall asleep.
TEST_P(ThreadPoolOf, WakesSleepers) {
  ThreadPool pool(GetParam());
  std::atomic<std::uint64_t> total{0};
  const auto be_busy = [](int times) {
    volatile std::uint64_t busy = 0;
    for (int i = 0; i < times; ++i) busy = busy + 1;
  };
  for (int round = 0; round < 20; ++round) {
    be_busy(300'000);
    pool.parallel_chunks(64, 1, [&](std::size_t thread, std::size_t begin, std::size_t end) {
      if (thread != 0) be_busy(100'000);
      total += end - begin;
    });
  }
  EXPECT_EQ(total, 20 * 64u);
}

TEST_P(ThreadPoolOf, UsesNoMoreThreadsThanAsked) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (int round = 0; round < 300; ++round) {
    pool.use(static_cast<std::size_t>(round) % (pool.size() + 2));
    ASSERT_GE(pool.used(), 1u);
    ASSERT_LE(pool.used(), pool.size());
    std::atomic<std::uint64_t> visits{0};
    std::vector<std::atomic<int>> inside(pool.size());
    pool.parallel_chunks(100, 1, [&](std::size_t thread, std::size_t begin, std::size_t end) {
      EXPECT_LT(thread, pool.used());
      EXPECT_EQ(++inside[thread], 1) << "two chunks at a time on one thread";
      visits += end - begin;
      --inside[thread];
    });
    ASSERT_EQ(visits, 100u);
  }
}

TEST_P(ThreadPoolOf, CanBeDroppedAtOnce) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(GetParam());
    if (round % 2 == 0) pool.parallel_for(10, 1, [](std::size_t, std::size_t) {});
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, ::testing::Values(1, 2, 3, 4));

TEST(ThreadPool, ZeroMeansTheHardware) {
  EXPECT_GE(ThreadPool(0).size(), 1u);
}

}  // namespace
}  // namespace doppler
