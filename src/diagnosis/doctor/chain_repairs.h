// Repairs tried along a chain of ops: on each op, on several at once where a description says the same of
// all, and on two that may have each other's weights. What is judged is the chain's end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "diagnosis/compare/op_chain.h"
#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis {

struct ChainExplanation {
  Explanation explanation;          // cause "unknown" if nothing fits
  std::vector<std::size_t> ops;     // that the repair changes; empty: unknown
  std::vector<std::string> also;    // what else would explain it: "q_rope of layer 0 when ..."
  std::vector<std::size_t> others;  // ops of those explanations
  // What is wrong besides, in the same chain: only both together explain it.
  std::optional<Attempt> second;
  std::vector<std::size_t> second_ops;
};

class ChainRepairs {
 public:
  // `seconds_left`: no further repair is tried when it is negative.
  ChainRepairs(OpCase::Context context, std::function<double()> seconds_left)
      : context_(context), seconds_left_(std::move(seconds_left)) {}

  // Tries what explained an earlier chain first: one cause shows in many layers.
  Result<ChainExplanation> explain(const OpChain& chain, const OpCase::ChainEnd& end);
  // For a chain that nothing explained: two changes at once, those that explained other chains first. Nothing
  // if no two do.
  // `alike`: the second is of several ops by one description; else of a single op, which takes longer.
  Result<std::optional<ChainExplanation>> explain_by_two(const OpChain& chain, const OpCase::ChainEnd& end,
                                                         bool alike);

 private:
  // Ops that are changed alike.
  struct Group {
    std::vector<std::size_t> ops;
    bool alike = false;  // several by one description, so that only repairs of Reach::kOps are tried
  };
  struct Fit {
    std::vector<std::size_t> ops;
    const Repair* repair = nullptr;  // null: two weights exchanged
    Attempt attempt;
  };
  // An attempt that can be made again: the one of its repair's with this number.
  struct Again {
    std::vector<std::size_t> ops;
    const Repair* repair = nullptr;
    std::size_t number = 0;
    Attempt attempt;
  };
  struct TwoFits {
    Again first;
    Fit second;
  };
  bool is_alone(const OpChain& chain, const Group& group) const;
  std::vector<Again> attempts_on(const OpChain& chain, const OpCase::ChainEnd& end, const Group& group);
  std::vector<Again> likeliest_firsts(const OpChain& chain, const OpCase::ChainEnd& end,
                                      const std::vector<Group>& groups);
  Status try_second(const OpChain& chain, const OpCase::ChainEnd& end, const std::vector<Group>& groups,
                    const Again& first, bool alike, std::vector<TwoFits>& fits);
  std::vector<Group> groups(const OpChain& chain) const;
  std::vector<Stage> stages_of(std::span<const std::size_t> ops) const;
  Status attempt(const OpChain& chain, const OpCase::ChainEnd& end, const Group& group,
                 std::vector<Fit>& fits, bool joint, const Repair* only = nullptr);
  // What explained an earlier chain, in the same stages of this one.
  Status attempt_known(const OpChain& chain, const OpCase::ChainEnd& end, const std::vector<Group>& groups,
                       std::vector<Fit>& fits);
  Status attempt_all(const OpChain& chain, const OpCase::ChainEnd& end, const std::vector<Group>& groups,
                     std::vector<Fit>& fits);
  double misfit_of(const OpChain& chain, const OpCase::ChainEnd& end) const;
  ChainExplanation conclude_two(const TwoFits& two);
  Status reorder(const OpChain& chain, const OpCase::ChainEnd& end, std::vector<Fit>& fits);
  Status change_kinds(const OpChain& chain, const OpCase::ChainEnd& end, std::vector<Fit>& fits);
  Status exchange(const OpChain& chain, const OpCase::ChainEnd& end, std::vector<Fit>& fits);
  std::string lack_of_time() const;
  ChainExplanation conclude(const OpChain& chain, std::vector<Fit> fits, double misfit);

  OpCase::Context context_;
  std::function<double()> seconds_left_;
  std::optional<TwoFits> known_two_;  // of an earlier chain
  std::size_t two_failed_[2] = {};    // chains, with single ops and with alike ones
  std::optional<double> two_until_;   // seconds that are left for other things
  std::vector<Fit> known_;            // the explanations of earlier chains
  std::optional<Attempt> nearest_;
  std::size_t unknown_ = 0;  // chains that nothing explained
  bool out_of_time_ = false;
  std::size_t groups_tried_ = 0, groups_left_ = 0;  // of the chain that is being explained, when time ended
  std::chrono::steady_clock::time_point begun_;
  std::set<std::string> too_large_;  // what was not tried because each takes too long
};

}  // namespace doppler::diagnosis
