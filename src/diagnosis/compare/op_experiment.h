// Experiments with one op: what the oracle computes for it from a run's inputs, as the plan says or with a
// change. So an op is judged alone, whatever went wrong before it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/reference/ops.h"
#include "diagnosis/compare/stage_rows.h"
#include "model/weights.h"
#include "plan/plan.h"

namespace doppler::diagnosis {

// One op with everything it reads, as copies for a change to alter. Token i is row i of every input.
struct OpSetup {
  struct Rows {
    std::size_t width = 0, heads = 1;
    std::vector<float> data;  // [tokens, width]
  };
  OpKind kind = OpKind::kAdd;
  Stage stage = Stage::kNone;  // of the output
  int layer = -1;
  OpParams params;
  std::vector<Rows> inputs;  // kAttention: q of the tokens, then k and v of all positions
  std::size_t width = 0;     // of the output
  std::size_t heads = 1;     // of the output: a norm and a rotation work on each head by itself
  // Mostly one or none, of kExpertMatmul each expert's; views of the model's bytes or of `owned`.
  std::vector<TensorView> weights;
  std::vector<std::optional<TensorView>> biases;  // empty, or one for each weight
  RopeTable rope;                                 // kRope
  std::vector<std::int32_t> ids, positions;       // of each token
  std::vector<std::uint32_t> head_map;  // kAttention: the kv head of each head; empty: neighbours share
  // kAttention: whether the query of `token` sees the key at `position`; null: as the params say.
  std::function<bool(std::size_t token, std::size_t position)> sees;

  std::size_t tokens() const { return ids.size(); }
  // Replaces the weight by these values. To change it, decode it first with read_weight().
  void set_weight(Shape shape, const std::vector<float>& values);
  // Replaces the values of one of the weights or biases, in their order.
  void replace(TensorView& tensor, const std::vector<float>& values);
  Result<std::vector<float>> read_weight() const;

  std::vector<std::shared_ptr<const std::vector<std::byte>>> owned;  // memory of replaced weights

 private:
  std::span<const std::byte> own(const std::vector<float>& values);
};

// A change to an op against the plan; empty: none.
using OpChange = std::function<void(OpSetup&)>;

// Checks that all shapes fit together. Errors: kMismatch naming the misfit.
Status check_setup(const OpSetup& setup);

// Computes the op. Errors: those of check_setup(), since a change may alter anything.
Result<std::vector<float>> run_setup(const OpSetup& setup, reference::Threads& threads);

// `plan` is an unfused one (build_plan); it, the weights and the rows must outlive the experiment.
class OpExperiment {
 public:
  OpExperiment(const Plan& plan, const Weights& weights, const StageRows& rows, std::size_t threads = 0)
      : plan_(plan), weights_(weights), rows_(rows), threads_(threads) {}

  const Plan& plan() const { return plan_; }
  const Weights& weights() const { return weights_; }
  const StageRows& rows() const { return rows_; }

  // The op that computes the stage, by any name of its output (plan/residual.h).
  std::optional<std::size_t> find(Stage stage, int layer) const;
  Stage stage_of(std::size_t op) const { return output(op).stage; }
  int layer_of(std::size_t op) const { return output(op).layer; }

  // Names of the stages that the op reads and that are not recorded; of a value that is no stage, those that
  // it is made of. Empty: it can run.
  std::vector<std::string> missing(std::size_t op) const;
  // The recorded output of the op, [tokens, width]. Errors: kNotFound.
  Result<std::vector<float>> recorded(std::size_t op) const;

  // The op with its recorded inputs. Errors: kNotFound naming the missing stages.
  Result<OpSetup> setup(std::size_t op) const;
  // The oracle's output, [tokens, width]. Errors: those of setup() and run_setup().
  Result<std::vector<float>> run(std::size_t op, const OpChange& change = {});
  Result<std::vector<float>> run(const OpSetup& setup) { return run_setup(setup, threads_); }
  // What the op reads; where a layer reads the keys and values of another, they are among it.
  std::vector<ValueId> inputs(std::size_t op) const;

 private:
  std::vector<std::string> behind(ValueId id) const;
  const Value& output(std::size_t op) const { return plan_.values[plan_.ops[op].outputs[0]]; }

  const Plan& plan_;
  const Weights& weights_;
  const StageRows& rows_;
  reference::Threads threads_;
};

}  // namespace doppler::diagnosis
