// doppler list: the models that are on this machine, as run takes them.
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/models.h"
#include "hub/ollama.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

namespace fs = std::filesystem;

struct ListedModel {
  std::string name, type;
  std::uint64_t bytes = 0;
  std::string path, store;
  bool whole = true;
};

// A snapshot's revision as names have it: nothing for main.
std::string revision_of(const hub::CachedRepo& repo, const fs::path& snapshot) {
  const std::string commit = snapshot.filename().string();
  std::string other;
  for (const auto& [ref, to] : repo.refs()) {
    if (to != commit) continue;
    if (ref == "main") return "";
    other = "@" + ref;
  }
  if (other.empty() && repo.refs().empty() && repo.snapshots().size() == 1) return "";
  return other.empty() ? "@" + commit.substr(0, 7) : other;
}

void add_cached(const hub::CachedRepo& repo, std::vector<ListedModel>& into) {
  for (const fs::path& snapshot : repo.snapshots()) {
    const std::string name = repo.repo() + revision_of(repo, snapshot);
    const std::vector<hub::RepoFile> files = repo.files_of(snapshot);
    for (const hub::Variant& variant : hub::find_variants(files)) {
      const bool folder = variant.kind == hub::VariantKind::kSafetensors;
      const bool typed = !folder && variant.label != "gguf";
      into.push_back({name + (typed ? ":" + variant.label : ""), variant.label, variant.bytes,
                      (folder ? snapshot : snapshot / variant.path).string(), "huggingface",
                      hub::is_whole(variant, snapshot)});
    }
  }
  if (const std::uint64_t part = repo.incomplete_bytes())
    into.push_back({repo.repo(), "part", part, repo.folder().string(), "huggingface", false});
}

Result<std::vector<ListedModel>> collect_models() {
  DOPPLER_ASSIGN(const hub::Places places, hub::find_places());
  std::vector<ListedModel> models;
  for (const hub::CachedRepo& repo : hub::list_cache(places.cache)) add_cached(repo, models);
  for (const fs::path& store : places.ollama) {
    for (const hub::OllamaModel& model : hub::list_ollama(store).models) {
      const auto weights = hub::ollama_weights(model);
      models.push_back({model.typed_name(), "gguf", model.bytes(),
                        weights ? weights->string() : model.manifest.string(), "ollama",
                        weights.has_value()});
    }
  }
  return models;
}

std::string table_of(const std::vector<ListedModel>& models) {
  std::size_t name = 4, type = 4;
  for (const ListedModel& model : models) {
    name = std::max(name, model.name.size());
    type = std::max(type, model.type.size());
  }
  std::string text = fmt::format("{:{}}  {:{}}  {:>9}\n", "name", name, "type", type, "size");
  for (const ListedModel& model : models) {
    text += fmt::format("{:{}}  {:{}}  {:>9}{}\n", model.name, name, model.type, type,
                        human_bytes(model.bytes), model.whole ? "" : "  not whole");
  }
  return text;
}

Result<int> list(bool json) {
  DOPPLER_ASSIGN(const std::vector<ListedModel> models, collect_models());
  if (json) {
    Json array = Json::array();
    for (const ListedModel& model : models) {
      array.push_back({{"name", model.name},
                       {"type", model.type},
                       {"bytes", model.bytes},
                       {"path", model.path},
                       {"store", model.store},
                       {"whole", model.whole}});
    }
    DOPPLER_TRY(print_json({{"models", array}}));
    return kDone;
  }
  if (models.empty()) {
    say(Said::kNote, "There are no models here. doppler pull org/name gets one.");
    return kDone;
  }
  DOPPLER_TRY(print(table_of(models)));
  return kDone;
}

}  // namespace

Run add_list(Command& command, SettingFlags& given) {
  add_few_setting_flags(command, given);
  return [&given] { return list(given.json); };
}

}  // namespace doppler::cli
