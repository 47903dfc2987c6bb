// FamilyRule: a model family as data, and the registry of all of them.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "formats/model_files.h"
#include "model/gguf_config.h"
#include "model/spec.h"
#include "model/spec_builder.h"
#include "model/weights.h"

namespace doppler {

// How GGUF files of a family differ, as llama.cpp's converter writes them. Keys are the same for every family
// and are translated in gguf_config.cpp.
struct GgufRule {
  std::string_view architecture;  // general.architecture
  WeightNames weight_names = {.style = NameStyle::kGguf};
  // Two families share an architecture: this one has the key (after "ARCHITECTURE.") with a value above 0.
  std::string_view distinguishing_key = {};
  // The converter puts the two rows of each rotary pair of Q and K side by side; loading puts them back.
  bool paired_rows = false;
  std::span<const GgufKey> keys = {};  // of its own
  bool may_fuse_qkv = false;           // some files hold q, k and v as one tensor
  // The architecture of models that have experts, if that is another.
  std::string_view architecture_of_experts = {};
  bool tiled_value_heads = false;   // a delta net's value heads go by their number within their key head
  bool multiplied_weights = false;  // the converter multiplies weights by what multiplies their results
  // Reads files instead of the family's own, where an architecture is that of several families.
  Status (*fill)(SpecBuilder& builder) = nullptr;
  Status (*adjust)(GgufConfig& config) = nullptr;  // values that follow from a rule and stand in no key
  // Keys (after "ARCHITECTURE.") that adjust reads, though other architectures may not have them, or may not
  // give layers different values.
  std::span<const std::string_view> own_keys = {};
  bool divisors_of_full = false;  // rope divisors are those of layers that attend fully
  // Files hold keys and values of layers that read another's, too: llama.cpp asks for them.
  bool unread_kv = false;
};

struct FamilyRule {
  std::string_view name;
  std::span<const std::string_view> model_types;  // config.json: model_type
  Status (*fill)(SpecBuilder& builder);           // reads everything but the special ids
  GgufRule gguf;
  WeightNames weight_names = {.style = NameStyle::kHuggingFace};
  // The class's own rope_parameters, as JSON, where a config.json has none. Empty: plain rope.
  std::string_view absent_rope = {};
};

std::span<const FamilyRule* const> all_families();
// Null if there is none of that name.
const FamilyRule* family_named(std::string_view name);

// A model ready to be planned: its files stay mapped as long as this lives.
struct Model {
  ModelFiles files;
  ModelSpec spec;
  Weights weights;
};

// Arranges a folder's tensors as its family says, fills in the numbers that are tensors, and binds the rest.
// Errors: those of arrange_weights, read_numbers and bind_weights.
Result<Weights> bind_folder(ModelSpec& spec, TensorStore& store);

// The spec of a config.json (with text_config inside, if it is a multimodal one) and generation_config.json.
// `family` reads it by the rule of that family instead of the one that model_type names; empty: model_type.
// Errors: kUnsupported for a model_type that no family has, kUsage for a family that does not exist.
Result<ModelSpec> read_spec(const Json& config, const Json* generation_config, std::string_view family = {});

// The spec of a GGUF file; the tensors say what keys do not (tied head, biases, rope divisors). Errors as
// those of read_spec; kMismatch for a vocabulary that contradicts the embedding.
Result<ModelSpec> read_gguf_spec(const GgufMetadata& metadata, const TensorStore& tensors);

// Opens, reads and binds. `family` as in read_spec(), or kGuessFamily: a spec guessed from config.json and
// tensors, which is said in a warning. Errors: those of open_model_files, read_spec, guess_model and
// bind_weights; kUsage for a family given to a GGUF file, which says its architecture; kUnsupported for
// folders whose weights are quantised in a way that Doppler does not read.
Result<Model> load_model(const std::filesystem::path& path, std::string_view family = {});
// The same for files that are open already.
Result<Model> bind_model(ModelFiles files, std::string_view family = {});

}  // namespace doppler
