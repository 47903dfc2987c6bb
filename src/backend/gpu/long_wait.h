// Says in a line when somebody has waited long for a GPU. A driver that has stopped a GPU need not tell: with
// NVIDIA's 580.159.04 whoever waits then waits forever, and wgpu has no wait that ends before.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "system/threads.h"

namespace doppler::gpu {

// Waits that are under way, and a thread that looks at them now and then.
class LongWaits {
 public:
  // `tell` is called once for a wait that has lasted `limit`, from that thread.
  LongWaits(std::chrono::milliseconds limit, std::function<void()> tell);
  ~LongWaits();
  void begin(const void* wait);
  void end(const void* wait);

 private:
  struct Waiting {
    std::chrono::steady_clock::time_point since;
    bool is_told = false;
  };
  void watch();
  const std::chrono::milliseconds limit_;
  const std::function<void()> tell_;
  system::Mutex mutex_;
  system::Condition ends_;
  std::map<const void*, Waiting> waiting_;
  bool stops_ = false;
  std::optional<system::Thread> thread_;  // none where the system refuses it
};

// One of them, as long as it lives, with a warning in the log.
class LongWait {
 public:
  LongWait();
  ~LongWait();
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;
};

}  // namespace doppler::gpu
