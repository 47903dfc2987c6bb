// Comparison of a run with a recording: every stage of the prompt,
// then decoding forced along the recorded ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "inspect/recording.h"
#include "model/spec.h"

namespace doppler {

// One stage of one layer against the recording.
struct StageComparison {
  std::string key;             // "layers.3.q_rope"; decode steps: "decode_logits"
  Stage stage = Stage::kNone;  // kNone: the recording has a stage that the model does not compute
  int layer = -1;
  std::size_t tokens = 0;
  double largest = 0;  // the recording's largest magnitude in this stage
  double error = 0;    // largest difference, as a share of `largest`
  double tolerance = 0;
  std::size_t worst_token = 0;
  std::optional<std::size_t> first_bad_token;  // first whose difference exceeds the tolerance
  bool agrees() const { return stage != Stage::kNone && !first_bad_token; }
};

struct Comparison {
  std::vector<StageComparison> stages;  // in the order in which a step computes them
  // Where a backend rounds on purpose, a choice within its tolerance of the likeliest counts as equal.
  std::size_t decode_steps = 0, top1_equal = 0;
  std::optional<StageComparison> decode;  // the logits of all decode steps
  // Null if everything agrees.
  const StageComparison* first_divergence() const;
  bool agrees() const { return first_divergence() == nullptr && top1_equal == decode_steps; }
};

struct CompareOptions {
  double tolerance = 0;     // 0: from the table
  std::uint32_t piece = 0;  // feed the prompt in pieces of so many tokens; 0: as large as a step takes
  bool companion = false;  // run beside a second sequence in slot 1 (the prompt reversed), sharing every step
};

// Allowed error of a stage, as a share of its largest value, for a backend and a model.
double stage_tolerance(const Backend& backend, const ModelSpec& spec);

// The backend needs two slots for a companion. Errors: kMismatch for a recording of another model (ids
// outside the vocabulary, widths that differ, unknown stages), kLimit for one longer than the context.
Result<Comparison> compare_run(Backend& backend, const ModelSpec& spec, const Recording& recording,
                               const CompareOptions& options);

}  // namespace doppler
