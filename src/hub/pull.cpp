#include "hub/pull.h"

#include <algorithm>

#include "base/text.h"
#include "formats/snapshot.h"
#include "hub/ollama.h"
#include "system/files.h"
#include "system/memory.h"

namespace doppler::hub {
namespace {

namespace fs = std::filesystem;

Status check_allowed(const Places& places, const ModelName& name) {
  if (places.offline) {
    return fail(
        ErrorCode::kNotFound,
        "The model {} is not here, or not whole, and HF_HUB_OFFLINE forbids to ask the network. Unset "
        "it, or choose one that doppler list shows.",
        name.text());
  }
  if (places.cache.empty())
    return fail(ErrorCode::kUsage,
                "There is no home folder, so there is no place for models. Set HF_HOME to a folder.");
  return {};
}

// Where the Hub's list leaves out sizes or hashes, as mirrors do, each file is asked for. More would take
// minutes.
Status complete_files(HubClient& client, const ModelName& name, RepoInfo& info) {
  constexpr int kMost = 300;
  int asked = 0;
  for (const Variant& variant : find_variants(info.files)) {
    for (const std::size_t i : variant.files) {
      RepoFile& file = info.files[i];
      if ((file.size && !file.hash.empty()) || ++asked > kMost) continue;
      DOPPLER_TRY(client.complete(name, file, info.commit));
    }
  }
  return {};
}

Status check_fits(const PullPlan& plan, const ModelName& name, bool force) {
  if (!plan.fits_disk()) {
    return fail(
        ErrorCode::kLimit,
        "The disk has {} free, but {} takes {} more. Free some space, name a smaller type after a colon, or "
        "set HF_HUB_CACHE to a folder on another disk.",
        human_bytes(*plan.machine.disk), name.text(), human_bytes(plan.bytes_to_get()));
  }
  if (plan.fits_memory() || force || !name.pick.empty()) return {};
  return fail(
      ErrorCode::kLimit,
      "The model {} takes about {} of memory to run, and {} are available. Look for a smaller one or a GGUF "
      "repository of it, or pull it all the same with doppler pull --force.",
      name.text(), human_bytes(memory_to_run(plan.chosen.bytes)), human_bytes(*plan.machine.memory));
}

Result<std::vector<DownloadItem>> items_of(const HubClient& client, const ModelName& name,
                                           const PullPlan& plan) {
  std::vector<DownloadItem> items;
  for (const std::size_t i : plan.chosen.files) {
    const RepoFile& file = plan.info.files[i];
    if (!file.size || file.hash.empty()) {
      return fail(
          ErrorCode::kUnsupported,
          "The server names no size or hash of the file {} of {}, so what comes could not be checked. "
          "Check that HF_ENDPOINT leads to a Hugging Face Hub.",
          printable(file.path), name.repo);
    }
    const bool twice =
        std::ranges::any_of(items, [&](const DownloadItem& item) { return item.file.hash == file.hash; });
    if (!twice) items.push_back({file, client.file_url(name.repo, plan.info.commit, file.path)});
  }
  // Small files first: they say what the model is, and fail early.
  std::ranges::sort(items, {},
                    [](const DownloadItem& item) { return std::pair(*item.file.size, item.file.path); });
  return items;
}

// What a word may be meant for that is neither a path nor a name: a model that is here under a longer one.
std::string meant_by(const Places& places, const std::string& text) {
  for (const CachedRepo& repo : list_cache(places.cache)) {
    if (repo.repo().ends_with("/" + text)) return repo.repo();
  }
  for (const fs::path& store : places.ollama) {
    for (const OllamaModel& model : list_ollama(store).models) {
      if (model.name == text || model.name == text + ":latest" || model.name.starts_with(text + ":"))
        return model.typed_name();
    }
  }
  return {};
}

Result<FoundModel> open_path(const fs::path& path) {
  if (auto snapshot = cached_snapshot(path)) return FoundModel{std::move(*snapshot), ""};
  DOPPLER_ASSIGN(const std::optional<OllamaModel> model, read_ollama_manifest(path));
  if (!model) return FoundModel{path, ""};
  DOPPLER_ASSIGN(fs::path weights, ollama_weights(*model));
  return FoundModel{std::move(weights), ""};
}

}  // namespace

Machine this_machine(const Places& places) {
  Machine machine;
  const std::uint64_t memory = system::available_memory();
  if (memory != UINT64_MAX) machine.memory = memory;
  fs::path folder = places.cache;
  while (!folder.empty() && folder != folder.parent_path() && !system::exists(folder))
    folder = folder.parent_path();
  machine.disk = system::free_space(folder.empty() ? "." : folder);
  return machine;
}

Result<Pulled> pull(const Places& places, const ModelName& name, const PullOptions& options) {
  DOPPLER_TRY(check_allowed(places, name));
  DOPPLER_ASSIGN(const std::unique_ptr<Http> http, make_http(options.download.patience.http));
  HubClient client(*http, places, options.download.patience, options.download.cancelled);
  DOPPLER_ASSIGN(RepoInfo info, client.repo_info(name));
  DOPPLER_TRY(complete_files(client, name, info));
  const CachedRepo repo(places.cache, name.repo);
  Pulled pulled;
  DOPPLER_ASSIGN(pulled.plan, make_plan(std::move(info), name.revision, name.pick, this_machine(places),
                                        [&](const RepoFile& file) { return repo.bytes_here(file); }));
  DOPPLER_TRY(options.on_plan(pulled.plan));
  if (options.plan_only) return pulled;
  DOPPLER_TRY(check_fits(pulled.plan, name, options.force));
  DOPPLER_ASSIGN(const std::vector<DownloadItem> items, items_of(client, name, pulled.plan));
  DOPPLER_TRY(download(*http, places, name, repo, items, options.download));
  const std::string& commit = pulled.plan.info.commit;
  for (const std::size_t i : pulled.plan.chosen.files) {
    const RepoFile& file = pulled.plan.info.files[i];
    DOPPLER_TRY(repo.link(commit, file.path, file.hash));
  }
  DOPPLER_TRY(repo.write_ref(name.revision, commit));
  ModelName exact = name;
  if (exact.pick.empty() && pulled.plan.chosen.kind == VariantKind::kGguf)
    exact.pick = pulled.plan.chosen.path;
  DOPPLER_ASSIGN(std::optional<FoundModel> found,
                 find_in_cache(places.cache, exact, pulled.plan.machine.memory));
  if (!found) {
    return fail(ErrorCode::kCorrupt,
                "The repository {} lacks a part of its weights: its list of files and its names or index of "
                "shards contradict each other. Look for another repository of the model.",
                name.repo);
  }
  pulled.model = std::move(*found);
  return pulled;
}

Result<std::optional<FoundModel>> resolve_path(const std::string& text) {
  const auto kind = system::kind_of(text);
  if (text.starts_with(kOllamaPrefix) || (kind && *kind == system::PathKind::kMissing)) return std::nullopt;
  DOPPLER_ASSIGN(FoundModel model, open_path(text));
  return model;
}

Result<std::optional<FoundModel>> resolve_here(const Places& places, const std::string& text) {
  if (text.starts_with(kOllamaPrefix)) {
    DOPPLER_ASSIGN(const OllamaModel model,
                   find_ollama(places.ollama, std::string_view(text).substr(kOllamaPrefix.size())));
    DOPPLER_ASSIGN(fs::path weights, ollama_weights(model));
    return FoundModel{std::move(weights), ""};
  }
  DOPPLER_ASSIGN(std::optional<FoundModel> path, resolve_path(text));
  if (path) return path;
  // A path whose first folder is here is a misspelt path, and not a name.
  const bool begun = text.find(':') == std::string::npos && system::is_folder(text.substr(0, text.find('/')));
  if (!is_url(text) && (begun || !looks_like_name(text))) {
    const std::string meant = meant_by(places, text);
    if (meant.empty()) return FoundModel{text, ""};
    return fail(ErrorCode::kNotFound, "There is no file or folder {}. Did you mean {}?", printable(text),
                meant);
  }
  DOPPLER_ASSIGN(const ModelName name, parse_name(text));
  return find_in_cache(places.cache, name, this_machine(places).memory);
}

}  // namespace doppler::hub
