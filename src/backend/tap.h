// Tap: how code outside a backend sees the values inside it. A tap is called after the op that computes a
// stage, on the same buffers, in the same execution; it can read but not change, so results are the same with
// and without it.
#pragma once

#include <cstdint>
#include <span>

#include "model/stage.h"

namespace doppler {

struct StepInput;

struct TapEvent {
  Stage stage = Stage::kNone;
  int layer = -1;
  // [rows, heads, width / heads], row-major, exactly the stage's shape; where the tap asked for some columns
  // only, a backend may show those alone: [rows, shown()], beginning at first_column.
  std::span<const float> data;
  std::size_t rows = 0;  // tokens of the step, or only those that want logits (row_tokens.h)
  std::size_t width = 0;
  std::size_t heads = 1;
  const StepInput* input = nullptr;
  std::size_t first_column = 0;
  // Where the rows of the tokens that want logits are shown in portions: those of them before this event's.
  std::size_t first_row = 0;
  std::size_t shown() const { return rows == 0 ? 0 : data.size() / rows; }  // columns of a row
};

// Columns [first, first + count) of a stage's rows, as far as the stage has them.
struct Columns {
  std::size_t first = 0, count = SIZE_MAX;
  bool operator==(const Columns&) const = default;
};

class Tap {
 public:
  virtual ~Tap() = default;
  // Asked before each op; stages that are not wanted cost nothing.
  virtual bool wants(Stage stage, int layer) const = 0;
  // The columns that it needs of a stage that it wants. Fewer cost less to bring from a GPU.
  virtual Columns columns(Stage /*stage*/, int /*layer*/) const { return {}; }
  virtual void on_stage(const TapEvent& event) = 0;
};

}  // namespace doppler
