// The reference backend: the plan in plain loops with double accumulation. All others are compared with it.
#pragma once

#include "backend/backend.h"

namespace doppler {

Result<std::unique_ptr<Backend>> make_reference_backend(const ModelSpec& spec, const Weights& weights,
                                                        const BackendOptions& options);

// The same for a plan that was built elsewhere, or changed after it was built. Errors: those of check_plan.
Result<std::unique_ptr<Backend>> make_reference_backend_for_plan(Plan plan, const Weights& weights,
                                                                 const BackendOptions& options);

}  // namespace doppler
