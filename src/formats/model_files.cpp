#include "formats/model_files.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "system/files.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

// Published configurations stay below 100 kB; this only keeps a wrong file from being parsed.
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kGgufEnding = ".gguf";
constexpr std::string_view kReads =
    "Doppler reads .gguf files, and Hugging Face folders with config.json and .safetensors files";

// Weights in formats that are not read, by file name ending.
struct OtherFormat {
  std::string_view ending, what;
};
constexpr std::array kOtherFormats = {
    OtherFormat{".bin", "a PyTorch or ggml checkpoint"},
    OtherFormat{".pt", "a PyTorch checkpoint"},
    OtherFormat{".pth", "a PyTorch checkpoint"},
    OtherFormat{".ckpt", "a PyTorch checkpoint"},
    OtherFormat{".onnx", "an ONNX model"},
    OtherFormat{".h5", "a Keras checkpoint"},
    OtherFormat{".msgpack", "a Flax checkpoint"},
    OtherFormat{".npz", "a NumPy archive"},
    OtherFormat{".tflite", "a TensorFlow Lite model"},
};

const OtherFormat* other_format(std::string_view name) {
  const auto found =
      std::ranges::find_if(kOtherFormats, [&](const OtherFormat& f) { return name.ends_with(f.ending); });
  return found == kOtherFormats.end() ? nullptr : &*found;
}

// The names of the folder's entries, sorted, hidden ones left out.
Result<std::vector<std::string>> list_folder(const fs::path& folder) {
  const auto entries = system::list_folder(folder);
  if (!entries) {
    return fail(ErrorCode::kIo, "The folder {} cannot be read: {}. Check its permissions.",
                printable_path(folder), entries.error().message());
  }
  std::vector<std::string> names;
  for (const fs::path& entry : *entries) {
    std::string name = entry.filename().string();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

// The second and further files of a split GGUF model: NAME-00002-of-00003.gguf.
bool is_later_split(std::string_view name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (name.size() < kPattern.size()) return false;
  const std::string_view ending = name.substr(name.size() - kPattern.size());
  for (std::size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = ending[i] >= '0' && ending[i] <= '9';
    if (kPattern[i] == '0' ? !digit : ending[i] != kPattern[i]) return false;
  }
  return ending.substr(1, 5) != "00001";
}

// The names that stand for a whole GGUF model each. "mmproj" files hold the image encoders of others.
std::vector<std::string> gguf_models(const std::vector<std::string>& names) {
  std::vector<std::string> models;
  for (const std::string& name : names) {
    if (name.ends_with(kGgufEnding) && !is_later_split(name) && !name.starts_with("mmproj"))
      models.push_back(name);
  }
  return models;
}

// The file that leads to the folder's weights. transformers' order: a complete model.safetensors wins over an
// index; a GGUF model counts only where there are no safetensors.
Result<fs::path> find_weights(const fs::path& folder) {
  DOPPLER_ASSIGN(const std::vector<std::string> names, list_folder(folder));
  for (const std::string_view name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::ranges::binary_search(names, name)) return folder / name;
  }
  std::vector<std::string> candidates;
  const OtherFormat* other = nullptr;
  std::string other_name;
  for (const std::string& name : names) {
    if (name.ends_with(".safetensors")) candidates.push_back(name);
    if (other == nullptr && (other = other_format(name)) != nullptr) other_name = name;
  }
  if (candidates.size() == 1) return folder / candidates[0];
  if (candidates.size() > 1) {
    return fail(ErrorCode::kNotFound,
                "The folder {} holds {} .safetensors files ({}) but no model.safetensors.index.json that "
                "says what is where. "
                "Download the index, or name one of the files.",
                printable_path(folder), candidates.size(), printable(join(candidates, ", "), 120));
  }
  const std::vector<std::string> ggufs = gguf_models(names);
  if (ggufs.size() == 1) return folder / ggufs[0];
  if (ggufs.size() > 1) {
    return fail(ErrorCode::kUsage, "The folder {} holds {} GGUF models ({}). Name one of the files.",
                printable_path(folder), ggufs.size(), printable(join(ggufs, ", "), 120));
  }
  if (other != nullptr) {
    return fail(
        ErrorCode::kUnsupported,
        "The folder {} holds {} ({}) but neither .safetensors nor .gguf files. {}. Convert the model.",
        printable_path(folder), printable(other_name), other->what, kReads);
  }
  return fail(ErrorCode::kNotFound,
              "The folder {} holds no weights: neither model.safetensors nor model.safetensors.index.json "
              "nor any other "
              ".safetensors file is there. Download them.",
              printable_path(folder));
}

Result<TensorStore> open_weights(const fs::path& weights) {
  return weights.string().ends_with(kIndexSuffix) ? open_safetensors_index(weights)
                                                  : open_safetensors(weights);
}

Result<Json> read_json_object(const fs::path& file) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMaxConfigBytes));
  const std::string what = fmt::format("The file {}", printable_path(file));
  DOPPLER_ASSIGN(Json value, parse_json(text, what));
  if (!value.is_object()) {
    return fail(ErrorCode::kCorrupt, "{} holds JSON of the kind {} instead of an object. Download it again.",
                what, value.type_name());
  }
  return value;
}

// A file that an index beside it counts among several shards is not a model by itself.
Status check_whole_model(const fs::path& file) {
  const auto shards = list_shards(file.parent_path() / "model.safetensors.index.json");
  if (!shards || shards->size() < 2 || !std::ranges::binary_search(*shards, file.filename().string()))
    return {};
  return fail(ErrorCode::kUsage, "The file {} is one of {} shards of a model. Give the folder instead.",
              printable_path(file), shards->size());
}

// The file with the weights, for a path that the user gave; errors say all that is wrong with the path.
Result<fs::path> resolve_weights(const fs::path& model) {
  const auto kind = system::kind_of(model);
  if (!kind) {
    return fail(ErrorCode::kIo, "The model {} cannot be opened: {}. Check its permissions.",
                printable_path(model), kind.error().message());
  }
  if (*kind == system::PathKind::kMissing)
    return fail(ErrorCode::kNotFound, "The model {} does not exist. Check the path.", printable_path(model));
  if (*kind == system::PathKind::kFolder) return find_weights(model);
  const std::string name = model.filename().string();
  if (name.ends_with(kIndexSuffix) || name.ends_with(kGgufEnding)) return model;
  if (name.ends_with(".safetensors")) {
    DOPPLER_TRY(check_whole_model(model));
    return model;
  }
  const OtherFormat* other = other_format(name);
  return fail(ErrorCode::kUnsupported, "The file {} is {}. {}. Give one of those.", printable_path(model),
              other != nullptr ? other->what : "of a kind that Doppler does not know", kReads);
}

}  // namespace

Result<Json> read_config(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  auto config = read_json_object(file);
  if (!config && config.error().code == ErrorCode::kNotFound) {
    return fail(
        ErrorCode::kNotFound,
        "The folder {} holds no config.json, which says what the model is. Download it next to the weights.",
        printable_path(folder));
  }
  return config;
}

Result<ModelFiles> open_model_files(const fs::path& model) {
  DOPPLER_ASSIGN(const fs::path weights, resolve_weights(model));
  ModelFiles files;
  files.folder = weights.has_parent_path() ? weights.parent_path() : fs::path(".");
  if (weights.string().ends_with(kGgufEnding)) {
    DOPPLER_ASSIGN(GgufFile gguf, open_gguf(weights));
    files.gguf = std::move(gguf.metadata);
    files.tensors = std::move(gguf.tensors);
    return files;
  }
  DOPPLER_ASSIGN(files.config, read_config(files.folder));
  auto generation = read_json_object(files.folder / "generation_config.json");
  if (generation) {
    files.generation_config = std::move(*generation);
  } else if (generation.error().code != ErrorCode::kNotFound) {
    return std::unexpected(std::move(generation).error());
  }
  DOPPLER_ASSIGN(files.tensors, open_weights(weights));
  return files;
}

}  // namespace doppler
