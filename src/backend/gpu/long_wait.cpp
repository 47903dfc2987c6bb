#include "backend/gpu/long_wait.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace doppler::gpu {

LongWaits::LongWaits(std::chrono::milliseconds limit, std::function<void()> tell)
    : limit_(limit), tell_(std::move(tell)) {
  if (auto started = system::Thread::start([this] { watch(); })) thread_.emplace(std::move(*started));
}

LongWaits::~LongWaits() {
  {
    const system::Lock lock(mutex_);
    stops_ = true;
  }
  ends_.notify_all();
}

void LongWaits::begin(const void* wait) {
  const system::Lock lock(mutex_);
  waiting_[wait] = {std::chrono::steady_clock::now()};
}

void LongWaits::end(const void* wait) {
  const system::Lock lock(mutex_);
  waiting_.erase(wait);
}

void LongWaits::watch() {
  const system::Lock lock(mutex_);
  while (!stops_) {
    // Often enough that a wait is told of when it has lasted at most a quarter longer.
    ends_.wait_for(mutex_, std::max(limit_ / 4, std::chrono::milliseconds(1)));
    const auto now = std::chrono::steady_clock::now();
    for (auto& [wait, waiting] : waiting_) {
      if (waiting.is_told || now - waiting.since < limit_) continue;
      waiting.is_told = true;
      tell_();
    }
  }
}

namespace {

LongWaits& long_waits() {
  // Longer than any step takes on a GPU, and than most do on a software adapter.
  static constexpr std::chrono::seconds kLong(30);
  // Made for the first wait, and never destroyed: a device that ends with the process still waits.
  static LongWaits& waits = *new LongWaits(kLong, [] {
    log(Level::kWarn, "Gpu",
        "The GPU has not done for {} seconds what it was given. A driver that has stopped it need not tell "
        "(the system's log may: NVIDIA's as \"Xid\"). If this goes on, end the program and try --backend "
        "cpu.",
        kLong.count());
  });
  return waits;
}

}  // namespace

LongWait::LongWait() {
  long_waits().begin(this);
}

LongWait::~LongWait() {
  long_waits().end(this);
}

}  // namespace doppler::gpu
