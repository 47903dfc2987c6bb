#include "backend/gpu/values.h"

#include <algorithm>
#include <numeric>

namespace doppler::gpu {
namespace {

struct Place {
  std::size_t buffer = 0;
  std::uint32_t stride = 0, offset = 0;
};

struct Extent {
  std::uint64_t bytes = 0;
  std::size_t free_after = 0;  // the op that reads its content last
};

}  // namespace

bool keeps_its_input(const Op& op) {
  if (op.kind != OpKind::kSoftcap) return false;
  const auto& p = std::get<SoftcapParams>(op.params);
  return p.cap == 0 && p.scale == 1;
}

Result<ValueBuffers> ValueBuffers::create(Device& device, const Plan& plan, std::uint32_t rows,
                                          std::uint32_t wanted_rows, std::span<const std::size_t> times) {
  const auto time_of = [&](std::size_t op) { return times.empty() ? op : times[op]; };
  std::vector<std::size_t> last_read(plan.values.size(), 0);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (const ValueId id : plan.ops[i].inputs) last_read[id] = time_of(i);
    for (const ValueId id : plan.ops[i].outputs) last_read[id] = std::max(last_read[id], time_of(i));
  }
  last_read[plan.logits] = plan.ops.size();

  std::vector<Place> places(plan.values.size());
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const std::vector<ValueId>& outputs = plan.ops[i].outputs;
    if (keeps_its_input(plan.ops[i])) {
      const Place& place = places[outputs[0]] = places[plan.ops[i].inputs[0]];
      extents[place.buffer].free_after = std::max(extents[place.buffer].free_after, last_read[outputs[0]]);
      continue;
    }
    std::uint32_t width = 0;
    const std::size_t now = time_of(i);
    std::size_t last = now;
    for (const ValueId id : outputs) {
      places[id].offset = width;
      width += plan.values[id].width;
      last = std::max(last, last_read[id]);
    }
    const bool all = plan.values[outputs[0]].rows == Rows::kAll;
    const std::uint64_t bytes = std::uint64_t{width} * (all ? rows : wanted_rows) * 4;
    // The free buffer that has to grow least.
    std::size_t best = extents.size();
    std::uint64_t least = UINT64_MAX;
    for (std::size_t b = 0; b < extents.size(); ++b) {
      if (extents[b].free_after >= now) continue;
      const std::uint64_t cost = std::max(extents[b].bytes, bytes) - std::min(extents[b].bytes, bytes);
      if (cost < least) {
        least = cost;
        best = b;
      }
    }
    if (best == extents.size()) extents.emplace_back();
    extents[best] = {std::max(extents[best].bytes, bytes), last};
    for (const ValueId id : outputs) {
      places[id].buffer = best;
      places[id].stride = width;
    }
  }
  std::vector<Buffer> buffers;
  for (const Extent& extent : extents) {
    DOPPLER_ASSIGN(Buffer buffer, device.make_buffer("values", extent.bytes));
    buffers.push_back(std::move(buffer));
  }
  ValueBuffers made;
  for (std::size_t id = 0; id < plan.values.size(); ++id) {
    const Place& place = places[id];
    if (place.stride == 0) {  // emitted on demand
      made.views_.emplace_back();
      continue;
    }
    made.views_.push_back({.buffer = buffers[place.buffer],
                           .stride = place.stride,
                           .offset = place.offset,
                           .width = plan.values[id].width});
  }
  return made;
}

}  // namespace doppler::gpu
