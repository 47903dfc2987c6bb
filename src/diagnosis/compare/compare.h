// Comparison of a run with a recording: every stage of the prompt, then decode steps that are fed the
// recorded ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "diagnosis/compare/recording.h"
#include "model/spec.h"

namespace doppler::diagnosis {

// One of the values with the largest differences; `index`: its place in the token's row.
struct WrongValue {
  std::size_t token = 0, index = 0;
  float expected = 0, found = 0;
};

// The error of a stage's op alone: its output against the oracle's from the same inputs.
struct OpError {
  double error = 0;    // largest difference, as a share of the stage's largest value
  double allowed = 0;  // the allowed error at the worst value, as the same share (compare/allowance.h)
  double excess = 0;   // largest ratio of difference to allowed error; above 1 the op is wrong
  std::size_t token = 0, index = 0;            // where `excess` is
  std::vector<float> token_errors;             // like `error`, of each token
  std::vector<WrongValue> worst;               // the values of greatest excess; `expected` is the oracle's
  std::optional<std::size_t> first_bad_token;  // first with an excess above 1
  std::size_t unrecorded = 0;  // ops before it that are judged with it, since nobody recorded their results
  bool agrees() const { return !first_bad_token; }
};

// Why a stage does not agree.
enum class Disagreement : std::uint8_t {
  kNone,
  kNotComputed,  // the recording has it, the model does not
  kExecution,    // the op's result does not follow from its plan and inputs: a fault of the backend
  kDescription,  // plan and weights give another result on the recording's inputs: a fault of those
  kTotal,        // the values differ too much; which op is at fault is unknown
};

// One stage of one layer against the recording.
struct StageComparison {
  std::string key;             // "layers.3.q_rope"; decode steps: "decode_logits"
  Stage stage = Stage::kNone;  // kNone: the recording has a stage that the model does not compute
  int layer = -1;
  std::size_t tokens = 0;
  double largest = 0;  // the recording's largest magnitude in this stage
  double error = 0;    // largest difference, as a share of `largest`
  double tolerance = 0;
  std::size_t worst_token = 0;
  std::optional<std::size_t> first_bad_token;  // first whose difference exceeds the tolerance
  std::size_t near_choices =
      0;  // of experts, that fell on another one of the same score within the tolerance

  std::vector<float> token_errors;  // like `error`, of each token
  // A histogram of difference / tolerance over the values, by binary exponent, from 2^-127 (which stands for
  // 0 as well) to 2^128 (NaN and infinity). Empty for decode steps.
  std::vector<std::uint64_t> spread;
  std::vector<WrongValue> worst;  // the largest differences, largest first; at most kMostWorst
  // The difference in three parts, if the stages that the op reads are recorded (else `untold` says why not):
  // added by this run's op, added by the recording's op, and inherited with the inputs.
  std::optional<OpError> execution;    // this run's output against the oracle's on this run's inputs
  std::optional<OpError> description;  // the recording's output against the oracle's on its inputs
  std::optional<double> inherited;     // the oracle on both inputs, difference as a share of `largest`
  std::string untold;

  // The whole difference is within the tolerance, and no op is wrong by itself.
  bool agrees() const { return disagreement() == Disagreement::kNone; }
  Disagreement disagreement() const;
  // This stage's op and all before it are right by themselves: any difference is accumulated rounding, and no
  // disagreement however large.
  bool explained = false;
};
inline constexpr std::size_t kMostWorst = 8;  // wrong values kept of a stage: enough to see a pattern

// The logits compared as distributions: one row per token of the prompt, or per decode step.
struct LogitsAgreement {
  std::size_t rows = 0, top1_equal = 0;  // the same likeliest token
  double mean_kl = 0, largest_kl = 0;    // of the run's distribution from the recording's, in nats
  std::size_t largest_kl_row = 0;
  double smallest_margin = 0;  // between the recording's two largest logits, over all rows
  // The first row where the two likeliest logits of the recording lie closer than the logits differ: from
  // there on a greedy choice may differ without anything being wrong.
  std::optional<std::size_t> first_unsure;
};

struct Comparison {
  std::vector<StageComparison> stages;  // in the order in which a step computes them
  // Where a backend rounds on purpose, a choice within its tolerance of the likeliest counts as equal.
  std::size_t decode_steps = 0, top1_equal = 0;
  std::optional<StageComparison> decode;  // the logits of all decode steps
  std::optional<LogitsAgreement> prompt_logits, decode_logits;
  std::vector<std::string> not_shared;  // stages that only `expected` has, of two recordings
  std::vector<std::string> elsewhere;   // stages of `expected` that the run has in other stages only
  std::string found, expected;          // names of the two: "cpu", "a recording by transformers 5.17.0"
  // The first op that is wrong by itself, if known, else the first stage outside its tolerance. Null if
  // everything agrees.
  const StageComparison* first_divergence() const;
  bool agrees() const { return first_divergence() == nullptr && top1_equal == decode_steps; }
};

struct CompareOptions {
  double tolerance = 0;     // 0: from the table
  std::uint32_t piece = 0;  // feed the prompt in pieces of this many tokens; 0: as large as a step takes
  bool local = true;        // judge each op by itself, which runs it twice on the oracle
  bool companion = false;  // run beside a second sequence in slot 1 (the prompt reversed), sharing every step
};

// Allowed error of a stage, as a share of its largest value, for a backend and a model.
double stage_tolerance(const Backend& backend, const ModelSpec& spec);
double stage_tolerance(std::string_view backend, Rounding rounding, bool softcapped);

// The backend needs two slots for a companion. Each op is judged by itself if the weights are given and
// options.local is set. Errors: kMismatch for a recording of another model (ids outside the vocabulary,
// widths that differ, unknown stages), kLimit for one longer than the context.
Result<Comparison> compare_run(Backend& backend, const ModelSpec& spec, const Recording& recording,
                               const CompareOptions& options, const Weights* weights = nullptr);

}  // namespace doppler::diagnosis
