// Several taps where a backend takes one, and what all of them need: which token a row of an event is.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "backend/tap.h"

namespace doppler {

class TapList final : public Tap {
 public:
  // Null is left out. The taps must outlive the list.
  TapList& add(Tap* tap);
  // What to hand to a backend: null if the list is empty, so that nothing is looked at.
  Tap* get();

  bool wants(Stage stage, int layer) const override;
  // All that any of them needs, as one stretch.
  Columns columns(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

 private:
  std::vector<Tap*> taps_;
};

// Rows of an event to tokens of its step. Stages up to the last layer have a row for each token; the ones
// after it have rows for the tokens whose logits are wanted, and a backend may show those in portions, one
// event after the other.
class RowTokens {
 public:
  // The index in event.input of each of the event's rows. To be called for every event of such a stage, or of
  // none. Valid until the next call.
  const std::vector<std::size_t>& of(const TapEvent& event);

 private:
  std::array<std::size_t, static_cast<std::size_t>(Stage::kCount)>
      shown_{};  // of the wanted rows of this step
  std::vector<std::size_t> tokens_;
};

// True for stages that have rows for wanted logits only.
bool only_wanted_rows(Stage stage);

}  // namespace doppler
