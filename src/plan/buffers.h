// BufferPlan: where each activation lives. Values whose lifetimes do not overlap share memory, and an op that
// reads each element before it writes it may write over an input that dies there, so that a step needs a few
// rows of the widest values instead of one buffer per stage of every layer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace doppler {

// Two arenas, one per Rows: all tokens of a step, and those whose logits are wanted. Offsets and extents
// count floats per row; with room for n rows an arena has extent * n floats and a value begins at offset * n,
// its rows side by side.
struct BufferPlan {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;
  // By ValueId; kNowhere for values that no op outputs (emitted on demand).
  std::vector<std::uint64_t> offsets;
  std::array<std::uint64_t, 2> extents = {0, 0};  // by Rows

  std::uint64_t extent(Rows rows) const { return extents[static_cast<std::size_t>(rows)]; }
};

// Needs a plan that check_plan accepts. Linear in the plan but for the handful of values alive at a time.
BufferPlan plan_buffers(const Plan& plan);

}  // namespace doppler
