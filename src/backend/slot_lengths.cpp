#include "backend/slot_lengths.h"

#include <algorithm>

#include "backend/cache_extent.h"

namespace doppler {

SlotLengths::SlotLengths(const std::vector<KvLayer>& layers, std::uint64_t context, std::uint32_t slots,
                         std::uint32_t reach, PageTable& pages)
    : recurrent_(is_recurrent(layers)), pages_(&pages), lengths_(slots), written_(slots), filled_(slots) {
  for (const KvLayer& layer : layers) {
    if (layer.window == 0) continue;
    const Ring ring{layer.window, kv_capacity(layer, context, reach)};
    const auto same = [&](const Ring& other) { return other.window == ring.window; };
    if (std::none_of(rings_.begin(), rings_.end(), same)) rings_.push_back(ring);
  }
}

void SlotLengths::grow(std::size_t slot) {
  ++lengths_[slot];
  written_[slot] = std::max(written_[slot], lengths_[slot]);
}

void SlotLengths::set(std::size_t slot, std::uint64_t length) {
  lengths_[slot] = length;
  pages_->cut(static_cast<std::uint32_t>(slot), length);
}

void SlotLengths::clear(std::size_t slot) {
  set(slot, 0);
  written_[slot] = filled_[slot] = 0;
}

void SlotLengths::keep(std::size_t slot, std::uint64_t length, std::uint64_t written) {
  set(slot, length);
  written_[slot] = std::max({written_[slot], length, written});
}

void SlotLengths::fill(std::size_t slot, std::uint64_t length) {
  set(slot, length);
  written_[slot] = length;
  const bool all =
      std::all_of(rings_.begin(), rings_.end(), [&](const Ring& ring) { return length < ring.window; });
  filled_[slot] = all ? 0 : length;
}

bool SlotLengths::can_cut(std::size_t slot, std::uint64_t length) const {
  if (recurrent_ && length != 0 && length != lengths_[slot]) return false;
  return can_cut_rings(slot, length);
}

bool SlotLengths::can_cut_rings(std::size_t slot, std::uint64_t length) const {
  if (length > lengths_[slot]) return false;
  if (length == 0) return true;
  if (length < filled_[slot]) return false;
  return std::all_of(rings_.begin(), rings_.end(), [&](const Ring& ring) {
    const std::uint64_t oldest = length + 1 > ring.window ? length + 1 - ring.window : 0;
    return oldest + ring.capacity >= written_[slot];
  });
}

}  // namespace doppler
