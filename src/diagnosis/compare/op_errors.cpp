#include "diagnosis/compare/op_errors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "diagnosis/compare/filled_rows.h"
#include "diagnosis/compare/op_chain.h"

namespace doppler::diagnosis {
namespace {

// Joins the rows of both sides: for ops that do not mix tokens, one pass over the weights serves both.
OpSetup join_setups(const OpSetup& first, const OpSetup& second) {
  OpSetup both = first;
  for (std::size_t i = 0; i < both.inputs.size(); ++i) {
    both.inputs[i].data.insert(both.inputs[i].data.end(), second.inputs[i].data.begin(),
                               second.inputs[i].data.end());
  }
  both.ids.insert(both.ids.end(), second.ids.begin(), second.ids.end());
  both.positions.insert(both.positions.end(), second.positions.begin(), second.positions.end());
  return both;
}

class Judge {
 public:
  Judge(const Plan& plan, const Weights& weights, const RunRows& found, const RunRows& expected,
        std::size_t threads)
      : found_(plan, weights, found, threads),
        expected_(plan, weights, expected, threads),
        threads_(threads) {}

  // Before anything else.
  Status prepare(std::size_t threads) {
    for (Side* side : {&found_, &expected_})
      DOPPLER_TRY(side->rows.fill(side->ops.plan(), side->ops.weights(), Filling::kWithinLayer, threads));
    return {};
  }

  Status judge(StageComparison& c, Stage stage, std::size_t column) {
    const std::optional<std::size_t> op = found_.ops.find(stage, c.layer);
    if (!op) return {};
    DOPPLER_TRY(run(*op));
    compare(c, *op, column);
    return {};
  }

 private:
  struct Side {
    Side(const Plan& plan, const Weights& weights, const RunRows& run, std::size_t threads)
        : rows(run.rows), ops(plan, weights, rows, threads), arithmetic(run.arithmetic) {}
    Side(const Side&) = delete;  // the ops read these rows
    FilledRows rows;
    OpExperiment ops;
    Arithmetic arithmetic;
    // Of the op at hand; nothing where it lacks an input.
    std::optional<OpChain> chain;  // with the ops before it whose results are not recorded
    std::optional<std::vector<float>> oracle, allowed, values;
  };

  // Both sides on the oracle; kept for the next stage, which may ask for the same op under another name.
  Status run(std::size_t op) {
    if (op_ == op) return {};
    op_ = op;
    for (Side* side : {&found_, &expected_}) choose(*side, op);
    if (can_compute_together(op)) return compute_together(op);
    for (Side* side : {&found_, &expected_}) {
      if (side->chain) DOPPLER_TRY(compute(*side));
    }
    return {};
  }

  bool can_compute_together(std::size_t op) const {
    const bool single =
        found_.chain && expected_.chain && found_.chain->single() && expected_.chain->single();
    // Tokens of both would count as one long step, whose blocks may be wide.
    const bool alike = found_.arithmetic == expected_.arithmetic && found_.arithmetic.wide_blocks_from == 0;
    return single && alike && found_.ops.plan().ops[op].kind != OpKind::kAttention;
  }

  static void choose(Side& side, std::size_t op) {
    side.chain.reset(), side.oracle.reset(), side.allowed.reset(), side.values.reset();
    if (!side.ops.missing(op).empty()) return;
    side.chain.emplace(side.ops, side.rows, op);
    if (auto values = side.ops.recorded(op)) side.values = std::move(*values);
  }

  Status compute(Side& side) {
    if (!side.chain->single()) {
      DOPPLER_ASSIGN(side.oracle, side.chain->run());
      DOPPLER_ASSIGN(side.allowed, side.chain->allowance({.arithmetic = side.arithmetic}, threads_));
      return {};
    }
    DOPPLER_ASSIGN(const OpSetup setup, side.ops.setup(side.chain->end()));
    DOPPLER_ASSIGN(side.oracle, run_setup(setup, threads_));
    DOPPLER_ASSIGN(side.allowed, allowance(setup, side.arithmetic, threads_));
    return {};
  }

  Status compute_together(std::size_t op) {
    DOPPLER_ASSIGN(const OpSetup found, found_.ops.setup(op));
    DOPPLER_ASSIGN(const OpSetup expected, expected_.ops.setup(op));
    const OpSetup both = join_setups(found, expected);
    DOPPLER_ASSIGN(const std::vector<float> oracle, run_setup(both, threads_));
    DOPPLER_ASSIGN(const std::vector<float> allowed, allowance(both, found_.arithmetic, threads_));
    split(oracle, found_.oracle, expected_.oracle);
    split(allowed, found_.allowed, expected_.allowed);
    return {};
  }

  static void split(const std::vector<float>& both, std::optional<std::vector<float>>& first,
                    std::optional<std::vector<float>>& second) {
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
    first.emplace(both.begin(), middle);
    second.emplace(middle, both.end());
  }

  void compare(StageComparison& c, std::size_t op, std::size_t column) {
    const Plan& plan = found_.ops.plan();
    const std::size_t width = plan.values[plan.ops[op].outputs[0]].width;
    const auto judge_side = [&](const Side& side, std::optional<OpError>& error) {
      if (!side.oracle || !side.values) return;
      OpError found = judge_values(*side.oracle, *side.values, *side.allowed, width, c.largest);
      found.unrecorded = side.chain->ops().size() - 1;
      merge(error, std::move(found), column);
    };
    judge_side(found_, c.execution);
    judge_side(expected_, c.description);
    if (found_.oracle && expected_.oracle) {
      double most = c.inherited.value_or(0);
      for (std::size_t i = 0; i < found_.oracle->size(); ++i) {
        const double difference = std::abs(static_cast<double>((*found_.oracle)[i]) - (*expected_.oracle)[i]);
        most = std::max(most, std::isnan(difference) ? HUGE_VAL
                              : difference == 0      ? 0
                                                     : difference / c.largest);
      }
      c.inherited = most;
    }
    for (const Side* side : {&found_, &expected_}) {
      const std::vector<std::string> names = side->ops.missing(op);
      if (names.empty() || !c.untold.empty()) continue;
      c.untold = fmt::format("{} {} {}, so that this op cannot be judged by itself",
                             side == &found_ ? "the run has no" : "the recording has no",
                             names.size() == 1 ? "stage" : "stages", fmt::join(names, ", "));
    }
  }

  // The parts of qkv_proj become one stage's error again.
  static void merge(std::optional<OpError>& whole, OpError part, std::size_t column) {
    part.index += column;
    for (WrongValue& value : part.worst) value.index += column;
    if (!whole) {
      whole = std::move(part);
      return;
    }
    for (std::size_t t = 0; t < whole->token_errors.size(); ++t)
      whole->token_errors[t] = std::max(whole->token_errors[t], part.token_errors[t]);
    whole->error = std::max(whole->error, part.error);
    whole->unrecorded = std::max(whole->unrecorded, part.unrecorded);
    if (part.first_bad_token) {
      whole->first_bad_token = std::min(whole->first_bad_token.value_or(SIZE_MAX), *part.first_bad_token);
    }
    if (part.excess <= whole->excess) return;
    whole->excess = part.excess, whole->allowed = part.allowed;
    whole->token = part.token, whole->index = part.index;
    whole->worst = std::move(part.worst);
  }

  Side found_, expected_;
  reference::Threads threads_;
  std::optional<std::size_t> op_;
};

// The difference over what is allowed. A value that is not finite on both sides came in with the inputs.
double excess_of(float oracle, float found, float allowed) {
  if (found == oracle || (!std::isfinite(found) && !std::isfinite(oracle))) return 0;
  const double difference = std::abs(static_cast<double>(found) - oracle);
  return std::isfinite(difference) && allowed > 0 ? difference / allowed : HUGE_VAL;
}

}  // namespace

OpError judge_values(std::span<const float> oracle, std::span<const float> found,
                     std::span<const float> allowed, std::size_t width, double largest) {
  OpError error;
  error.token_errors.resize(width == 0 ? 0 : oracle.size() / width);
  std::vector<double> worst;  // excesses of error.worst
  for (std::size_t i = 0; i < oracle.size(); ++i) {
    const std::size_t token = i / width, index = i % width;
    const double excess = excess_of(oracle[i], found[i], allowed[i]);
    if (excess == 0) continue;
    const double share =
        std::isfinite(found[i]) ? std::abs(static_cast<double>(found[i]) - oracle[i]) / largest : HUGE_VAL;
    error.error = std::max(error.error, share);
    error.token_errors[token] = std::max(error.token_errors[token], static_cast<float>(share));
    if (excess > 1 && !error.first_bad_token) error.first_bad_token = token;
    if (excess > error.excess) {
      error.excess = excess, error.token = token, error.index = index;
      error.allowed = allowed[i] / largest;
    }
    if (worst.size() == kMostWorst && excess <= worst.back()) continue;
    const auto place = std::find_if(worst.begin(), worst.end(), [&](double e) { return excess > e; });
    error.worst.insert(error.worst.begin() + (place - worst.begin()), {token, index, oracle[i], found[i]});
    worst.insert(place, excess);
    if (worst.size() > kMostWorst) worst.pop_back(), error.worst.pop_back();
  }
  return error;
}

bool can_keep(const Plan& plan, std::size_t tokens) {
  constexpr std::uint64_t kMostKeptBytes = std::uint64_t{2} << 30;
  std::uint64_t row = 0;
  for (const Value& value : plan.values) row += value.width;
  return row * sizeof(float) * tokens <= kMostKeptBytes;
}

Status judge_ops(std::vector<StageComparison>& stages, const Plan& plan, const Weights& weights,
                 const RunRows& found, const RunRows& expected, std::size_t threads) {
  Judge judge(plan, weights, found, expected, threads);
  DOPPLER_TRY(judge.prepare(threads));
  for (StageComparison& c : stages) {
    if (c.stage == Stage::kNone) continue;
    std::size_t column = 0;
    for (const Stage part : parts_of(c.key)) {
      DOPPLER_TRY(judge.judge(c, part, column));
      column += stage_width(plan, part, c.layer);
    }
  }
  for (StageComparison& c : stages) {
    const bool right = c.execution && c.execution->agrees() && c.description && c.description->agrees();
    if (!right) break;
    c.explained = true;
  }
  return {};
}

}  // namespace doppler::diagnosis
