#include "model/family.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/rdrr_manifest.h"
#include "model/arrange.h"
#include "model/expert_files.h"
#include "model/families/hybrid.h"
#include "model/families/rules.h"
#include "model/gguf_recurrent.h"
#include "model/gguf_rows.h"
#include "model/guess/guess.h"
#include "model/quantized_folder.h"
#include "model/rdrr_description.h"
#include "model/special_ids.h"

namespace doppler {

std::span<const FamilyRule* const> all_families() {
  static constexpr auto kFamilies = std::to_array<const FamilyRule*>(
      {&kLlamaRule,      &kMistralRule,    &kQwen2Rule,         &kQwen3Rule,       &kPhi3Rule,
       &kGemmaRule,      &kGemma2Rule,     &kGemma3Rule,        &kGemma3nRule,     &kGemma4Rule,
       &kDeepseekV2Rule, &kDeepseekV3Rule, &kMistral4Rule,      &kGlm4MoeLiteRule, &kOlmo2Rule,
       &kOlmo3Rule,      &kGraniteRule,    &kSmolLm3Rule,       &kGlm4Rule,        &kCohereRule,
       &kCohere2Rule,    &kPhiRule,        &kStarcoder2Rule,    &kStableLmRule,    &kExaone4Rule,
       &kSeedOssRule,    &kErnie45Rule,    &kHunyuanDenseRule,  &kNemotronRule,    &kMinistral3Rule,
       &kGpt2Rule,       &kGptNeoXRule,    &kFalconRule,        &kApertusRule,     &kMixtralRule,
       &kQwen2MoeRule,   &kQwen3MoeRule,   &kGptOssRule,        &kOlmoeRule,       &kGlm4MoeRule,
       &kGraniteMoeRule, &kMinimaxM2Rule,  &kErnie45MoeRule,    &kHunyuanMoeRule,  &kPhimoeRule,
       &kLfm2Rule,       &kQwen35Rule,     &kGraniteHybridRule, &kMamba2Rule,      &kFalconH1Rule,
       &kNemotronHRule,  &kLfm2MoeRule,    &kQwen35MoeRule,     &kQwen3NextRule,   &kMambaRule,
       &kJambaRule,      &kLlama4Rule});
  return kFamilies;
}

const FamilyRule* family_named(std::string_view name) {
  const auto found = std::ranges::find(all_families(), name, &FamilyRule::name);
  return found == all_families().end() ? nullptr : *found;
}

namespace {

// Null for a type that no family has.
const FamilyRule* family_of_type(std::string_view type) {
  const auto has = [type](const FamilyRule* rule) {
    return std::ranges::find(rule->model_types, type) != rule->model_types.end();
  };
  const auto found = std::ranges::find_if(all_families(), has);
  return found == all_families().end() ? nullptr : *found;
}

// A multimodal model's own type may be unknown where that of its language half is not.
Result<const FamilyRule*> find_family(const ConfigReader& config, std::string_view wanted) {
  if (!wanted.empty()) {
    if (const FamilyRule* rule = family_named(wanted)) return rule;
    std::vector<std::string> names;
    for (const FamilyRule* rule : all_families()) names.emplace_back(rule->name);
    names.emplace_back(kGuessFamily);
    return fail(ErrorCode::kUsage, "There is no family {}. Give one of {}.", printable(wanted),
                join(names, ", "));
  }
  DOPPLER_ASSIGN(const std::optional<std::string> type, config.get_string("model_type"));
  DOPPLER_ASSIGN(const std::optional<std::string> text, config.get_string("text_config.model_type"));
  for (const auto& name : {type, text}) {
    if (!name) continue;
    if (const FamilyRule* family = family_of_type(*name)) return family;
  }
  std::vector<std::string> known;
  for (const FamilyRule* rule : all_families())
    known.insert(known.end(), rule->model_types.begin(), rule->model_types.end());
  if (!type) {
    return fail(ErrorCode::kCorrupt, "The {} has no model_type. Check that it is a model's config.json.",
                config.source());
  }
  const std::string nearest = nearest_name(*type, known);
  return fail(ErrorCode::kUnsupported,
              "The {} names the architecture {}, which is none of the {} that Doppler knows{}. With --family "
              "guess it infers "
              "the decoder from keys and tensors; with --family NAME it takes it for a model of that family.",
              config.source(), printable(*type), known.size(),
              nearest.empty() ? std::string() : fmt::format("; the nearest is {}", nearest));
}

}  // namespace

namespace {

// A description without rope values, completed by those of the family's class.
struct Completed {
  Json json;
  KeyOrigins origins;
};

void note_default(const std::string& path, const Json& value, const FamilyRule& family, KeyOrigins& origins) {
  origins[path] = {path, fmt::format("default of the {} family", family.name)};
  if (!value.is_object()) return;
  for (auto member = value.begin(); member != value.end(); ++member)
    note_default(path + "." + member.key(), *member, family, origins);
}

Completed complete_rope(const Json& config, const FamilyRule& family) {
  Completed completed{config, {}};
  Json& rope = completed.json["rope_parameters"];
  rope = Json::parse(family.absent_rope);
  note_default("rope_parameters", rope, family, completed.origins);
  return completed;
}

bool lacks_rope(const ConfigReader& reader, const FamilyRule& family) {
  return !family.absent_rope.empty() && !reader.has("rope_parameters") && !reader.has("rope_scaling");
}

}  // namespace

Result<ModelSpec> read_spec(const Json& config, const Json* generation_config, std::string_view wanted) {
  const ConfigReader top(config, "config.json");
  DOPPLER_ASSIGN(const FamilyRule* family, find_family(top, wanted));
  DOPPLER_ASSIGN(const std::optional<ConfigReader> text, top.get_object("text_config"));
  const ConfigReader& given = text ? *text : top;
  Completed completed;
  if (lacks_rope(given, *family)) completed = complete_rope(given.json(), *family);
  const ConfigReader reader =
      completed.origins.empty() ? given : ConfigReader(completed.json, given.source(), &completed.origins);
  ModelSpec spec;
  SpecBuilder builder(reader, spec, std::string(family->name));
  DOPPLER_TRY(family->fill(builder));
  // generation_config.json goes before config.json; a multimodal config may hold the ids outside text_config.
  std::vector<ConfigReader> readers;
  if (generation_config != nullptr) readers.emplace_back(*generation_config, "generation_config.json");
  readers.push_back(reader);
  if (text) readers.push_back(top);
  DOPPLER_TRY(read_special_ids(readers, spec));
  return spec;
}

namespace {

// Some families' folders hold the experts of a layer one by one or stacked; these name the stack of downs.
bool holds_stacked_experts(const ModelSpec& spec, const WeightNames& names, const TensorStore& store) {
  const bool may = std::ranges::any_of(names.own, [](const WeightName& own) {
    return own.role == WeightRole::kDownExperts && own.goes_with == WeightCondition::kFusedExperts;
  });
  const auto layer = std::ranges::find_if(spec.layers, [](const LayerSpec& l) { return l.ffn.experts > 0; });
  if (!may || layer == spec.layers.end()) return false;
  const auto index = static_cast<int>(layer - spec.layers.begin());
  const std::string name = weight_name(names, WeightRole::kGateUpExperts, index, &spec);
  return store.find(nested_name(find_nesting(names, store), name)) != nullptr;
}

}  // namespace

Result<Weights> bind_folder(ModelSpec& spec, TensorStore& store) {
  const WeightNames& names = family_named(spec.family)->weight_names;
  DOPPLER_TRY(restore_experts(spec, names, store));
  if (!spec.fused_experts) spec.fused_experts = holds_stacked_experts(spec, names, store);
  DOPPLER_TRY(arrange_weights(spec, names, store));
  DOPPLER_TRY(read_numbers(names, store, spec));
  return bind_weights(spec, names, store);
}

namespace {

Result<Model> load_gguf(ModelFiles files) {
  Model model;
  model.files = std::move(files);
  DOPPLER_ASSIGN(model.spec, read_gguf_spec(*model.files.gguf, model.files.tensors));
  const GgufRule& rule = family_named(model.spec.family)->gguf;
  if (rule.paired_rows) DOPPLER_TRY(restore_row_order(model.spec, rule.weight_names, model.files.tensors));
  DOPPLER_TRY(restore_recurrent(model.spec, rule.weight_names, model.files.tensors));
  DOPPLER_ASSIGN(model.weights, bind_weights(model.spec, rule.weight_names, model.files.tensors));
  return model;
}

// An RDRR manifest may describe the decoder itself, and name no type that a family has.
bool is_described_by_manifest(const ModelFiles& files) {
  if (files.rdrr == nullptr) return false;
  const auto type = files.config->find("model_type");
  return type != files.config->end() && type->is_string() &&
         family_of_type(type->get_ref<const std::string&>()) == nullptr &&
         files.rdrr->document->contains("inference");
}

Result<Model> load_guessed(ModelFiles files) {
  Model model;
  model.files = std::move(files);
  const Json* generation = model.files.generation_config ? &**model.files.generation_config : nullptr;
  DOPPLER_ASSIGN(GuessedModel guessed,
                 guess_model(*model.files.config, generation, model.files.tensors,
                             model.files.rdrr != nullptr ? "manifest.json" : "config.json"));
  model.spec = std::move(guessed.spec);
  model.weights = std::move(guessed.weights);
  if (model.files.rdrr != nullptr) {
    log(Level::kWarn, "Loader",
        "What this decoder computes follows from the manifest's inference and the tensors' names: doppler "
        "inspect shows it, doppler doctor --reference FILE judges it.");
    return model;
  }
  log(Level::kWarn, "Loader",
      "What this decoder computes is a guess from config.json and the tensors' names: doppler inspect shows "
      "it with "
      "reasons, doppler doctor --reference FILE judges it.");
  return model;
}

}  // namespace

namespace {

Result<Model> bind_any(ModelFiles files, std::string_view family) {
  Model model;
  model.files = std::move(files);
  if (model.files.gguf) {
    if (family.empty()) return load_gguf(std::move(model.files));
    return fail(ErrorCode::kUsage,
                "A GGUF file says its architecture, so a family ({}) has no effect with it. Leave it out.",
                printable(family));
  }
  DOPPLER_TRY(check_quantization(*model.files.config));
  if (family == kGuessFamily || (family.empty() && is_described_by_manifest(model.files)))
    return load_guessed(std::move(model.files));
  const Json* generation = model.files.generation_config ? &**model.files.generation_config : nullptr;
  DOPPLER_ASSIGN(model.spec, read_spec(*model.files.config, generation, family));
  DOPPLER_ASSIGN(model.weights, bind_folder(model.spec, model.files.tensors));
  return model;
}

// The manifest says a second time what config and tensors say.
Status check_manifest(const RdrrManifest& manifest, const Model& model) {
  DOPPLER_ASSIGN(const std::vector<std::string> differences,
                 compare_rdrr_description(manifest, model.spec, model.files.tensors));
  for (const std::string& sentence : differences) log(Level::kWarn, "Loader", "{}", sentence);
  return {};
}

}  // namespace

Result<Model> bind_model(ModelFiles files, std::string_view family) {
  DOPPLER_ASSIGN(Model model, bind_any(std::move(files), family));
  if (model.files.rdrr != nullptr) DOPPLER_TRY(check_manifest(*model.files.rdrr, model));
  return model;
}

Result<Model> load_model(const std::filesystem::path& path, std::string_view family) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(path));
  return bind_model(std::move(files), family);
}

}  // namespace doppler
