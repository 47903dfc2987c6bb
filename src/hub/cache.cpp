#include "hub/cache.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "formats/snapshot.h"
#include "hub/plan.h"
#include "hub/variant.h"
#include "system/shared_folder.h"

namespace doppler::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kPart = ".incomplete";

// "org/name" as a folder's name and back.
std::string folder_name(std::string_view repo) {
  std::string name(kPrefix);
  for (const char c : repo) {
    if (c == '/')
      name += "--";
    else
      name += c;
  }
  return name;
}

std::optional<std::string> repo_of(std::string_view folder) {
  if (!folder.starts_with(kPrefix)) return std::nullopt;
  std::string repo(folder.substr(kPrefix.size()));
  if (const std::size_t at = repo.find("--"); at != std::string::npos) repo.replace(at, 2, "/");
  const Result<ModelName> name = parse_name(repo);
  return name && name->repo == repo ? std::optional(repo) : std::nullopt;
}

Status make_folder(const fs::path& folder) {
  if (const auto error = system::create_folders(folder)) {
    return fail(ErrorCode::kIo,
                "The folder {} cannot be made: {}. Check its permissions, or set HF_HUB_CACHE to another.",
                printable_path(folder), error.message());
  }
  return {};
}

// Files below a folder as paths relative to it; links are files here, even to folders. Bounded, because a
// cache is shared.
void collect_files(const fs::path& folder, const std::string& prefix, int depth,
                   std::vector<std::string>& into) {
  constexpr int kDeepest = 16;
  constexpr std::size_t kMost = 100'000;
  for (const fs::path& entry : sorted_entries(folder)) {
    const std::string path = prefix + entry.filename().string();
    if (into.size() >= kMost) return;
    if (!system::link_text(entry) && system::is_folder(entry)) {
      if (depth < kDeepest) collect_files(entry, path + "/", depth + 1, into);
    } else {
      into.push_back(path);
    }
  }
}

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  collect_files(folder, "", 0, files);
  std::ranges::sort(files);
  return files;
}

}  // namespace

CachedRepo::CachedRepo(const fs::path& cache, std::string repo)
    : repo_(std::move(repo)),
      folder_(cache / folder_name(repo_)),
      locks_(cache / ".locks" / folder_name(repo_)) {}

bool CachedRepo::exists() const {
  return system::is_folder(folder_);
}
fs::path CachedRepo::blob(const std::string& hash) const {
  return folder_ / "blobs" / hash;
}
fs::path CachedRepo::incomplete(const std::string& hash) const {
  return folder_ / "blobs" / (hash + std::string(kPart));
}
fs::path CachedRepo::lock(const std::string& hash) const {
  return locks_ / (hash + ".lock");
}
fs::path CachedRepo::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

Status CachedRepo::prepare() const {
  DOPPLER_TRY(make_folder(folder_ / "blobs"));
  return make_folder(locks_);
}

std::uint64_t CachedRepo::bytes_here(const RepoFile& file) const {
  if (file.hash.empty()) return 0;
  if (const auto whole = system::file_size(blob(file.hash))) return *whole;
  return system::file_size(incomplete(file.hash)).value_or(0);
}

Status CachedRepo::link(const std::string& commit, const std::string& path, const std::string& hash) const {
  const fs::path link = snapshot(commit) / path;
  DOPPLER_TRY(make_folder(link.parent_path()));
  fs::path up;
  for (const char c : path) {
    if (c == '/') up /= "..";
  }
  const fs::path target = fs::path("..") / ".." / up / "blobs" / hash;
  if (const auto there = system::link_text(link); there && *there == target) return {};
  if (const auto error = system::remove_tree(link))
    return fail(ErrorCode::kIo, "The file {} cannot be replaced: {}. Check its permissions.",
                printable_path(link), error.message());
  if (!system::create_link(target, link)) return {};
  // Windows lets only some users make links, and some disks have none: the file then lies in the snapshot
  // itself.
  if (const auto error = system::replace_file(blob(hash), link))
    return fail(ErrorCode::kIo, "The file {} cannot be put in place: {}. Check the disk.",
                printable_path(link), error.message());
  return {};
}

Status CachedRepo::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return {};
  const fs::path ref = folder_ / "refs" / revision;
  DOPPLER_TRY(make_folder(ref.parent_path()));
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(ref));
  DOPPLER_TRY(file.write(commit));
  return file.commit();
}

std::optional<fs::path> CachedRepo::find_snapshot(const std::string& revision) const {
  // A commit, whole or as its first digits.
  if (revision.size() >= 7 && revision.find_first_not_of("0123456789abcdef") == std::string::npos) {
    for (const fs::path& folder : snapshots()) {
      if (folder.filename().string().starts_with(revision)) return folder;
    }
  }
  return cached_snapshot(folder_, revision);
}

std::vector<RepoFile> CachedRepo::files_of(const fs::path& folder) const {
  std::vector<RepoFile> files;
  for (const std::string& path : files_below(folder)) {
    const auto target = system::link_text(folder / path);
    const std::optional<std::uint64_t> size = system::file_size(folder / path);
    if (!size) continue;  // a link to nothing
    const std::string hash = target ? target->filename().string() : "";
    files.push_back({path, size, is_hash(hash) ? hash : ""});
  }
  return files;
}

std::vector<fs::path> CachedRepo::snapshots() const {
  return sorted_entries(folder_ / "snapshots");
}

std::vector<std::pair<std::string, std::string>> CachedRepo::refs() const {
  std::vector<std::pair<std::string, std::string>> refs;
  constexpr std::uint64_t kMaxRef = 256;
  for (const std::string& name : files_below(folder_ / "refs")) {
    const auto commit = read_text_file(folder_ / "refs" / name, kMaxRef);
    if (commit) refs.emplace_back(name, *commit);
  }
  return refs;
}

std::uint64_t CachedRepo::incomplete_bytes() const {
  std::uint64_t bytes = 0;
  for (const fs::path& entry : sorted_entries(folder_ / "blobs")) {
    if (entry.filename().string().ends_with(kPart)) bytes += system::file_size(entry).value_or(0);
  }
  return bytes;
}

std::vector<CachedRepo> list_cache(const fs::path& cache) {
  std::vector<CachedRepo> repos;
  for (const fs::path& entry : sorted_entries(cache)) {
    if (const auto repo = repo_of(entry.filename().string())) repos.emplace_back(cache, *repo);
  }
  return repos;
}

bool is_whole(const Variant& variant, const fs::path& snapshot) {
  if (variant.kind != VariantKind::kSafetensors) return variant.files.size() == variant.parts;
  if (!system::is_file(snapshot / "config.json")) return false;
  if (variant.path == "model.safetensors") return true;
  const auto shards = list_shards(snapshot / "model.safetensors.index.json");
  if (!shards) return shards.error().code == ErrorCode::kNotFound && !variant.path.starts_with("model-");
  return std::ranges::all_of(*shards,
                             [&](const std::string& shard) { return system::is_file(snapshot / shard); });
}

Result<std::optional<FoundModel>> find_in_cache(const fs::path& cache, const ModelName& name,
                                                std::optional<std::uint64_t> memory) {
  if (cache.empty()) return std::nullopt;
  const CachedRepo repo(cache, name.repo);
  const auto snapshot = repo.find_snapshot(name.revision);
  if (!snapshot) return std::nullopt;
  const std::vector<RepoFile> files = repo.files_of(*snapshot);
  std::vector<Variant> variants = name.pick.empty() ? find_variants(files) : pick_variants(files, name.pick);
  std::erase_if(variants, [&](const Variant& v) { return !is_whole(v, *snapshot); });
  if (variants.empty()) return std::nullopt;
  if (variants.size() > 1 && !name.pick.empty()) {
    std::vector<std::string> paths;
    for (const Variant& variant : variants) paths.push_back(variant.path);
    return fail(ErrorCode::kUsage, "Of {}, {} may be {}. Name the file after the colon.", name.repo,
                printable(name.pick), printable(join(paths, " or "), 400));
  }
  const auto best = std::ranges::find_if(
      variants, [&](const Variant& v) { return !memory || memory_to_run(v.bytes) <= *memory; });
  const Variant& chosen = best == variants.end() ? variants.back() : *best;
  FoundModel found;
  const bool folder = chosen.kind == VariantKind::kSafetensors && !name.pick.ends_with(".safetensors");
  found.path = folder ? *snapshot : *snapshot / chosen.path;
  // A folder with both is opened by its safetensors, one with several GGUF files by none: so the file itself
  // is named.
  if (variants.size() > 1) {
    std::vector<std::string> others;
    for (const Variant& variant : variants) {
      if (variant.path != chosen.path) others.push_back(variant.label);
    }
    found.said =
        fmt::format("{}: {}; also here: {}", name.repo, chosen.label, printable(join(others, ", "), 200));
  }
  return found;
}

namespace {

// The blobs that links of a repository lead to, links of `without` left out.
std::set<std::string> used_blobs(const CachedRepo& repo, const std::set<fs::path>& without) {
  std::set<std::string> used;
  for (const fs::path& snapshot : repo.snapshots()) {
    for (const std::string& path : files_below(snapshot)) {
      if (without.contains(snapshot / path)) continue;
      if (const auto target = system::link_text(snapshot / path)) used.insert(target->filename().string());
    }
  }
  return used;
}

Removal remove_all_of(const CachedRepo& repo, const fs::path& cache) {
  Removal removal;
  removal.what = "all of " + repo.repo();
  for (const fs::path& entry : sorted_entries(repo.folder() / "blobs"))
    removal.bytes += system::file_size(entry).value_or(0);
  for (const fs::path& snapshot : repo.snapshots()) {  // files that lie in snapshots themselves
    for (const std::string& path : files_below(snapshot)) {
      if (!system::link_text(snapshot / path))
        removal.bytes += system::file_size(snapshot / path).value_or(0);
    }
  }
  removal.files = {repo.folder(), cache / ".locks" / repo.folder().filename()};
  return removal;
}

}  // namespace

Result<Removal> plan_removal(const fs::path& cache, const ModelName& name) {
  const CachedRepo repo(cache, name.repo);
  if (cache.empty() || !repo.exists())
    return fail(ErrorCode::kNotFound, "There is no model {} here. doppler list shows what there is.",
                name.repo);
  if (name.pick.empty() && name.revision == "main") return remove_all_of(repo, cache);
  const auto snapshot = repo.find_snapshot(name.revision);
  if (!snapshot)
    return fail(ErrorCode::kNotFound, "Of {} there is no revision {} here. doppler list shows what there is.",
                name.repo, name.revision);
  const std::vector<RepoFile> files = repo.files_of(*snapshot);
  std::set<fs::path> links;
  if (name.pick.empty()) {
    for (const RepoFile& file : files) links.insert(*snapshot / file.path);
  } else {
    for (const Variant& variant : pick_variants(files, name.pick)) {
      for (const std::size_t i : variant.files) links.insert(*snapshot / files[i].path);
    }
  }
  if (links.empty())
    return fail(ErrorCode::kNotFound, "Of {} there is no {} here. doppler list shows what there is.",
                name.repo, printable(name.pick));
  if (links.size() == files.size() && repo.snapshots().size() == 1) return remove_all_of(repo, cache);
  Removal removal;
  removal.what = name.text();
  const std::set<std::string> used = used_blobs(repo, links);
  std::set<std::string> blobs;
  for (const fs::path& link : links) {
    removal.files.push_back(link);
    const auto target = system::link_text(link);
    if (!target) {
      removal.bytes += system::file_size(link).value_or(0);
    } else if (const std::string hash = target->filename().string(); !is_hash(hash) || used.contains(hash)) {
      removal.stays = "blobs that other snapshots or files use stay";
    } else if (blobs.insert(hash).second) {
      removal.files.push_back(repo.blob(hash));
      removal.bytes += system::file_size(repo.blob(hash)).value_or(0);
    }
  }
  if (name.pick.empty()) {
    removal.files.push_back(*snapshot);
    for (const auto& [ref, commit] : repo.refs()) {
      if (snapshot->filename() == commit) removal.files.push_back(repo.folder() / "refs" / ref);
    }
  }
  return removal;
}

Status remove(const Removal& removal) {
  for (const fs::path& path : removal.files) {
    if (const auto error = system::remove_tree(path)) {
      return fail(ErrorCode::kIo, "The file {} cannot be removed: {}. Check its permissions.",
                  printable_path(path), error.message());
    }
  }
  return {};
}

}  // namespace doppler::hub
