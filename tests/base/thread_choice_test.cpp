// The number of threads follows what steps take; on a quiet machine nothing is tried.
#include "base/thread_choice.h"

#include <gtest/gtest.h>

#include <functional>

namespace doppler {
namespace {

struct Machine {
  std::function<double(std::size_t threads)> step;  // seconds of a step
  double runs = 1;       // share of it in which the caller runs, where threads are too many:
  std::size_t free = 0;  // more than these
};

// Runs for so many seconds of the machine's time; returns those that more than the best number of threads
// cost.
double lost_seconds(ThreadChoice& choice, const Machine& machine, double seconds, double best) {
  double lost = 0;
  for (double now = 0; now < seconds;) {
    const double step = machine.step(choice.threads());
    choice.note(step, choice.threads() > machine.free ? step * machine.runs : step);
    lost += step - best;
    now += step;
  }
  return lost;
}

TEST(ThreadChoice, TriesNothingOnAQuietMachine) {
  for (const std::size_t most : {1, 2, 16}) {
    ThreadChoice choice(most);
    for (int i = 0; i < 10000; ++i) {
      EXPECT_EQ(choice.threads(), most);
      // One step in 50 takes long, as they do.
      choice.note(i % 50 == 0 ? 0.03 : 0.01, 0.0098);
    }
  }
}

TEST(ThreadChoice, TakesFewerWhereThatIsFaster) {
  // Two threads at a third of one's speed, short steps and long ones.
  for (const double one : {0.001, 0.01, 0.1}) {
    ThreadChoice choice(2);
    const Machine busy{[&](std::size_t threads) { return threads == 2 ? 3 * one : one; }, 0.5};
    (void)lost_seconds(choice, busy, 5, one);
    EXPECT_LT(lost_seconds(choice, busy, 20, one), 20 * 0.06) << "trials of two threads cost little";
  }
}

TEST(ThreadChoice, KeepsThemWhereFewerAreSlower) {
  ThreadChoice choice(2);
  const Machine busy{[](std::size_t threads) { return threads == 2 ? 0.008 : 0.01; }, 0.7};
  EXPECT_LT(lost_seconds(choice, busy, 20, 0.008), 20 * 0.05);
}

TEST(ThreadChoice, TakesThemAllAgainAfterwards) {
  ThreadChoice choice(2);
  const Machine busy{[](std::size_t threads) { return threads == 2 ? 0.03 : 0.01; }, 0.5};
  const Machine quiet{[](std::size_t threads) { return threads == 2 ? 0.005 : 0.01; }, 0.99};
  (void)lost_seconds(choice, busy, 5, 0.01);
  EXPECT_EQ(choice.threads(), 1u);
  (void)lost_seconds(choice, quiet, 1.5, 0.005);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(choice.threads(), 2u);
    choice.note(0.005, 0.005);
  }
}

TEST(ThreadChoice, LeavesABusyProcessorOfManyAlone) {
  // 16 processors, of which two are busy: one thread too many halves the speed.
  ThreadChoice choice(16);
  const auto step = [](std::size_t threads) {
    return (threads > 14 ? 0.32 : 0.16) / static_cast<double>(threads);
  };
  const Machine busy{step, 0.5, 14};
  (void)lost_seconds(choice, busy, 5, 0.16 / 14);
  EXPECT_LT(lost_seconds(choice, busy, 20, 0.16 / 14), 20 * 0.05);
}

}  // namespace
}  // namespace doppler
