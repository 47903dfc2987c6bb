// HeldTap: keeps the events of tokens that a backend has generated ahead, until the caller has taken the
// tokens. So a tap sees exactly the tokens that a sequence keeps, on every backend, and none that come after
// its stop.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace doppler {

class HeldTap final : public Tap {
 public:
  explicit HeldTap(Tap& to) : to_(to) {}

  bool wants(Stage stage, int layer) const override { return to_.wants(stage, layer); }
  Columns columns(Stage stage, int layer) const override { return to_.columns(stage, layer); }
  void on_stage(const TapEvent& event) override;

  // Passes on the events of the token at `position`, and drops those of earlier positions.
  void release(std::int64_t position);

 private:
  struct Held {
    TapEvent event;
    std::vector<float> data;
    std::shared_ptr<const StepInput> input;  // the events of a step share one
  };
  Tap& to_;
  std::deque<Held> held_;
};

}  // namespace doppler
