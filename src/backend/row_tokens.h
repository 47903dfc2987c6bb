// RowTokens: which token a row of a tap's event is.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "backend/tap.h"

namespace doppler {

// Rows of an event to tokens of its step. Stages up to the last layer have a row for each token; the ones
// after it have rows for the tokens whose logits are wanted, and a backend may show those in portions, one
// event after the other.
class RowTokens {
 public:
  // The index in event.input of each of the event's rows. To be called for every event of such a stage, or of
  // none. Valid until the next call.
  const std::vector<std::size_t>& of(const TapEvent& event);

 private:
  // By stage: the wanted rows of this step that earlier events have shown.
  std::array<std::size_t, static_cast<std::size_t>(Stage::kCount)> shown_{};
  std::vector<std::size_t> tokens_;
};

// True for stages that have rows for wanted logits only.
bool only_wanted_rows(Stage stage);

}  // namespace doppler
