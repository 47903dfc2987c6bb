// The decode steps of a run against those of a recording.
#pragma once

#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/logits_agreement.h"

namespace doppler::diagnosis {

class DecodeComparer {
 public:
  // `slack`: how far below the likeliest, as a share of the largest logit, a choice still counts as equal.
  DecodeComparer(const Recording& recording, double tolerance, double slack)
      : recording_(recording), tolerance_(tolerance), slack_(slack) {}

  // If every op of the prompt is right by itself, the prompt's logits show how far rounding alone (mostly of
  // other weights) leads. A decode step is then allowed twice that distance, and its choice the slack to
  // match.
  void widen(const std::vector<StageComparison>& stages);

  // Errors: kMismatch for decode logits of another vocabulary.
  Status prepare(std::size_t vocab);
  // The prompt's last logits, which choose the recording's first greedy id.
  void prompt_answer(std::span<const float> logits);
  // The logits after feeding greedy id `step`.
  Status step(std::size_t step, std::span<const float> logits);
  // Steps to come; the last greedy id is judged, never fed.
  std::size_t steps() const { return recording_.greedy_ids.empty() ? 0 : recording_.greedy_ids.size() - 1; }
  void finish(Comparison& result);

 private:
  const Recording& recording_;
  double tolerance_, slack_;
  const TensorView* logits_ = nullptr;
  std::size_t judged_ = 0, equal_ = 0;
  std::optional<StageComparison> stage_;
  LogitsMeter meter_;
};

}  // namespace doppler::diagnosis
