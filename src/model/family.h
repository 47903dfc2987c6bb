// FamilyRule: a model family as data, and the registry of all of them.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "formats/model_files.h"
#include "model/spec.h"
#include "model/spec_builder.h"
#include "model/weights.h"

namespace doppler {

struct FamilyRule {
  std::string_view name;
  std::span<const std::string_view> model_types;  // config.json: model_type
  Status (*fill)(SpecBuilder& builder);           // reads everything but the special ids
  std::span<const WeightName> weight_names;
};

std::span<const FamilyRule* const> all_families();

// A model ready to be planned: its files stay mapped as long as this lives.
struct Model {
  ModelFiles files;
  ModelSpec spec;
  Weights weights;
};

// The spec of a config.json (with text_config inside, if it is a multimodal one) and generation_config.json.
Result<ModelSpec> read_spec(const Json& config, const Json* generation_config);

// Opens, reads and binds. Errors: those of open_model_files, read_spec and bind_weights.
Result<Model> load_model(const std::filesystem::path& path);

}  // namespace doppler
