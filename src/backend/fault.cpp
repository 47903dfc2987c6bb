#include "backend/fault.h"

namespace doppler {

Result<const StepInput*> as_seen(Fault& fault, const Op& op, Fault::Moment moment, const StepInput& step,
                                 const Plan& plan, const BackendOptions& options) {
  const StepInput& seen = fault.seen_by(op, moment, step);
  bool exists = seen.size() == step.size() && seen.positions.size() == step.size() &&
                seen.slots.size() == step.size() && seen.wants_logits == step.wants_logits;
  for (std::size_t t = 0; exists && t < step.size(); ++t) {
    exists = seen.ids[t] >= 0 && static_cast<std::uint32_t>(seen.ids[t]) < plan.vocab_size &&
             seen.slots[t] >= 0 && static_cast<std::uint32_t>(seen.slots[t]) < options.slots &&
             seen.positions[t] >= 0 && static_cast<std::uint64_t>(seen.positions[t]) < options.context;
  }
  if (!exists) return fail(ErrorCode::kInternal, "A fault makes a step of tokens that do not exist.");
  return &seen;
}

}  // namespace doppler
