#include "backend/gpu/tap_copy.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace doppler::gpu {

Status TapCopy::grow(std::uint64_t floats) {
  // Only when it is empty: has_room() said so otherwise.
  const std::uint64_t needed = std::max((used_ + floats) * 4, kMostBytes);
  if (memory_.bytes() < needed) {
    DOPPLER_ASSIGN(memory_, device_.make_read_back("taps", needed));
  }
  return {};
}

Status TapCopy::copy_rows(Recorder& recorder, std::span<const Row> rows) {
  // Slices are padded to 256 bytes: what lies between two of them is copied along.
  constexpr std::uint64_t kGap = 256 / 4;
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) { return std::pair(rows[i].view.buffer.raw(), rows[i].view.offset); };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  std::vector<std::uint64_t> first(rows.size());
  for (std::size_t begin = 0; begin < order.size();) {
    const ValueView& from = rows[order[begin]].view;
    std::uint64_t stop = from.offset;
    std::size_t end = begin;
    for (; end < order.size(); ++end) {
      const ValueView& view = rows[order[end]].view;
      if (view.buffer.raw() != from.buffer.raw() || view.offset > stop + kGap) break;
      first[order[end]] = used_ + view.offset - from.offset;
      stop = std::max(stop, std::uint64_t{view.offset} + view.width);
    }
    const std::uint64_t floats = stop - from.offset;
    DOPPLER_TRY(grow(floats));
    recorder.copy(from.buffer, std::uint64_t{from.offset} * 4, memory_, used_ * 4, floats * 4);
    used_ += floats;
    begin = end;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) events_.push_back({rows[i].event, first[i]});
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
