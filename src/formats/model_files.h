// ModelFiles: everything a model folder (or file) offers, opened but not interpreted.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/file_bytes.h"
#include "formats/gguf_metadata.h"
#include "formats/tensor_store.h"

namespace doppler {

struct RdrrManifest;

struct ModelFiles {
  std::filesystem::path folder;  // where config and tokenizer files are looked for
  TensorStore tensors;
  JsonMember config;                            // config.json, an object; null for GGUF
  std::optional<JsonMember> generation_config;  // generation_config.json, if there
  std::optional<GgufMetadata> gguf;             // a GGUF file's description of its model and tokenizer
  // An RDRR package's, whose config is in config.json's words here; null for all other models.
  std::shared_ptr<const RdrrManifest> rdrr;
};

// Opens a .gguf file (the first of a split set, or a whole one); an RDRR package (a folder with
// manifest.json and shards, see rdrr.h), or its manifest; a Hugging Face folder (model.safetensors, or
// model.safetensors.index.json, or the only *.safetensors there, in transformers' order) or a folder without
// safetensors that holds exactly one GGUF model; a folder models--ORG--NAME of the Hugging Face cache; a
// .safetensors or index file with its config.json beside it; or a file of any name that begins as a GGUF or
// safetensors file does (Ollama's blobs). Errors name what is missing and what was looked for: kNotFound (no
// such path, no weights, no config), kCorrupt, kIo, kUsage (one shard of many, several GGUF models),
// kUnsupported
// (.bin, .pt files, adapters, Git LFS pointers, saved web pages: says what they are, and which formats are
// read).
Result<ModelFiles> open_model_files(const std::filesystem::path& model, Opening opening = Opening::kMapped);

// Whether a file is in GGUF: by its ending, or by its first bytes.
bool is_gguf(const std::filesystem::path& file);

// What weights in a format that is not read are, by a file's name ("a PyTorch checkpoint"); empty for other
// files.
std::string_view other_weights(std::string_view name);

// config.json alone, checked to be a JSON object of sane size.
Result<Json> read_config(const std::filesystem::path& folder);

}  // namespace doppler
