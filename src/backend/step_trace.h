// The trace category kv: what each step does to the cache.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace doppler {

// A step appends `tokens` tokens from `start` on to a slot's sequence. Ask trace_wanted() first; the step is
// trace_step().
void trace_kv(const Plan& plan, const BackendOptions& options, std::uint32_t slot, std::uint64_t start,
              std::uint64_t tokens);

}  // namespace doppler
