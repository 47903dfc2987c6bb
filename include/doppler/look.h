// Looking inside a run: the values of any stage of any layer, as the run itself computes them. Results are
// the same with and without a look.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "doppler/statistics.h"

namespace doppler {

// A stage that this model computes: Engine::stages() lists them in order.
struct StageDescription {
  std::string name;     // "layer_out"
  std::string meaning;  // one line
  // Of a row: `heads` times `width / heads` values. For attn_scores the width is 0 here, since it grows with
  // the sequence: each head has a score for every position so far, -infinity where it is masked.
  std::size_t width = 0, heads = 1;
  std::vector<int> layers;  // that compute it; empty for stages outside the layers
  bool last_only = false;   // in a generation it has rows only for the tokens whose logits are wanted
};

// Which values to look at. An empty list means all, except `stages`, which needs at least one name.
struct LookRequest {
  std::vector<std::string> stages = {};   // "q_rope", "logits"; {"all"}: every stage but attn_scores
  std::vector<int> layers = {};           // of stages inside layers
  std::vector<std::int64_t> tokens = {};  // positions in the sequence; negative: from the prompt's end
  std::vector<std::uint32_t> dims = {};   // columns of a row; attn_scores, whose rows grow, are always whole
  bool values = true;                     // keep the values themselves
  bool statistics = false;                // and measure them: StageValues::statistics
  // Bounds what look() keeps: a request beyond it is refused (kLimit) before anything runs.
  std::uint64_t most_bytes = std::uint64_t{1} << 30;
};

// One stage of one layer.
struct StageValues {
  std::string stage;
  int layer = -1;                    // -1: outside the layers
  std::vector<std::int64_t> tokens;  // positions in the sequence, one for each row
  std::size_t width = 0, heads = 1;  // of a whole row: heads x (width / heads)
  std::vector<std::uint32_t> dims;   // the columns that are here; empty: all of them
  std::vector<float> values;         // [tokens, columns], row-major; empty if they were not asked for
  Statistics statistics;             // of these values, if they were asked for
  std::size_t columns() const { return dims.empty() ? width : dims.size(); }
};

// A look at a generation while it runs: on_values is called after each step for each requested stage, with
// the step's tokens. Negative `what.tokens` count from the prompt's end, so that -1 is its last token.
struct Watch {
  LookRequest what = {};
  std::function<void(const StageValues& values)> on_values = {};
};

}  // namespace doppler
