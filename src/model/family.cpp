#include "model/family.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "model/families/rules.h"

namespace doppler {

std::span<const FamilyRule* const> all_families() {
  static constexpr std::array<const FamilyRule*, 7> kFamilies = {
      &kLlamaRule, &kMistralRule, &kQwen2Rule, &kQwen3Rule, &kPhi3Rule, &kGemma2Rule, &kGemma3Rule};
  return kFamilies;
}

namespace {

Result<const FamilyRule*> find_family(const ConfigReader& config) {
  DOPPLER_ASSIGN(const std::optional<std::string> type, config.get_string("model_type"));
  std::vector<std::string> known;
  for (const FamilyRule* rule : all_families()) {
    for (const std::string_view name : rule->model_types) {
      if (type && *type == name) return rule;
      known.emplace_back(name);
    }
  }
  if (!type) {
    return fail(ErrorCode::kCorrupt, "The {} has no model_type. Check that it is a model's config.json.",
                config.source());
  }
  return fail(ErrorCode::kUnsupported, "The {} names the architecture {}, but Doppler knows {}.",
              config.source(), printable(*type), join(known, ", "));
}

// eos_token_id is a number or a list, in generation_config.json (which decides) or config.json.
Status read_eos(const ConfigReader& reader, ModelSpec& spec) {
  if (!spec.eos_ids.empty() || !reader.has("eos_token_id")) return {};
  std::vector<std::uint64_t> ids;
  if (reader.json().contains("eos_token_id") && reader.json()["eos_token_id"].is_array()) {
    DOPPLER_ASSIGN(const auto list, reader.get_uints("eos_token_id"));
    ids = list.value_or(ids);
  } else {
    DOPPLER_ASSIGN(const auto id, reader.get_uint("eos_token_id"));
    if (id) ids.push_back(*id);
  }
  std::vector<std::string> text;
  for (const std::uint64_t id : ids) {
    if (id >= spec.vocab_size) {
      return fail(ErrorCode::kCorrupt,
                  "The {} says eos_token_id = {}, but the vocabulary has {} tokens. Correct it.",
                  reader.source(), id, spec.vocab_size);
    }
    spec.eos_ids.push_back(static_cast<std::int32_t>(id));
    text.push_back(std::to_string(id));
  }
  spec.sources.push_back({"eos_token_id", join(text, ", "), reader.where("eos_token_id")});
  return {};
}

}  // namespace

Result<ModelSpec> read_spec(const Json& config, const Json* generation_config) {
  const ConfigReader top(config, "config.json");
  DOPPLER_ASSIGN(const FamilyRule* family, find_family(top));
  DOPPLER_ASSIGN(const std::optional<ConfigReader> text, top.get_object("text_config"));
  const ConfigReader& reader = text ? *text : top;
  ModelSpec spec;
  SpecBuilder builder(reader, spec, std::string(family->name));
  DOPPLER_TRY(family->fill(builder));
  if (generation_config != nullptr)
    DOPPLER_TRY(read_eos(ConfigReader(*generation_config, "generation_config.json"), spec));
  DOPPLER_TRY(read_eos(reader, spec));
  DOPPLER_TRY(read_eos(top, spec));
  return spec;
}

Result<Model> load_model(const std::filesystem::path& path) {
  Model model;
  DOPPLER_ASSIGN(model.files, open_model_files(path));
  DOPPLER_ASSIGN(model.spec,
                 read_spec(model.files.config,
                           model.files.generation_config ? &*model.files.generation_config : nullptr));
  for (const FamilyRule* rule : all_families()) {
    if (rule->name != model.spec.family) continue;
    DOPPLER_ASSIGN(model.weights, bind_weights(model.spec, rule->weight_names, model.files.tensors));
  }
  return model;
}

}  // namespace doppler
