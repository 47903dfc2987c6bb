// A tap that compares a run with a recording, stage by stage.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/logits_agreement.h"

namespace doppler::diagnosis {

// Widths of the stages that a run computes; 0 where it has the same values in other stages only: in those of
// an op that does the work of several, or of weights in another layout.
using StageWidths = std::map<std::pair<Stage, int>, std::size_t>;
StageWidths planned_stages(const Plan& plan, const ModelSpec& spec);

// The absolute difference; infinity for NaN.
double distance(float found, float expected);

// Adds `value` to `worst` if it is among the largest differences; these stay sorted, the largest first.
void keep_worst(std::vector<WrongValue>& worst, const WrongValue& value, double difference);

// Compares the rows of slot 0's tokens.
class StageComparer final : public Tap {
 public:
  StageComparer(StageWidths computed, const Recording& recording, double tolerance)
      : recording_(recording), tolerance_(tolerance), computed_(std::move(computed)) {}

  // Matches the recording's tensors with the run's stages. Errors: kMismatch for tensors that are no stages,
  // of another width than the run's, or that come twice.
  Status prepare();

  bool wants(Stage stage, int layer) const override { return targets_.contains({stage, layer}); }
  void on_stage(const TapEvent& event) override;

  // Every stage's result, once the prompt has run. Errors: kInternal for a backend that has not shown every
  // token of every stage, which would otherwise pass for agreement.
  Result<std::vector<StageComparison>> take_stages();
  // The results of stages that were shown; the names of the others, which only the recording has, go to
  // `not_shared`. Stages that the model does not compute are among the results if `lacking`.
  std::vector<StageComparison> take_shown_stages(bool lacking, std::vector<std::string>& not_shared);
  // Recorded stages that the run has in other stages.
  std::vector<std::string> take_elsewhere() { return std::move(elsewhere_); }
  std::optional<LogitsAgreement> prompt_logits() const { return logits_.result(); }

 private:
  // Where a stage's values lie in the recording.
  struct Target {
    std::size_t comparison = 0;  // index into stages_
    const TensorView* tensor = nullptr;
    std::size_t column = 0, width = 0, row_width = 0;
    const TensorView* scores = nullptr;  // of a choice: what it was made by, [tokens, experts]
    double nearness = 0;                 // scores that lie no further apart are alike
  };
  void add_scores(int layer, Target& target) const;
  // A choice of experts with those of ours in place of the recording's that are scored alike: which of them
  // is taken, rounding decides.
  void settle_near_choices(const Target& target, std::size_t token, std::span<const float> ours);
  Result<bool> repeats_parts(const TensorView& tensor, std::span<const Stage> parts, int layer) const;
  Status match(const TensorView& tensor);
  void order();
  void compare_row(const Target& target, std::size_t token, std::span<const float> ours);

  const Recording& recording_;
  const double tolerance_;
  const StageWidths computed_;
  std::map<std::pair<Stage, int>, Target> targets_;
  std::vector<StageComparison> stages_, missing_;
  std::vector<std::string> elsewhere_;
  std::vector<float> row_;
  LogitsMeter logits_;
};

}  // namespace doppler::diagnosis
