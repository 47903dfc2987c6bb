// Several taps where a backend takes one.
#pragma once

#include <vector>

#include "backend/tap.h"

namespace doppler {

class TapList final : public Tap {
 public:
  // A null tap is left out. The taps must outlive the list.
  TapList& add(Tap* tap);
  // The tap to give to a backend: null if the list is empty, so that the backend stores nothing for it.
  Tap* get();

  bool wants(Stage stage, int layer) const override;
  // The smallest range that holds all columns that any of the taps needs.
  Columns columns(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

 private:
  std::vector<Tap*> taps_;
};

}  // namespace doppler
