#include "diagnosis/compare/filled_rows.h"

#include <algorithm>

namespace doppler::diagnosis {

Status FilledRows::fill(const Plan& plan, const Weights& weights, Filling filling, std::size_t threads) {
  OpExperiment experiment(plan, weights, *this, threads);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const ValueId id = plan.ops[i].outputs[0];
    if (!experiment.missing(i).empty()) continue;
    if (filling == Filling::kWithinLayer && reads_filled_layers(experiment, i)) continue;
    if (const auto at = locate(plan, id)) {
      // Known by another name: of a stage that was computed here, too?
      if (filled_.contains(at->tensor->name)) ops_.insert(i);
      continue;
    }
    DOPPLER_ASSIGN(std::vector<float> data, experiment.run(i));
    Kept& kept = filled_[value_name(plan, id)];
    kept.data = std::move(data);
    kept.view = {value_name(plan, id),
                 DType::kF32,
                 {ids().size(), plan.values[id].width},
                 std::as_bytes(std::span(kept.data))};
    ops_.insert(i);
  }
  return {};
}

// Whether the op reads a stage of another layer that was computed here.
bool FilledRows::reads_filled_layers(const OpExperiment& experiment, std::size_t op) const {
  const Plan& plan = experiment.plan();
  return std::ranges::any_of(experiment.inputs(op), [&](ValueId id) {
    const Value& value = plan.values[id];
    return value.stage != Stage::kNone && value.layer != plan.ops[op].layer &&
           filled_.contains(value_name(plan, id));
  });
}

const TensorView* FilledRows::find(const std::string& key) const {
  if (const TensorView* recorded = rows_.find(key)) return recorded;
  const auto found = filled_.find(key);
  return found == filled_.end() ? nullptr : &found->second.view;
}

}  // namespace doppler::diagnosis
