// Fills the public ModelInfo: description and memory of a model.
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/info.h"
#include "model/family.h"
#include "plan/plan.h"

namespace doppler {

// `options`: those of a backend that runs this plan, with the type of keys and values already chosen. Errors:
// kLimit for sizes that overflow.
Result<ModelInfo> describe(const Model& model, const Plan& plan, const BackendOptions& options);

}  // namespace doppler
