#include "engine/turns.h"

#include <chrono>

namespace doppler {

Result<Turns::Turn> Turns::take(const CancelToken* cancel) {
  const system::Lock lock(mutex_);
  const std::uintptr_t self = system::this_thread();
  if (owner_ == self) {
    return fail(
        ErrorCode::kUsage,
        "This call comes from a callback of the same engine, which is still computing, so that it could "
        "never begin. Make it after the callback's own call has returned.");
  }
  const auto place = waiting_.insert(waiting_.end(), self);
  // A token can be set in a signal handler, which must not notify a condition, so it is polled.
  constexpr std::chrono::milliseconds kAsk(10);
  while (owner_ || waiting_.begin() != place) {
    if (cancel != nullptr && cancel->cancelled()) {
      waiting_.erase(place);
      changed_.notify_all();
      return Turn();
    }
    if (cancel != nullptr)
      changed_.wait_for(mutex_, kAsk);
    else
      changed_.wait(mutex_);
  }
  waiting_.erase(place);
  owner_ = self;
  return Turn(this);
}

bool Turns::is_mine() const {
  const system::Lock lock(mutex_);
  return owner_ == system::this_thread();
}

bool Turns::has_waiting() const {
  const system::Lock lock(mutex_);
  return !waiting_.empty();
}

void Turns::pass() {
  const system::Lock lock(mutex_);
  if (waiting_.empty()) return;
  const std::uintptr_t self = system::this_thread();
  const auto place = waiting_.insert(waiting_.end(), self);
  owner_.reset();
  changed_.notify_all();
  while (owner_ || waiting_.begin() != place) changed_.wait(mutex_);
  waiting_.erase(place);
  owner_ = self;
}

void Turns::give_back() {
  const system::Lock lock(mutex_);
  owner_.reset();
  changed_.notify_all();
}

}  // namespace doppler
