// The trace category kv: what each step does to the cache.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace doppler {

// The tokens that a step appends to a slot's sequence: `tokens` of them, from position `start` on.
struct Appended {
  std::uint32_t slot = 0;
  std::uint64_t start = 0, tokens = 0;
  std::int64_t step = -1;  // StepInput::trace_step
};
// Ask trace_wanted() first.
void trace_kv(const Plan& plan, const BackendOptions& options, const Appended& appended);

// The same for every slot of a step that check_step accepts, where it is wanted.
void trace_kv(const Plan& plan, const BackendOptions& options, const StepInput& input,
              std::span<const std::uint64_t> lengths);

}  // namespace doppler
