// What a model is, for the public ModelInfo.
#pragma once

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/info.h"
#include "model/family.h"
#include "plan/plan.h"

namespace doppler {

// `options` as a backend of this plan has them, with the type of keys and values chosen. Errors: kLimit for
// sizes that overflow.
Result<ModelInfo> describe(const Model& model, const Plan& plan, const BackendOptions& options);

}  // namespace doppler
