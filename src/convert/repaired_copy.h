// A copy of a model with some values of its description and some tensors changed; all else byte for byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "quant/tensor.h"

namespace doppler::convert {

struct ChangedValue {
  std::string file;   // "config.json", or "gguf" for a GGUF file's metadata
  std::string key;    // parts joined by dots: "rope_parameters.rope_theta", "layer_types.3"
  std::string value;  // as JSON; a key that is not there is added
};

struct ChangedTensor {
  // A slice of rows of a tensor is named "NAME[begin:end]", and one matrix of several "NAME[index]", as
  // binding names them.
  std::string name;
  // Its rows as they should be, in the order in which the model computes with them.
  std::function<Status(std::uint64_t row, std::span<float> values)> read;
  std::optional<DType> type;          // nothing: the type stays
  Shape shape = {};                   // where the model lacks it, it is added with this shape
  std::vector<std::byte> bytes = {};  // not empty: the whole tensor as it is stored, and `read` is not asked
};

struct Changes {
  std::vector<ChangedValue> values;
  std::vector<ChangedTensor> tensors;
  std::vector<std::string> dropped;          // tensors that the copy does not have
  std::vector<std::filesystem::path> files;  // copied over those of the same name; folders only
  std::filesystem::path tokenizer;  // a model whose tokenizer a GGUF file's is replaced by; empty: none
  bool empty() const {
    return values.empty() && tensors.empty() && dropped.empty() && files.empty() && tokenizer.empty();
  }
};

// Sets a value in the JSON of a file. Errors: kNotFound where it has no place for the key, kCorrupt for a
// value that is no JSON.
Status set_value(Json& root, const ChangedValue& change);

// Whether the model's files have the tensor, the rows or the matrix of that name, be it packed with others.
bool holds(const TensorStore& store, const ModelSpec& spec, const std::string& name);

// A folder becomes a folder, a GGUF file (or a split set) one GGUF file. The copy gets its name when it is
// whole and on disk; after an error nothing of it is left. `spec` is the model's. Errors: kUsage (the output
// exists, or is no .gguf for a GGUF file), kNotFound (a tensor, key or file that is not the model's), kIo (a
// full disk, seen before the work where the disk tells), those of encode().
Status write_repaired_copy(const std::filesystem::path& model, const ModelSpec& spec, const Changes& changes,
                           const std::filesystem::path& output);

}  // namespace doppler::convert
