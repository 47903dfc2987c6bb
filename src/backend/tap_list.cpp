#include "backend/tap_list.h"

#include <algorithm>

namespace doppler {

TapList& TapList::add(Tap* tap) {
  if (tap != nullptr) taps_.push_back(tap);
  return *this;
}

Tap* TapList::get() {
  if (taps_.empty()) return nullptr;
  return taps_.size() == 1 ? taps_.front() : this;
}

bool TapList::wants(Stage stage, int layer) const {
  for (const Tap* tap : taps_) {
    if (tap->wants(stage, layer)) return true;
  }
  return false;
}

Columns TapList::columns(Stage stage, int layer) const {
  std::size_t first = SIZE_MAX, end = 0;
  for (const Tap* tap : taps_) {
    if (!tap->wants(stage, layer)) continue;
    const Columns part = tap->columns(stage, layer);
    first = std::min(first, part.first);
    end = std::max(end, part.first + std::min(part.count, SIZE_MAX - part.first));
  }
  return first < end ? Columns{first, end - first} : Columns{};
}

void TapList::on_stage(const TapEvent& event) {
  for (Tap* tap : taps_) {
    if (tap->wants(event.stage, event.layer)) tap->on_stage(event);
  }
}

}  // namespace doppler
