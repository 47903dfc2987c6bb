// The trace category kv: what each step does to the cache.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace doppler {

// A step appends `tokens` tokens from `start` on to a slot's sequence. Ask trace_wanted() first; the step is
// trace_step().
void trace_kv(const Plan& plan, const BackendOptions& options, std::uint32_t slot, std::uint64_t start,
              std::uint64_t tokens);

// For those who feed a sequence without a Session: before the next tokens of a slot. An empty slot's are the
// prompt, step 0; all later ones are a step more.
void count_trace_step(const Backend& backend, std::uint32_t slot);

}  // namespace doppler
