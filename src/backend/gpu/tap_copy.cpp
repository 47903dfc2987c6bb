#include "backend/gpu/tap_copy.h"

#include <algorithm>

namespace doppler::gpu {

Status TapCopy::grow(std::uint64_t floats) {
  // Only when it is empty: has_room() said so otherwise.
  const std::uint64_t needed = std::max((used_ + floats) * 4, kMostBytes);
  if (memory_.bytes() < needed) {
    DOPPLER_ASSIGN(memory_, device_.make_read_back("taps", needed));
  }
  return {};
}

Status TapCopy::copy(Recorder& recorder, const ValueView& view, const TapEvent& event) {
  const std::uint64_t floats = std::uint64_t{event.rows} * event.width;
  DOPPLER_TRY(grow(floats));
  if (view.stride == event.width && view.offset == 0) {
    recorder.copy(view.buffer, 0, memory_, used_ * 4, floats * 4);
  } else {
    for (std::uint64_t row = 0; row < event.rows; ++row) {
      recorder.copy(view.buffer, (row * view.stride + view.offset) * 4, memory_,
                    (used_ + row * event.width) * 4, event.width * 4);
    }
  }
  events_.push_back({event, used_});
  used_ += floats;
  return {};
}

Status TapCopy::deliver(std::uint64_t submission, Tap& tap) {
  if (events_.empty()) return {};
  DOPPLER_TRY(device_.read(memory_, used_ * 4, submission, [&](std::span<const std::byte> bytes) {
    const auto* floats = reinterpret_cast<const float*>(bytes.data());
    for (Pending& pending : events_) {
      pending.event.data = std::span(floats + pending.first, pending.event.rows * pending.event.width);
      tap.on_stage(pending.event);
    }
  }));
  events_.clear();
  used_ = 0;
  return {};
}

}  // namespace doppler::gpu
