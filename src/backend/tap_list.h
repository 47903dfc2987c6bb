// Several taps where a backend takes one.
#pragma once

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

}  // namespace doppler
