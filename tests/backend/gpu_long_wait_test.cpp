#include <gtest/gtest.h>

#include "backend/gpu/long_wait.h"

namespace doppler::gpu {
namespace {

// Whether, and how often, something was told; who asks waits for it.
class Told {
 public:
  void tell() {
    const system::Lock lock(mutex_);
    ++times_;
    told_.notify_all();
  }
  void await(int times) {
    const system::Lock lock(mutex_);
    while (times_ < times) told_.wait(mutex_);
  }
  int times() {
    const system::Lock lock(mutex_);
    return times_;
  }

 private:
  system::Mutex mutex_;
  system::Condition told_;
  int times_ = 0;
};

TEST(LongWaits, AreToldOfOnceEach) {
  Told told;
  {
    LongWaits waits(std::chrono::milliseconds(1), [&] { told.tell(); });
    const int one = 0, other = 0, third = 0;
    waits.begin(&one);
    told.await(1);
    // Told of already, so that what is told of next is another.
    waits.begin(&other);
    told.await(2);
    waits.end(&other);
    waits.end(&one);
    waits.begin(&third);
    told.await(3);
  }
  EXPECT_EQ(told.times(), 3);
}

TEST(LongWaits, SayNothingOfThoseThatEnd) {
  Told told;
  {
    LongWaits waits(std::chrono::hours(1), [&] { told.tell(); });
    for (int i = 0; i < 1000; ++i) {
      waits.begin(&told);
      waits.end(&told);
    }
  }
  EXPECT_EQ(told.times(), 0);
}

}  // namespace
}  // namespace doppler::gpu
