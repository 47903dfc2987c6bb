// ThreadChoice: how many of a pool's threads compute steps that follow each other, while other processes take
// processors away. A thread that the system does not run keeps the others waiting at the end of every loop,
// so that fewer threads may be faster; how many is tried out, never on a machine that has nothing else to do.
#pragma once

#include <cstddef>
#include <optional>

namespace doppler {

class ThreadChoice {
 public:
  explicit ThreadChoice(std::size_t most) : most_(most), threads_(most) {}

  // For the next step.
  std::size_t threads() const { return trial_.value_or(threads_); }
  // Says what that step took: the time that passed, and how long of it the calling thread ran. Steps must be
  // alike, as the single tokens of a sequence are. In seconds.
  void note(double passed, double ran);

 private:
  struct Window {  // some steps on the same number of threads
    double passed = 0, ran = 0;
    std::size_t steps = 0;
  };
  void end_trial(double step);
  void begin_trial(bool contended);

  std::size_t most_, threads_;
  std::optional<std::size_t> trial_;  // another number, for one window
  Window window_;
  bool waited_ = false;                // in the window before, the caller was often kept from running
  double step_ = 0;                    // seconds of a step on threads_
  std::size_t pause_ = 0, until_ = 0;  // windows between trials; windows until the next
  bool down_ = false;                  // the direction of the last trial
  // How many threads more or fewer are tried next: one of several busy processors keeps all waiting as well.
  std::size_t reach_ = 1;
};

}  // namespace doppler
