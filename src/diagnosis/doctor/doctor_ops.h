// Every op of a plan judged by itself, from the rows of a recording or a backend, and findings about the
// wrong ones.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "diagnosis/compare/filled_rows.h"
#include "diagnosis/compare/op_experiment.h"
#include "diagnosis/doctor/chain_repairs.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/repairs_execution.h"

namespace doppler::diagnosis::doctor {

// A wrong op with its explanation, before wrong ops of several layers are merged into one finding.
struct WrongOp {
  std::size_t op = 0;
  Stage stage = Stage::kNone;
  int layer = -1;
  double ratio = 0;    // error of the op as the plan describes it, in multiples of the allowed error
  std::string where;   // "rows 64 to 127", "token 3"
  std::string weight;  // name of its weight, if it has one
  std::string who;     // the backend that computed it; empty: the recording
  std::vector<std::size_t> rows;  // the rows that the explanation is judged by; empty: any
  Explanation explanation;
  bool only_coarse = false;  // right, if the recording was made with finer weights
  // Of an op within a chain: where the chain ends, what it begins with, and its ops; else empty.
  std::string seen_at, from, between;
  std::vector<std::string> among, also;  // stages of the chain, by key; other explanations
  std::vector<std::string> unread;       // of the same layers: stages that no op computes, by key
  std::vector<int> layers;               // that the explanation changes, if several
  std::vector<std::size_t> chain;        // its ops
};

class OpJudge {
 public:
  OpJudge(const Examination& examination, OpExperiment& experiment)
      : e_(examination), experiment_(experiment) {}

  std::function<bool(std::size_t op)> skip;  // ops not to judge; empty: none
  ExecutionHints hints;                      // about a backend's rows
  std::string who;                           // the backend whose rows they are; empty: the recording
  Arithmetic arithmetic;                     // how the rows were computed
  bool finer_weights = true;                 // the rows may be of weights that were stored more finely
  const FilledRows* filled = nullptr;  // where stages may be missing: judges the chains that compute them
  double stored = 0;                   // share of a value by which storing the rows moved it
  // Reports at most this many findings.
  std::size_t most = SIZE_MAX;

  // Runs every op from its rows and keeps the wrong ones.
  Status measure();
  // Tries repairs on them and reports findings.
  Status explain_wrong();

  std::size_t judged() const { return judged_ + chains_.size(); }
  const std::vector<OpChain>& chains() const { return chains_; }
  const std::vector<std::size_t>& judged_ops() const { return judged_ops_; }
  const std::vector<WrongOp>& wrong() const { return wrong_; }
  // Hands the error of every op to the examination, under the name of its check.
  void tell_ops() const;
  std::string summary() const;

 private:
  OpCase::Context context_for(bool noisy) const;
  Status judge(std::size_t op);
  Status judge_chain(const OpChain& chain);
  Status explain_chains();
  std::vector<std::string> unread_stages(const OpChain& chain) const;
  std::set<int> examined_layers() const;
  bool is_foreign() const;
  bool has_weights(std::size_t op) const;  // a product or an embedding
  std::size_t judged_weighty() const;      // ops and chains with such
  std::string of_chains() const;           // for the summary
  Result<OpCase::ChainEnd> end_of(const OpChain& chain, bool noisy);
  Status explain_as_coarse(WrongOp& wrong);
  bool coarse_products_differ() const;
  void drop_consequences();

  const Examination& e_;
  OpExperiment& experiment_;
  std::size_t judged_ = 0;
  std::vector<std::size_t> judged_ops_;  // those judged alone
  std::size_t unexamined_ = 0;           // wrong ops beyond those in wrong_, for lack of time
  bool noisy_weights_ = false;           // the rows were computed with finer weights than these
  mutable reference::Threads threads_{0};
  std::map<std::size_t, JudgedOp> ops_;  // by their place in the plan
  double worst_ = 0;
  std::string worst_at_;
  std::vector<WrongOp> wrong_;
  std::vector<OpChain> chains_;
  struct WrongChain {
    OpChain chain;
    OpCase::ChainEnd end;
    double ratio = 0;
    std::string where;
  };
  std::vector<WrongChain> wrong_chains_;
  std::size_t unjudged_ = 0;  // chains, for lack of time
  // Chains with quantised weights, and those of them that agree only if the recording's weights were finer.
  std::size_t quantised_chains_ = 0, coarse_chains_ = 0;
};

// Groups wrong ops by the kind of layer and by weights that are used twice, and makes one finding for each
// cause.
// `examined`: the layers of which the recording tells; empty: all.
std::vector<Finding> gather_findings(const ModelSpec& spec, std::vector<WrongOp> wrong,
                                     const std::set<int>& examined = {});

// Differences that only show in decoding: a window or a context that the prompt does not fill.
Result<Outcome> check_late_choices(const Examination& e);

}  // namespace doppler::diagnosis::doctor
