#include "diagnosis/look/tap_list.h"

#include <algorithm>

#include "backend/backend.h"

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

bool only_wanted_rows(Stage stage) {
  return stage >= Stage::kPreFinalNorm && stage <= Stage::kLogitsFinal;
}

const std::vector<std::size_t>& RowTokens::of(const TapEvent& event) {
  tokens_.clear();
  if (!only_wanted_rows(event.stage)) {
    for (std::size_t row = 0; row < event.rows; ++row) tokens_.push_back(row);
    return tokens_;
  }
  std::size_t wanted = 0;
  std::size_t& shown = shown_[static_cast<std::size_t>(event.stage)];
  for (std::size_t token = 0; token < event.input->size(); ++token) {
    if (event.input->wants_logits[token] == 0) continue;
    if (wanted >= shown && wanted < shown + event.rows) tokens_.push_back(token);
    ++wanted;
  }
  shown += event.rows;
  if (shown >= wanted) shown = 0;  // the next event of this stage belongs to another step
  return tokens_;
}

}  // namespace doppler
