// One op that computes wrong values: its inputs, the output to be explained, and every attempt to explain it.
// The output comes from a recording, or from a backend under examination and its own inputs.
#pragma once

#include <string>
#include <vector>

#include "diagnosis/compare/allowance.h"
#include "diagnosis/compare/op_chain.h"
#include "diagnosis/compare/op_experiment.h"
#include "diagnosis/doctor/fix.h"
#include "model/spec.h"

namespace doppler::diagnosis {

// The distance of rows from others, as a multiple of the allowed error: at most 1 agrees.
struct Misfit {
  double ratio = 0;
  std::size_t token = 0, place = 0;  // of the worst value
  bool agrees() const { return ratio <= 1; }
};

// A different way to compute the op, and how well its result fits.
struct Attempt {
  std::string cause;   // an id of all_causes()
  std::string says;    // "the weight offset is 1": completes "agrees when"
  std::string repair;  // empty: that of the cause
  double ratio = 0;
  double weight = 1;            // how far to trust the attempt if it fits: searches, with more freedom, less
  double value = 0;             // of a window or a base: what it should be
  Stage lacks = Stage::kNone;   // the op that should be there and is not; kNone: none
  std::vector<Fix> fixes = {};  // what a program can do; empty: nothing
};

class OpCase {
 public:
  struct Context {
    const ModelSpec& spec;
    OpExperiment& experiment;
    const Weights& weights;
    reference::Threads& threads;
    RecordedRounding rounding;  // how the target was computed
  };

  // `target`: the output to explain, rows of all tokens. `only`: the tokens to judge by, ascending; empty:
  // all, or for a large product a few. Attention then sees no keys beyond the last of them.
  static Result<OpCase> open(const Context& context, std::size_t op, std::vector<float> target,
                             std::span<const std::size_t> only = {});
  // Some ops of a chain, to all of which the same change is made; judged by the values at the chain's end.
  // The first of them is the case's op. The chain must outlive the case.
  struct ChainEnd {
    std::vector<float> target, output, allowed;  // recorded, as the plan says, and the difference allowed
  };
  static Result<OpCase> open_along(const Context& context, const OpChain& chain,
                                   std::span<const std::size_t> ops, const ChainEnd& end);

  // Whether target() and output() are the op's own, so that more can be read from them than a ratio.
  bool direct() const { return chain_ == nullptr; }
  // The ops that a change is made to.
  std::span<const std::size_t> scope() const { return scope_; }
  const Context& context() const { return context_; }
  const Plan& plan() const { return context_.experiment.plan(); }
  const Op& op() const { return plan().ops[index_]; }
  std::size_t index() const { return index_; }
  int layer() const { return op().layer; }
  Stage stage() const { return context_.experiment.stage_of(index_); }
  const OpSetup& setup() const { return setup_; }
  std::size_t tokens() const { return setup_.tokens(); }
  std::size_t width() const { return setup_.width; }
  std::size_t judged_width() const { return judged_width_; }  // of a row of the target
  const std::vector<float>& target() const { return target_; }
  // The oracle's output by the plan; its distance from the target is misfit().
  const std::vector<float>& output() const { return output_; }
  const Misfit& misfit() const { return misfit_; }
  // For each token of the case its index in the recording.
  const std::vector<std::size_t>& rows() const { return rows_; }

  double allowed_at(std::size_t token, std::size_t place) const {
    return allowed_[token * judged_width_ + place];
  }
  // The ratio of judge() over some columns of every token: `output` is [tokens, columns].
  double judge_columns(std::span<const std::size_t> columns, std::span<const float> output) const;
  // The distance from the target, by the op's own allowance, or by `allowed` (may be empty) where that is
  // larger.
  Misfit judge(std::span<const float> output, std::span<const float> allowed = {}) const;
  // Another stage's rows, of the case's tokens; nothing if it is not recorded or has another width.
  std::optional<std::vector<float>> other(Stage stage, int layer) const;

  // Every other stage of this layer and the one before it that has this width.
  struct Other {
    Stage stage;
    int layer;
    std::vector<float> rows;
  };
  std::vector<Other> others(std::size_t width) const;

  // Computes the op with a change and keeps the attempt. True if it agrees.
  bool attempt(std::string cause, std::string says, std::string repair, const OpChange& change,
               double weight = 1, double value = 0);
  // The same for an output that was computed already.
  bool consider(std::string cause, std::string says, std::string repair, std::span<const float> output,
                double weight = 1);
  bool keep(Attempt attempt);
  // The last attempt's op is one that the plan lacks.
  void say_what_lacks(Stage stage) { attempts_.back().lacks = stage; }
  // What a program can do about the attempt that was kept last.
  void add_fix(Fix fix) { attempts_.back().fixes.push_back(std::move(fix)); }
  // The same for a value of the description: `path` as in ModelSpec::sources, `value` as JSON.
  void add_setting(std::string path, std::string value) {
    add_fix({.kind = Fix::Kind::kSetting, .target = std::move(path), .value = std::move(value)});
  }
  // For searches: only the ratio, and no attempt is kept. `rough`: leaves out the change's own rounding
  // error, which takes three times as long.
  double ratio_with(const OpChange& change, bool rough = false);

  // What ratio_with() judges, [tokens, judged_width()]; nothing if a change does not fit, or time has run
  // out.
  std::optional<std::vector<float>> output_with(const OpChange& change) const;
  std::size_t ops_on() const;  // of the chain, from the case's first op to its end; 1: the op alone

  const std::vector<Attempt>& attempts() const { return attempts_; }
  // What was not tried because it takes too long: "other orders of columns (some 40 s)".
  void leave_out(std::string what) { left_out_.push_back(std::move(what)); }
  const std::vector<std::string>& left_out() const { return left_out_; }
  bool explained() const;
  // Called with the change of the attempt that is tried as number `at`, while the change can be made.
  void watch(std::size_t at, std::function<void(const OpChange& change)> hook) {
    watched_ = at, hook_ = std::move(hook);
  }
  // Attempts along a chain, each of which may take long, are not made any more when this holds.
  void stop_when(std::function<bool()> stop) { stop_ = std::move(stop); }

 private:
  explicit OpCase(const Context& context) : context_(context) {}
  void be_lenient();
  double measured(double ratio) const;  // above 1 where it is hardly less than without a change
  double ratio_along(const OpChange& change, bool rough) const;

  Context context_;
  std::size_t index_ = 0;
  const OpChain* chain_ = nullptr;  // null: the op alone
  std::vector<std::size_t> scope_;
  OpSetup setup_;
  std::size_t judged_width_ = 0;
  std::vector<std::size_t> rows_;
  std::vector<float> target_, output_;
  std::vector<float> allowed_;  // like target_
  // The error allowed to attempts: an op that is computed differently also rounds differently.
  std::vector<float> lenient_;
  double most_ = 1;  // ratios above it explain nothing
  Misfit misfit_;
  std::vector<Attempt> attempts_;
  std::vector<std::string> left_out_;
  std::size_t watched_ = SIZE_MAX;
  std::function<void(const OpChange&)> hook_;
  std::function<bool()> stop_;
};

// The places of a target's wrong values, for reports and for finding patterns.
struct BadPlaces {
  std::size_t bad = 0, all = 0;
  std::vector<std::size_t> columns;  // those with any bad value, ascending
  std::vector<std::size_t> tokens;   // likewise, as indices of the case's rows
};
BadPlaces find_bad_places(const OpCase& opcase);

}  // namespace doppler::diagnosis
