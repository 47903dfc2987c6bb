// Rows of a run, completed: what is not recorded is computed by the oracle from what is.
#pragma once

#include <map>
#include <set>
#include <string>

#include "diagnosis/compare/op_experiment.h"
#include "diagnosis/compare/stage_rows.h"

namespace doppler::diagnosis {

enum class Filling : std::uint8_t {
  kMissing,      // whatever is not recorded
  kWithinLayer,  // the same, but for what would need a stage of another layer that is not recorded
};

class FilledRows final : public StageRows {
 public:
  explicit FilledRows(const StageRows& rows) : rows_(rows) {}

  // Computes these values, op by op, as far as their inputs are known. Errors: those of the ops.
  Status fill(const Plan& plan, const Weights& weights, Filling filling = Filling::kMissing,
              std::size_t threads = 0);
  // Whether the op's output was computed here.
  bool filled(std::size_t op) const { return ops_.contains(op); }
  const std::set<std::size_t>& filled() const { return ops_; }

  std::span<const std::int32_t> ids() const override { return rows_.ids(); }
  const TensorView* find(const std::string& key) const override;

 private:
  bool reads_filled_layers(const OpExperiment& experiment, std::size_t op) const;
  struct Kept {
    std::vector<float> data;
    TensorView view;
  };
  const StageRows& rows_;
  std::map<std::string, Kept> filled_;
  std::set<std::size_t> ops_;
};

}  // namespace doppler::diagnosis
