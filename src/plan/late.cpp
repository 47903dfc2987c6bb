#include "plan/late.h"

#include <algorithm>

#include "plan/residual.h"

namespace doppler {
namespace {

// Whether a row of its result depends on other rows, on the token's id, position or slot, or is kept for
// later steps.
bool looks_around(OpKind kind) {
  constexpr OpKind kKinds[] = {OpKind::kEmbed, OpKind::kRope, OpKind::kAttention, OpKind::kScaleQuery,
                               OpKind::kSelect};
  return keeps_state(kind) || std::ranges::count(kKinds, kind) > 0;
}

}  // namespace

LateOps find_late_ops(const Plan& plan, const std::function<bool(std::size_t op)>& may_begin) {
  const auto select = std::ranges::find(plan.ops, OpKind::kSelect, &Op::kind);
  LateOps late;
  late.select = late.first = static_cast<std::size_t>(select - plan.ops.begin());
  if (select == plan.ops.end()) return late;
  while (late.first > 0 && !looks_around(plan.ops[late.first - 1].kind)) --late.first;
  while (late.first < late.select && !may_begin(late.first)) ++late.first;
  std::vector<bool> made(plan.values.size());
  for (std::size_t i = 0; i < late.first; ++i) {
    for (const ValueId id : plan.ops[i].outputs) made[id] = true;
  }
  for (std::size_t i = late.first; i < plan.ops.size(); ++i) {
    for (const ValueId id : plan.ops[i].inputs) {
      if (!made[id]) continue;
      late.read.push_back(id);
      made[id] = false;  // once is enough
    }
  }
  return late;
}

bool is_looked_at(const Plan& plan, const LateOps& late, const std::function<bool(Stage, int)>& wants) {
  bool seen = false;
  const auto look = [&](Stage stage, int layer) { seen = seen || wants(stage, layer); };
  for (std::size_t i = late.first; i < late.select; ++i) {
    for (const auto* values : {&plan.ops[i].outputs, &plan.ops[i].emits}) {
      for (const ValueId id : *values) for_each_name(plan, plan.values[id], look);
    }
  }
  return seen;
}

}  // namespace doppler
