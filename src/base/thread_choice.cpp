#include "base/thread_choice.h"

#include <algorithm>

namespace doppler {
namespace {

// A window is longer than several of the system's time slices (3 to 4 ms), and than a chance.
constexpr double kWindowSeconds = 0.04;
constexpr std::size_t kWindowSteps = 4;
// A caller that runs for less of the time waits for threads that do not run, or is itself kept from running.
// On a quiet machine it runs for 0.97 of it and more.
constexpr double kRuns = 0.9;
// What another number of threads must gain to be taken: less is noise.
constexpr double kGain = 0.97;
// Windows between two trials: more after each that gained nothing, so that trials cost about a step in 64.
constexpr std::size_t kLeastPause = 2, kMostPause = 16;
// Beyond a step's time, a trial may lose so many seconds until it ends early: a time slice.
constexpr double kSlice = 0.004;

}  // namespace

void ThreadChoice::note(double passed, double ran) {
  window_.passed += passed;
  window_.ran += ran;
  ++window_.steps;
  const auto steps = static_cast<double>(window_.steps);
  const bool lost = trial_ && window_.passed > (steps + 1) * step_ + kSlice;
  if (!lost && (window_.passed < kWindowSeconds || window_.steps < kWindowSteps)) return;
  const double step = window_.passed / steps;
  // Twice in a row: now and then any machine does something else for a moment.
  const bool waits = window_.ran < kRuns * window_.passed, contended = waits && waited_;
  waited_ = waits;
  window_ = {};
  if (trial_) return end_trial(step);
  step_ = step;
  if (until_ > 0) --until_;
  if (until_ == 0) begin_trial(contended);
}

void ThreadChoice::end_trial(double step) {
  const bool gained = step < kGain * step_;
  const bool at_the_end = *trial_ == 1 || *trial_ == most_;
  if (gained) threads_ = *trial_, step_ = step;
  reach_ = gained || at_the_end ? 1 : 2 * reach_;
  pause_ = gained ? kLeastPause : std::clamp(2 * pause_, kLeastPause, kMostPause);
  until_ = pause_;
  trial_.reset();
}

// Fewer threads only where something keeps these from running; more again wherever there are some.
void ThreadChoice::begin_trial(bool contended) {
  const bool fewer = contended && threads_ > 1, more = threads_ < most_;
  if (!fewer && !more) {
    pause_ = 0;
    return;
  }
  down_ = fewer && !(more && down_);  // by turns where both may help
  trial_ = down_ ? threads_ - std::min(reach_, threads_ - 1) : std::min(threads_ + reach_, most_);
}

}  // namespace doppler
