#include "diagnosis/compare/op_errors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

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
      : found_(found),
        expected_(expected),
        found_ops_(plan, weights, found.rows),
        expected_ops_(plan, weights, expected.rows),
        threads_(threads) {}

  Status judge(StageComparison& c, Stage stage, std::size_t column) {
    const std::optional<std::size_t> op = found_ops_.find(stage, c.layer);
    if (!op) return {};
    DOPPLER_TRY(run(*op));
    compare(c, *op, column);
    return {};
  }

 private:
  struct Side {
    std::optional<std::vector<float>> oracle, allowed, values;
  };

  // Both sides on the oracle; kept for the next stage, which may ask for the same op under another name.
  Status run(std::size_t op) {
    if (op_ == op) return {};
    op_ = op;
    found_side_ = {}, expected_side_ = {};
    std::optional<OpSetup> found, expected;
    DOPPLER_TRY(prepare(found_ops_, op, found, found_side_));
    DOPPLER_TRY(prepare(expected_ops_, op, expected, expected_side_));
    const bool together =
        found && expected && found->kind != OpKind::kAttention && found_.arithmetic == expected_.arithmetic;
    if (!together) {
      if (found) DOPPLER_TRY(compute(*found, found_.arithmetic, found_side_));
      if (expected) DOPPLER_TRY(compute(*expected, expected_.arithmetic, expected_side_));
      return {};
    }
    Side both;
    DOPPLER_TRY(compute(join_setups(*found, *expected), found_.arithmetic, both));
    split(*both.oracle, found_side_.oracle, expected_side_.oracle);
    split(*both.allowed, found_side_.allowed, expected_side_.allowed);
    return {};
  }

  static Status prepare(OpExperiment& experiment, std::size_t op, std::optional<OpSetup>& setup, Side& side) {
    if (!experiment.missing(op).empty()) return {};
    DOPPLER_ASSIGN(setup, experiment.setup(op));
    if (const auto values = experiment.recorded(op)) side.values = *values;
    return {};
  }

  Status compute(const OpSetup& setup, const Arithmetic& arithmetic, Side& side) {
    DOPPLER_ASSIGN(side.oracle, run_setup(setup, threads_));
    DOPPLER_ASSIGN(side.allowed, allowance(setup, arithmetic, threads_));
    return {};
  }

  static void split(const std::vector<float>& both, std::optional<std::vector<float>>& first,
                    std::optional<std::vector<float>>& second) {
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
    first.emplace(both.begin(), middle);
    second.emplace(middle, both.end());
  }

  void compare(StageComparison& c, std::size_t op, std::size_t column) {
    const Plan& plan = found_ops_.plan();
    const std::size_t width = plan.values[plan.ops[op].outputs[0]].width;
    const auto judge_side = [&](const Side& side, std::optional<OpError>& error) {
      if (!side.oracle || !side.values) return;
      merge(error, judge_values(*side.oracle, *side.values, *side.allowed, width, c.largest), column);
    };
    judge_side(found_side_, c.execution);
    judge_side(expected_side_, c.description);
    if (found_side_.oracle && expected_side_.oracle) {
      double most = c.inherited.value_or(0);
      for (std::size_t i = 0; i < found_side_.oracle->size(); ++i) {
        const double difference =
            std::abs(static_cast<double>((*found_side_.oracle)[i]) - (*expected_side_.oracle)[i]);
        most = std::max(most, std::isnan(difference) ? HUGE_VAL
                              : difference == 0      ? 0
                                                     : difference / c.largest);
      }
      c.inherited = most;
    }
    for (const OpExperiment* experiment : {&found_ops_, &expected_ops_}) {
      const std::vector<std::string> names = experiment->missing(op);
      if (names.empty() || !c.untold.empty()) continue;
      c.untold = fmt::format("{} {} {}, so that this op cannot be judged by itself",
                             experiment == &found_ops_ ? "the run has no" : "the recording has no",
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
    if (part.first_bad_token) {
      whole->first_bad_token = std::min(whole->first_bad_token.value_or(SIZE_MAX), *part.first_bad_token);
    }
    if (part.excess <= whole->excess) return;
    whole->excess = part.excess, whole->allowed = part.allowed;
    whole->token = part.token, whole->index = part.index;
    whole->worst = std::move(part.worst);
  }

  const RunRows &found_, &expected_;
  OpExperiment found_ops_, expected_ops_;
  reference::Threads threads_;
  std::optional<std::size_t> op_;
  Side found_side_, expected_side_;
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
