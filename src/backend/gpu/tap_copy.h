// TapCopy: the stages that a tap wants of a step of many tokens, copied in the submission that computes them
// and handed over when that is done.
#pragma once

#include <functional>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/values.h"
#include "backend/tap.h"

namespace doppler::gpu {

class TapCopy {
 public:
  explicit TapCopy(Device& device) : device_(device) {}

  // Whether `floats` more fit; if not, deliver first.
  bool has_room(std::uint64_t floats) const { return (used_ + floats) * 4 <= kMostBytes; }
  // Records the copy of the view's first `rows` rows; `event` is handed over with them.
  Status copy(Recorder& recorder, const ValueView& view, const TapEvent& event);
  // Reads what the submission copied and calls the tap in order.
  Status deliver(std::uint64_t submission, Tap& tap);
  bool empty() const { return events_.empty(); }

 private:
  // A step of a large model computes hundreds of megabytes of stages; they come in portions.
  static constexpr std::uint64_t kMostBytes = 64 << 20;
  struct Pending {
    TapEvent event;
    std::uint64_t first = 0;  // its first float in memory_
  };
  Status grow(std::uint64_t floats);
  Device& device_;
  Buffer memory_;
  std::uint64_t used_ = 0;
  std::vector<Pending> events_;
};

}  // namespace doppler::gpu
