// LogitsTap: keeps the newest logits that a backend shows, so that a trace can show the logits behind a token
// that the backend itself has chosen.
#pragma once

#include <span>
#include <vector>

#include "backend/tap.h"

namespace doppler {

class LogitsTap final : public Tap {
 public:
  // `stage`: the logits that are sampled from.
  explicit LogitsTap(Stage stage) : stage_(stage) {}

  bool wants(Stage stage, int /*layer*/) const override { return stage == stage_; }
  void on_stage(const TapEvent& event) override {
    if (event.rows > 0)
      newest_.assign(event.data.end() - static_cast<std::ptrdiff_t>(event.width), event.data.end());
  }

  std::span<const float> newest() const { return newest_; }

 private:
  const Stage stage_;
  std::vector<float> newest_;
};

}  // namespace doppler
