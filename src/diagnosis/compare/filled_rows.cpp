#include "diagnosis/compare/filled_rows.h"

namespace doppler::diagnosis {

Status FilledRows::fill(const Plan& plan, const Weights& weights) {
  OpExperiment experiment(plan, weights, *this);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Value& out = plan.values[plan.ops[i].outputs[0]];
    if (!experiment.missing(i).empty()) continue;
    // A sum on the way has no stage of its own: it goes by its place in the plan.
    const std::string key = out.stage == Stage::kNone ? value_name(plan, plan.ops[i].outputs[0])
                                                      : stage_key(out.stage, out.layer);
    if (const auto at = out.stage == Stage::kNone ? std::nullopt : locate(plan, out.stage, out.layer)) {
      // Known by another name: of a stage that was computed here, too?
      if (filled_.contains(at->tensor->name)) ops_.insert(i);
      continue;
    }
    DOPPLER_ASSIGN(std::vector<float> data, experiment.run(i));
    Kept& kept = filled_[key];
    kept.data = std::move(data);
    kept.view = {key, DType::kF32, {ids().size(), out.width}, std::as_bytes(std::span(kept.data))};
    ops_.insert(i);
  }
  return {};
}

const TensorView* FilledRows::find(const std::string& key) const {
  if (const TensorView* recorded = rows_.find(key)) return recorded;
  const auto found = filled_.find(key);
  return found == filled_.end() ? nullptr : &found->second.view;
}

}  // namespace doppler::diagnosis
