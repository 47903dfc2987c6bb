// Two changes at once along a chain: where a description is wrong in two values between the same two recorded
// stages, neither repair alone restores agreement.
#include <algorithm>
#include <cmath>
#include <map>

#include "diagnosis/doctor/chain_repairs.h"

namespace doppler::diagnosis {
namespace {

// So many values of each cause are tried with every second change: those that leave least of the error, which
// one of the two that are right mostly does.
constexpr std::size_t kOfEachCause = 4;
// What no two explain in some chains is not searched for in every one, and this share of the time that is
// left is for what comes after.
constexpr std::size_t kMostFailures = 2;
constexpr double kKept = 0.35;

// Repairs with hundreds of values come second only.
bool may_come_first(const Repair& repair) {
  if (repair.kind == OpKind::kAdd) return repair.reach >= Reach::kChain;  // norms that the plan lacks
  return repair.reach == Reach::kOps && !repair.joint && repair.attempt != repairs::rope_scaling &&
         repair.attempt != repairs::rope_position;
}

}  // namespace

// The only op of its kind: in a chain of one layer, its attention.
bool ChainRepairs::is_alone(const OpChain& chain, const Group& group) const {
  const Plan& plan = context_.experiment.plan();
  const OpKind kind = plan.ops[group.ops.front()].kind;
  return group.ops.size() == 1 &&
         std::ranges::count_if(chain.ops(), [&](std::size_t op) { return plan.ops[op].kind == kind; }) == 1;
}

std::vector<ChainRepairs::Again> ChainRepairs::attempts_on(const OpChain& chain, const OpCase::ChainEnd& end,
                                                           const Group& group) {
  std::vector<Again> all;
  for (const Repair& repair : all_repairs()) {
    if (repair.kind != context_.experiment.plan().ops[group.ops.front()].kind || !may_come_first(repair))
      continue;
    auto opcase = OpCase::open_along(context_, chain, group.ops, end);
    if (!opcase || seconds_left_() < 0) return all;
    opcase->stop_when([this] { return seconds_left_() < 0; });
    repair.attempt(*opcase);
    for (std::size_t i = 0; i < opcase->attempts().size(); ++i)
      all.push_back({group.ops, &repair, i, opcase->attempts()[i]});
  }
  return all;
}

// What explained other chains, then what leaves least of the error here.
std::vector<ChainRepairs::Again> ChainRepairs::likeliest_firsts(const OpChain& chain,
                                                                const OpCase::ChainEnd& end,
                                                                const std::vector<Group>& groups) {
  std::vector<Again> all;
  for (const Group& group : groups) {
    const bool sum = context_.experiment.plan().ops[group.ops.front()].kind == OpKind::kAdd;
    if (!group.alike && !sum && !is_alone(chain, group)) continue;
    std::ranges::move(attempts_on(chain, end, group), std::back_inserter(all));
  }
  const auto known = [&](const Again& again) {
    return std::ranges::any_of(known_, [&](const Fit& fit) {
      return fit.repair == again.repair && fit.attempt.says == again.attempt.says;
    });
  };
  const auto error = [](const Again& again) {
    return std::isfinite(again.attempt.ratio) ? again.attempt.ratio : INFINITY;
  };
  std::ranges::stable_sort(all, {}, error);
  std::map<std::string, std::size_t> of_cause;
  std::vector<std::pair<std::size_t, Again>> ranked;
  for (Again& again : all) {
    const std::size_t rank = known(again) ? 0 : 1 + of_cause[again.attempt.cause]++;
    if (rank <= kOfEachCause) ranked.emplace_back(rank, std::move(again));
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& one) { return one.first; });
  all.clear();
  for (auto& [rank, again] : ranked) all.push_back(std::move(again));
  return all;
}

// With the first change in place, every repair of all groups, or of single ops.
Status ChainRepairs::try_second(const OpChain& chain, const OpCase::ChainEnd& end,
                                const std::vector<Group>& groups, const Again& first, bool alike,
                                std::vector<TwoFits>& fits) {
  DOPPLER_ASSIGN(OpCase opcase, OpCase::open_along(context_, chain, first.ops, end));
  Status status;
  opcase.watch(first.number, [&](const OpChange& change) {
    OpChain changed = chain;
    changed.change_first(first.ops, change);
    for (Group group : groups) {
      group.alike = group.alike || (alike && is_alone(chain, group));  // all that the description says it of
      if (group.alike != alike || !status) continue;
      std::vector<Fit> found;
      status = attempt(changed, end, group, found, false);
      for (Fit& fit : found) {
        // One cause is one change, but for norms that are lacking in two places.
        const bool apart = fit.ops != first.ops && first.repair->kind == OpKind::kAdd;
        if (fit.attempt.cause != first.attempt.cause || apart) fits.push_back({first, std::move(fit)});
      }
    }
  });
  // The attempts before it are not needed again.
  opcase.stop_when([] { return true; });
  first.repair->attempt(opcase);
  return status;
}

ChainExplanation ChainRepairs::conclude_two(const TwoFits& two) {
  ChainExplanation result;
  result.ops = two.first.ops;
  result.explanation.attempt = two.first.attempt;
  result.explanation.confidence = 0.8 * two.first.attempt.weight * two.second.attempt.weight;
  result.second = two.second.attempt;
  result.second_ops = two.second.ops;
  return result;
}

Result<std::optional<ChainExplanation>> ChainRepairs::explain_by_two(const OpChain& chain,
                                                                     const OpCase::ChainEnd& end,
                                                                     bool alike) {
  if (seconds_left_() < 0) return std::nullopt;
  if (!two_until_) two_until_ = kKept * seconds_left_();
  const auto no_time = [&] { return seconds_left_() < *two_until_; };
  const std::vector<Group> all = groups(chain);
  // Other chains may have told by now what one of the two does alone.
  std::vector<Fit> single;
  DOPPLER_TRY(attempt_known(chain, end, all, single));
  if (!single.empty()) return conclude(chain, std::move(single), misfit_of(chain, end));
  const bool given_up = two_failed_[alike] >= kMostFailures || no_time();
  if (given_up && !known_two_) return std::nullopt;
  std::vector<TwoFits> fits;
  std::vector<Again> firsts = likeliest_firsts(chain, end, all);
  if (known_two_) {  // the same two, in another layer
    const auto is_known = [&](const Again& again) {
      return again.repair == known_two_->first.repair && again.attempt.says == known_two_->first.attempt.says;
    };
    std::ranges::stable_partition(firsts, is_known);
    if (given_up) std::erase_if(firsts, [&](const Again& again) { return !is_known(again); });
  }
  for (const Again& first : firsts) {
    if (fits.empty() && (given_up || !no_time()))
      DOPPLER_TRY(try_second(chain, end, all, first, alike, fits));
  }
  if (fits.empty()) {
    ++two_failed_[alike];
    return std::nullopt;
  }
  const auto best =
      std::ranges::min_element(fits, {}, [](const TwoFits& two) { return two.second.attempt.ratio; });
  known_two_ = *best;
  known_.push_back({best->first.ops, best->first.repair, best->first.attempt});
  known_.push_back(best->second);
  return conclude_two(*best);
}

}  // namespace doppler::diagnosis
