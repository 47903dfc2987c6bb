// Fills the public ModelInfo: description and memory of a model.
#pragma once

#include <filesystem>

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/doppler.h"
#include "model/family.h"
#include "plan/plan.h"

namespace doppler {

// `options`: those of a backend that runs this plan, with the type of keys and values already chosen. Errors:
// kLimit for sizes that overflow.
Result<ModelInfo> describe(const Model& model, const Plan& plan, const BackendOptions& options);

// A model that is opened without a backend, with the unfused plan that the options ask for. Errors: those of
// load_model_for_description, backend_options and build_plan.
struct DescribedModel {
  Model model;
  Plan plan;
  ModelInfo info;
};
Result<DescribedModel> describe_files(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace doppler
