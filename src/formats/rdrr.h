// RDRR packages, opened, checked and written; see rdrr_manifest.h.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file_bytes.h"
#include "formats/rdrr_manifest.h"
#include "formats/tensor_store.h"

namespace doppler {

struct RdrrPackage {
  RdrrManifest manifest;
  TensorStore tensors;
  // What was changed in memory because backends do not compute with it as it lies: full sentences.
  std::vector<std::string> notes;
};

// Whether manifest.json in a folder is an RDRR package's: many programs have a file of that name.
bool has_rdrr_manifest(const std::filesystem::path& folder);

// The manifest alone, with the file of tensors that it names. Errors: those of parse_rdrr_manifest(), naming
// the folder; kNotFound, kIo.
Result<RdrrManifest> read_rdrr_manifest(const std::filesystem::path& folder);

// All shards, of the sizes that the manifest says; their hashes are left to check_rdrr(). Tensors
// that lie in several shards are copied where shards are mapped, and so are those in a layout that nothing
// computes with: columns become rows, and blocks whose last one of a row is filled up become Q4_1 or floats.
// Errors: those of read_rdrr_manifest(); kNotFound for a shard that is missing, kCorrupt for one of another
// size, kLimit.
Result<RdrrPackage> open_rdrr(const std::filesystem::path& folder, Opening opening = Opening::kMapped);

// The bytes in the tensor's layout as a tensor of `store`. Returns what was changed, or nothing.
Result<std::string> add_rdrr_tensor(const RdrrTensor& tensor, std::span<const std::byte> bytes,
                                    TensorStore& store);

// config.json's words for what the manifest says of the model: its `config` if it has one, else its
// architecture and inference.
Json rdrr_config(const RdrrManifest& manifest);
// generation_config.json's for the tokens that end an answer.
Json rdrr_generation_config(const RdrrManifest& manifest);

struct RdrrProblem {
  std::string file;      // "shard_00003.bin", or the id of a group
  std::string sentence;  // what is wrong, and what to do
};
struct RdrrCheck {
  std::uint64_t shards = 0, groups = 0, files = 0, bytes = 0;  // whose hashes were compared
  std::vector<RdrrProblem> problems;
};

// Computes every hash that the manifest gives: of shards, groups and files beside them. `go_on` is called
// with the share that is done, and false ends it (kIo). Errors: those of opening; wrong hashes are problems.
Result<RdrrCheck> check_rdrr(const std::filesystem::path& folder,
                             const std::function<bool(double share, std::string_view file)>& go_on);

}  // namespace doppler
