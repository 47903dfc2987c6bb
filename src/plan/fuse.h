// Fusion passes: rewrites of a plan that a backend asks for by name. Stages that a fused op swallows stay
// readable through its emitting variant (Op::emits).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan.h"

namespace doppler {

struct FusionPass {
  std::string_view name;
  std::string_view does;
  void (*apply)(Plan& plan);
};

std::span<const FusionPass> all_fusion_passes();

// Applies the named passes in order, but for those in `disabled`, and checks the result.
// Errors: kUsage for a name that is no pass, listing them.
Status fuse_plan(Plan& plan, const Weights& weights, std::span<const std::string_view> passes,
                 std::span<const std::string> disabled);

}  // namespace doppler
