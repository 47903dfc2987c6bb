// Tap: how anything outside a backend sees inside it. A tap is called after the op that computes a stage, on
// the same buffers, in the same execution; it can read but not change, so results are the same with and
// without it.
#pragma once

#include <cstdint>
#include <span>

#include "plan/stage.h"

namespace doppler {

struct StepInput;

struct TapEvent {
  Stage stage = Stage::kNone;
  int layer = -1;
  std::span<const float> data;  // [rows, heads, width / heads], row-major, exactly the stage's shape
  std::size_t rows = 0;         // tokens of the step, or only those that want logits
  std::size_t width = 0;
  std::size_t heads = 1;
  const StepInput* input = nullptr;
};

class Tap {
 public:
  virtual ~Tap() = default;
  // Asked before each op; stages that nobody wants cost nothing.
  virtual bool wants(Stage stage, int layer) const = 0;
  virtual void on_stage(const TapEvent& event) = 0;
};

}  // namespace doppler
