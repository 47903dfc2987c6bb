// The ops between recorded stages as one. A recording seldom has every stage; an op whose inputs it lacks is
// run again together with the ops that compute them, from the last recorded stages on, and is judged with the
// rounding of all of them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/filled_rows.h"
#include "diagnosis/compare/op_experiment.h"

namespace doppler::diagnosis {

// How the recorded values may differ from what the oracle computes, beyond the rounding of float32.
struct RecordedRounding {
  Arithmetic arithmetic;
  bool finer_weights = false;  // the recording's weights were stored more finely than these
  double stored = 0;  // share of a value by which storing it moved it: 2^-9 for bfloat16, 0 for float32
};

// The relative error that storing the op's weight more coarsely than the recording's explains; 0 without one.
double weight_noise(const OpSetup& setup, const RecordedRounding& rounding);

// The allowance of one op, cut for absurd weights, and with what storing its weight may have changed.
Result<std::vector<float>> allowance_of(const OpSetup& setup, std::span<const float> output,
                                        const RecordedRounding& rounding, reference::Threads& threads);

class OpChain {
 public:
  // `op`: one whose output is recorded; `rows`: those that `experiment` reads.
  OpChain(OpExperiment& experiment, const FilledRows& rows, std::size_t op);

  // In the order of the plan; the last is the one whose output is recorded.
  std::span<const std::size_t> ops() const { return ops_; }
  std::size_t end() const { return ops_.back(); }
  bool single() const { return ops_.size() == 1; }
  // The recorded values that the chain begins with, by name; ids are not among them.
  std::vector<std::string> begins() const;
  std::string key_of(std::size_t op) const;
  // "attn_normed, q_proj, ..., layer_out of layer 0"
  std::string describe() const;

  // From now on these ops are changed so, before what else is tried.
  void change_first(std::span<const std::size_t> ops, OpChange change) {
    first_.push_back({{ops.begin(), ops.end()}, std::move(change)});
  }

  // Judges only the prompt's first tokens from now on.
  void keep_tokens(std::size_t tokens) { tokens_ = tokens; }
  std::size_t tokens() const { return tokens_; }
  std::uint64_t work() const;  // multiplications for one token

  // The recorded values at the end, and those that the oracle computes there with `change` in the ops
  // `changed`. Errors: those of run_setup(), since a change may alter anything.
  Result<std::vector<float>> recorded() const;
  Result<std::vector<float>> run(std::span<const std::size_t> changed = {},
                                 const OpChange& change = {}) const;
  // The same where the op `given` has computed `rows`.
  Result<std::vector<float>> finish(std::size_t given, std::vector<float> rows) const;
  // How far the end may lie from the oracle's values through the rounding of all ops: every op's output is
  // moved by its own allowance, up or down at random, and what comes of it at the end is measured.
  Result<std::vector<float>> allowance(const RecordedRounding& rounding, reference::Threads& threads,
                                       std::span<const std::size_t> changed = {},
                                       const OpChange& change = {}) const;
  // The op with its inputs, of the tokens that are judged.
  Result<OpSetup> setup(std::size_t op) const;

 private:
  using Computed = std::map<ValueId, std::vector<float>>;
  void allow_other_experts(const std::map<std::size_t, std::vector<float>>& own,
                           std::span<const float> end_rows, std::span<float> allowed) const;
  // Puts rows that were computed anew in the place of the recorded or filled ones.
  void replace_inputs(std::size_t op, const Computed& computed, OpSetup& setup) const;
  ValueId output_of(std::size_t op) const { return experiment_.plan().ops[op].outputs[0]; }

  OpExperiment& experiment_;
  std::vector<std::size_t> ops_;
  // Applies what comes first; whether there was anything for this op.
  bool changes_first(std::size_t op) const;
  void apply_first(std::size_t op, OpSetup& setup) const;

  std::size_t tokens_ = 0;
  struct First {
    std::vector<std::size_t> ops;
    OpChange change;
  };
  std::vector<First> first_;
};

// The op's output, or for a step inside, which has no name, the first value with one that is made of it.
const Value& named_output(const Plan& plan, std::size_t op);

// Ops in a sentence: those of one layer by name, more layers by number.
std::string describe_ops(const Plan& plan, std::span<const std::size_t> ops);

}  // namespace doppler::diagnosis
