// LogitsTap: keeps the newest logits that a backend shows, so that a trace can tell what a token was chosen
// from where the backend chooses it.
#pragma once

#include <span>
#include <vector>

#include "backend/tap.h"

namespace doppler {

class LogitsTap final : public Tap {
 public:
  // `stage` is the one that is sampled from; `besides` (may be null) sees what it wants, too.
  LogitsTap(Stage stage, Tap* besides) : stage_(stage), besides_(besides) {}

  bool wants(Stage stage, int layer) const override {
    return stage == stage_ || (besides_ != nullptr && besides_->wants(stage, layer));
  }
  void on_stage(const TapEvent& event) override {
    if (event.stage == stage_ && event.rows > 0)
      newest_.assign(event.data.end() - static_cast<std::ptrdiff_t>(event.width), event.data.end());
    if (besides_ != nullptr && besides_->wants(event.stage, event.layer)) besides_->on_stage(event);
  }

  std::span<const float> newest() const { return newest_; }

 private:
  const Stage stage_;
  Tap* const besides_;
  std::vector<float> newest_;
};

}  // namespace doppler
