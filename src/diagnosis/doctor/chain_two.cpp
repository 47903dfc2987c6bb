// Two changes at once along a chain: where a description is wrong in two values between the same two recorded
// stages, neither repair alone restores agreement.
#include <algorithm>
#include <cmath>

#include "diagnosis/doctor/chain_repairs.h"

namespace doppler::diagnosis {
namespace {

// So many first changes are tried with every second: those that leave least of the error.
constexpr std::size_t kFirsts = 16;
// What no two explain in some chains is not searched for in every one, and not for longer than this.
constexpr std::size_t kMostFailures = 2;
constexpr double kMostSeconds = 8;

// Repairs with hundreds of values come second only.
bool may_come_first(const Repair& repair) {
  return repair.reach == Reach::kOps && !repair.joint && repair.attempt != repairs::rope_scaling &&
         repair.attempt != repairs::rope_position;
}

}  // namespace

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
    // Ops of one kind are changed together, or one that is alone of its kind.
    const auto same_kind = [&](const Group& other) {
      const Plan& plan = context_.experiment.plan();
      return &other != &group && other.ops.size() > group.ops.size() &&
             plan.ops[other.ops.front()].kind == plan.ops[group.ops.front()].kind;
    };
    if (!group.alike && std::ranges::any_of(groups, same_kind)) continue;
    std::ranges::move(attempts_on(chain, end, group), std::back_inserter(all));
  }
  const auto known = [&](const Again& again) {
    return std::ranges::any_of(known_, [&](const Fit& fit) {
      return fit.repair == again.repair && fit.attempt.says == again.attempt.says;
    });
  };
  std::ranges::stable_sort(all, {}, [&](const Again& again) {
    return std::pair(!known(again), std::isfinite(again.attempt.ratio) ? again.attempt.ratio : INFINITY);
  });
  all.resize(std::min(all.size(), kFirsts));
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
    for (const Group& group : groups) {
      if (group.alike != alike || !status) continue;
      std::vector<Fit> found;
      status = attempt(changed, end, group, found, false);
      for (Fit& fit : found) {
        const bool same = fit.repair == first.repair && fit.ops == first.ops;
        if (!same && fit.attempt.cause != first.attempt.cause) fits.push_back({first, std::move(fit)});
      }
    }
  });
  // The attempts before it are not needed again.
  opcase.stop_when([] { return true; });
  first.repair->attempt(opcase);
  return status;
}

Result<std::optional<ChainExplanation>> ChainRepairs::explain_by_two(const OpChain& chain,
                                                                     const OpCase::ChainEnd& end) {
  if (seconds_left_() < 0 || two_failed_ >= kMostFailures || two_seconds_ > kMostSeconds) return std::nullopt;
  const auto begun = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return two_seconds_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  const std::vector<Group> all = groups(chain);
  std::vector<TwoFits> fits;
  std::vector<Again> firsts = likeliest_firsts(chain, end, all);
  if (known_two_) {  // the same two, in another layer
    std::ranges::stable_partition(firsts, [&](const Again& again) {
      return again.repair == known_two_->first.repair && again.attempt.says == known_two_->first.attempt.says;
    });
  }
  for (const bool alike : {true, false}) {
    for (const Again& first : firsts) {
      if (fits.empty() && spent() < kMostSeconds)
        DOPPLER_TRY(try_second(chain, end, all, first, alike, fits));
    }
  }
  two_seconds_ = spent();
  if (fits.empty()) {
    ++two_failed_;
    return std::nullopt;
  }
  const auto best =
      std::ranges::min_element(fits, {}, [](const TwoFits& two) { return two.second.attempt.ratio; });
  known_two_ = *best;
  ChainExplanation result;
  result.ops = best->first.ops;
  result.explanation.attempt = best->first.attempt;
  result.explanation.confidence = 0.8 * best->first.attempt.weight * best->second.attempt.weight;
  result.second = best->second.attempt;
  result.second_ops = best->second.ops;
  return result;
}

}  // namespace doppler::diagnosis
