// The end of the plan that only rows with wanted logits need: behind the last op that looks at other tokens,
// or at what a token is, each row goes its own way. A prompt wants the logits of one token of hundreds.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "plan/plan.h"

namespace doppler {

struct LateOps {
  // Ops [first, select): each computes a row from the same row of its inputs. `select` is where the wanted
  // rows are taken, or the plan's end.
  std::size_t first = 0, select = 0;
  // Values with a row for each token that ops before leave to these ops and to the selection.
  std::vector<ValueId> read;
};

// The longest such end that begins at an op that `may_begin` accepts.
LateOps find_late_ops(const Plan& plan, const std::function<bool(std::size_t op)>& may_begin);

// Whether somebody who wants these stages looks at a value of theirs, or at one that a fused op swallowed.
bool is_looked_at(const Plan& plan, const LateOps& late, const std::function<bool(Stage, int)>& wants);

}  // namespace doppler
