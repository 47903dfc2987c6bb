#include "model/family.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

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

// A special token's ids, given as a number or a list; empty if the key is absent or
// says -1, which some files write for "none".
Result<std::vector<std::int32_t>> read_ids(const ConfigReader& reader, const std::string& key,
                                           std::uint32_t vocab) {
  std::vector<std::uint64_t> read;
  if (!reader.has(key) || reader.json()[key] == -1) return std::vector<std::int32_t>();
  if (reader.json()[key].is_array()) {
    DOPPLER_ASSIGN(const auto list, reader.get_uints(key));
    read = list.value_or(read);
  } else {
    DOPPLER_ASSIGN(const auto id, reader.get_uint(key));
    if (id) read.push_back(*id);
  }
  std::vector<std::int32_t> ids;
  for (const std::uint64_t id : read) {
    if (id >= vocab) {
      return fail(ErrorCode::kCorrupt,
                  "The value {} = {} is outside the vocabulary of {} tokens. Correct it.", reader.where(key),
                  id, vocab);
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

// bos, eos and pad: the first of `readers` that knows one decides.
Status read_special_ids(std::span<const ConfigReader> readers, ModelSpec& spec) {
  std::vector<std::int32_t> bos, pad;
  const std::pair<const char*, std::vector<std::int32_t>*> wanted[] = {
      {"bos_token_id", &bos}, {"eos_token_id", &spec.eos_ids}, {"pad_token_id", &pad}};
  for (const auto& [key, ids] : wanted) {
    for (const ConfigReader& reader : readers) {
      DOPPLER_ASSIGN(*ids, read_ids(reader, key, spec.vocab_size));
      if (ids->empty()) continue;
      spec.sources.push_back({key, fmt::format("{}", fmt::join(*ids, ", ")), reader.where(key)});
      break;
    }
  }
  if (!bos.empty()) spec.bos_id = bos[0];
  if (!pad.empty()) spec.pad_id = pad[0];
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
  // What generates text decides over what describes the model; a
  // multimodal file may hold them outside text_config.
  std::vector<ConfigReader> readers;
  if (generation_config != nullptr) readers.emplace_back(*generation_config, "generation_config.json");
  readers.push_back(reader);
  if (text) readers.push_back(top);
  DOPPLER_TRY(read_special_ids(readers, spec));
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
