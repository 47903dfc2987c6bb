// The folder in which Hugging Face's programs keep what they download, in their layout, so that either finds
// the other's files:
//
//   models--ORG--NAME/blobs/HASH                   the bytes, HASH.incomplete while they come
//   models--ORG--NAME/snapshots/COMMIT/PATH        links to blobs
//   models--ORG--NAME/refs/main                    the commit of a branch or tag
//   .locks/models--ORG--NAME/HASH.lock             held while a blob is written
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/api.h"
#include "hub/name.h"
#include "hub/variant.h"

namespace doppler::hub {

// One repository's folder.
class CachedRepo {
 public:
  CachedRepo(const std::filesystem::path& cache, std::string repo);

  const std::string& repo() const { return repo_; }
  const std::filesystem::path& folder() const { return folder_; }
  bool exists() const;
  std::filesystem::path blob(const std::string& hash) const;
  std::filesystem::path incomplete(const std::string& hash) const;
  std::filesystem::path lock(const std::string& hash) const;
  std::filesystem::path snapshot(const std::string& commit) const;

  // Makes the folders of blobs and locks. Errors: kIo.
  Status prepare() const;
  // How much of a file is here, whole or as a part.
  std::uint64_t bytes_here(const RepoFile& file) const;
  // Lets PATH of a commit be a link to the blob, or on systems without links to users' files, the file
  // itself.
  Status link(const std::string& commit, const std::string& path, const std::string& hash) const;
  Status write_ref(const std::string& revision, const std::string& commit) const;

  // The snapshot's folder of a branch, tag or commit, if it is here. Where refs do not say, the only
  // snapshot.
  std::optional<std::filesystem::path> find_snapshot(const std::string& revision) const;
  // The files of a snapshot that are here, with their blobs' hashes, sorted by path.
  std::vector<RepoFile> files_of(const std::filesystem::path& snapshot) const;
  std::vector<std::filesystem::path> snapshots() const;
  // Names of refs and their commits.
  std::vector<std::pair<std::string, std::string>> refs() const;
  // Bytes of parts of downloads that were cut.
  std::uint64_t incomplete_bytes() const;

 private:
  std::string repo_;
  std::filesystem::path folder_, locks_;
};

// Whether all that a variant's own files speak of is in a snapshot: every part of a split GGUF model, every
// shard of an index.
bool is_whole(const Variant& variant, const std::filesystem::path& snapshot);

// All repositories of models in a cache, by name.
std::vector<CachedRepo> list_cache(const std::filesystem::path& cache);

// What to open for a model that is here whole: a GGUF file, or a folder with safetensors. `said` is a
// sentence about a choice that was made among several, else empty.
struct FoundModel {
  std::filesystem::path path;
  std::string said;
};
// Nothing if the cache does not have it, or only a part of it: then a download is needed. Errors: kUsage for
// a pick that names several files.
Result<std::optional<FoundModel>> find_in_cache(const std::filesystem::path& cache, const ModelName& name,
                                                std::optional<std::uint64_t> memory);

// What removing a repository, or with `pick` some of its files, would free. A blob that another snapshot or
// name uses stays.
struct Removal {
  std::vector<std::filesystem::path> files;  // links, blobs, parts and folders, in the order in which they go
  std::uint64_t bytes = 0;
  std::string what;   // "all of org/name", "org/name:Q4_K_M"
  std::string stays;  // why less is freed than its size, or empty
};
// Errors: kNotFound with what there is.
Result<Removal> plan_removal(const std::filesystem::path& cache, const ModelName& name);
// Errors: kIo with the first that would not go.
Status remove(const Removal& removal);

}  // namespace doppler::hub
