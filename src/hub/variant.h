// The ways to take a repository's weights: GGUF files of several types, safetensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/api.h"

namespace doppler::hub {

enum class VariantKind : std::uint8_t { kGguf, kSafetensors, kFile };  // kFile: one file that somebody named
std::string_view kind_name(VariantKind kind);

struct Variant {
  VariantKind kind = VariantKind::kFile;
  std::string label;  // "Q4_K_M"; "gguf" where the name says no type; "safetensors"; a file's path
  std::string path;   // of its first weight file
  std::vector<std::size_t> files;  // indices into the list of files: weights and what belongs to them
  std::size_t parts = 1;           // how many weight files the first one's name promises
  std::uint64_t bytes = 0;         // of all of them, as far as known
  int rank = 0;                    // among those of a repository: lower is better
};

// The type that a GGUF file's name speaks of ("Q4_K_M"), in capitals; empty if it speaks of none.
std::string type_in_name(std::string_view path);

// All variants that a list of files (sorted by path) offers; safetensors first, then GGUF by rank. A split
// GGUF model is one; image encoders and importance matrices are none.
std::vector<Variant> find_variants(std::span<const RepoFile> files);

// The variants that `pick` names: a path, a type, or the end of a name, whatever the case; or a file of any
// kind by its exact path. Empty if there is none.
std::vector<Variant> pick_variants(std::span<const RepoFile> files, std::string_view pick);

// Why a list of files has no variant: a sentence that names what there is instead, and what to do. `where` is
// "The repository x".
Error no_variant(std::span<const RepoFile> files, std::string_view where);

}  // namespace doppler::hub
