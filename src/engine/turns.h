// Turns: a lock that serves waiting calls in the order in which they came, so that one at a time computes.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "base/result.h"
#include "doppler/doppler.h"
#include "system/threads.h"

namespace doppler {

class Turns {
 public:
  // Held until it is destroyed, on the thread that took it.
  class Turn {
   public:
    Turn() = default;
    explicit Turn(Turns* turns) : turns_(turns) {}
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    explicit operator bool() const { return turns_ != nullptr; }
    ~Turn() {
      if (turns_ != nullptr) turns_->give_back();
    }

   private:
    Turns* turns_ = nullptr;
  };

  // Waits for all earlier calls. `cancel` (may be null) ends the waiting; the turn then holds nothing, so the
  // caller must ask the token before computing. Errors: kUsage if this thread has the turn already: it is
  // inside a callback.
  Result<Turn> take(const CancelToken* cancel = nullptr);

  // Whether this thread has the turn.
  bool is_mine() const;
  // Whether calls wait.
  bool has_waiting() const;
  // For whoever has the turn: lets all calls that wait have theirs first.
  void pass();

 private:
  void give_back();
  mutable system::Mutex mutex_;
  system::Condition changed_;
  std::list<std::uintptr_t> waiting_;  // threads, as system::this_thread() numbers them
  std::optional<std::uintptr_t> owner_;
};

}  // namespace doppler
