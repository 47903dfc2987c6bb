// Ollama's store: manifests name blobs by SHA-256, and a model's weights are one of them, a GGUF file without
// an ending.
//
//   manifests/registry.ollama.ai/library/NAME/TAG      JSON: a list of layers with types, digests and sizes
//   blobs/sha256-HASH
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/cache.h"

namespace doppler::hub {

// The beginning of a name that means a model of Ollama's.
inline constexpr std::string_view kOllamaPrefix = "ollama:";

struct OllamaLayer {
  std::string kind;  // "model", "template", "adapter", …: what follows application/vnd.ollama.image.
  std::string hash;  // 64 hexadecimal digits
  std::uint64_t bytes = 0;
};

// A manifest's layers and its config. Errors: kCorrupt, also for digests that are no hashes; `what` names it
// in messages.
Result<std::vector<OllamaLayer>> parse_ollama_manifest(std::string_view json, std::string_view what);

struct OllamaModel {
  std::string name;  // "llama3.2:1b", "me/model:latest", "host/me/model:latest"
  std::filesystem::path store, manifest;
  std::vector<OllamaLayer> layers;

  std::uint64_t bytes() const;
  const OllamaLayer* layer(std::string_view kind) const;  // the first; null if there is none
  std::string typed_name() const { return std::string(kOllamaPrefix) + name; }  // as commands take it
};

// All models of a store, by name; manifests that cannot be read are counted.
struct OllamaList {
  std::vector<OllamaModel> models;
  std::vector<std::filesystem::path> unreadable;
};
OllamaList list_ollama(const std::filesystem::path& store);

// "ollama:name[:tag]" and the other ways to name one, without its prefix; a tag is "latest" unless given.
// Errors: kNotFound with what there is, kCorrupt.
Result<OllamaModel> find_ollama(const std::vector<std::filesystem::path>& stores, std::string_view name);
// The same for a manifest's path; nothing if the path is none of a manifest.
Result<std::optional<OllamaModel>> read_ollama_manifest(const std::filesystem::path& manifest);

// The file with the model's weights. Errors: kUnsupported for adapters and models that live elsewhere;
// kNotFound for a blob that is missing.
Result<std::filesystem::path> ollama_weights(const OllamaModel& model);

// What removing it frees: its manifest, and the blobs that no other manifest names. Errors: kCorrupt if one
// of these cannot be read, and so does not say what it needs.
Result<Removal> plan_ollama_removal(const OllamaModel& model);

}  // namespace doppler::hub
