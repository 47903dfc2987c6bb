// HostBackend: the common part of the backends that compute on the host. It runs a plan op by op: checks the
// step, lets a fault and a tap at each op's values, times ops for an observer and counts what the cache
// holds. How an op is computed and where its values lie is up to the derived class.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/fault.h"
#include "backend/host_cache.h"
#include "backend/kv_cache.h"
#include "backend/slot_lengths.h"
#include "base/memory.h"
#include "plan/late.h"

namespace doppler {

class HostBackend : public Backend {
 public:
  const Plan& plan() const override { return plan_; }
  const BackendOptions& options() const override { return options_; }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_.clear(slot); }
  std::size_t rows_that_agree() const override { return SIZE_MAX; }
  CacheAccess* cache() override { return &cache_access_; }
  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override;

 protected:
  // `options` with everything chosen.
  HostBackend(Plan plan, const Weights& weights, BackendOptions options, KvCache cache);

  // Called before the ops of a step; input() and wanted() are the step's.
  virtual Status begin_step() { return {}; }
  // Called before an op to which the fault shows other tokens than to the op before.
  virtual void see_other_tokens() {}
  virtual Status execute(std::size_t op) = 0;
  // Rows of a value that is computed: [rows(id), width].
  virtual std::span<float> value_of(ValueId id) = 0;

  const Value& info(ValueId id) const { return plan_.values[id]; }
  std::size_t rows(const Value& v) const { return v.rows == Rows::kAll ? input_->size() : wanted_.size(); }
  // The tokens as the op sees them: the step's, unless a fault changes them.
  const StepInput& input() const { return *input_; }
  // Places of the tokens whose logits are wanted.
  std::span<const std::size_t> wanted() const { return wanted_; }
  bool wants(Stage stage, int layer) const { return tap_ != nullptr && tap_->wants(stage, layer); }

  // With a fault: sets the tokens that the op sees from now on.
  Status look(const Op& op, Fault::Moment moment);
  // Shows the tap a value under each of its names.
  void report(const Value& v, std::span<const float> data, std::size_t width);

  // Positions of the longest sequence of the step.
  std::size_t longest() const;
  // Room for an attention's scores, [tokens, heads, longest()], -inf until they are written; empty where no
  // tap wants them. After the op they are reported.
  Result<std::span<float>> scores_for(const Op& op);
  void report_scores(const Op& op, std::span<const float> scores);
  std::uint64_t score_bytes() const { return scores_.size() * sizeof(float); }

  Plan plan_;
  const Weights& weights_;
  BackendOptions options_;
  KvCache cache_;

 private:
  Status reserve(const StepInput& input);
  void spoil(ValueId id);
  // From late_.first on only the wanted tokens are left, unless something looks at the others.
  bool goes_on_with_wanted() const;
  void keep_wanted();
  SlotLengths lengths_;
  HostCache cache_access_;
  std::vector<std::size_t> wanted_;
  LateOps late_;
  LazyFloats scores_;
  StepInput kept_;                   // the tokens that are left of it
  const StepInput* step_ = nullptr;  // as it was given
  const StepInput* input_ = nullptr;
  Tap* tap_ = nullptr;
};

}  // namespace doppler
