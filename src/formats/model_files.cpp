#include "formats/model_files.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/config_json.h"
#include "formats/gguf.h"
#include "formats/rdrr.h"
#include "formats/safetensors.h"
#include "formats/snapshot.h"
#include "system/files.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

// Published configurations stay below 100 kB; this only keeps a wrong file from being parsed.
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kGgufEnding = ".gguf";
constexpr std::string_view kReads =
    "Doppler reads .gguf files, Hugging Face folders with config.json and .safetensors files, and RDRR "
    "packages with manifest.json and shards";

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

// How many bytes at the beginning of a file tell what it is.
constexpr std::size_t kBeginning = 64;

// The first bytes of a file; fewer, or none, of one that is shorter or cannot be read: its opening says why.
std::string beginning_of(const fs::path& path) {
  const auto file = system::InputFile::open(path);
  if (!file || !file->regular_size().value_or(std::nullopt)) return {};
  std::string bytes(kBeginning, '\0');
  bytes.resize(file->read(std::as_writable_bytes(std::span(bytes))).value_or(0));
  return bytes;
}

enum class Kind : std::uint8_t { kGguf, kSafetensors, kIndex, kRdrr, kPointer, kPage, kUnknown };

// By the first bytes, which tell what a name need not. Safetensors begin with the length of a header, below
// 100 MB, so its upper four bytes are 0, and the header's brace.
Kind kind_of_bytes(std::string_view bytes) {
  if (bytes.starts_with("GGUF")) return Kind::kGguf;
  if (bytes.starts_with("version https://git-lfs.github.com/spec/")) return Kind::kPointer;
  if (bytes.size() > 8 && bytes[8] == '{' && bytes.substr(4, 4) == std::string_view("\0\0\0\0", 4))
    return Kind::kSafetensors;
  const std::size_t text = bytes.find_first_not_of(" \t\r\n");
  const std::string_view begin = bytes.substr(std::min(text, bytes.size()));
  if (begin.starts_with("<!DOCTYPE") || begin.starts_with("<!doctype") || begin.starts_with("<html"))
    return Kind::kPage;
  return Kind::kUnknown;
}

// Files that stand for weights without being them, whatever their names say.
Status check_is_no_stand_in(const fs::path& path, Kind kind) {
  if (kind == Kind::kPointer) {
    return fail(ErrorCode::kUnsupported,
                "The file {} is a Git LFS pointer, which only names the file that it stands for. Run git lfs "
                "pull in its "
                "folder, or get the model with doppler pull.",
                printable_path(path));
  }
  if (kind == Kind::kPage) {
    return fail(ErrorCode::kUnsupported,
                "The file {} is a web page and no model, as a browser or curl saves it. Download the file "
                "that the page "
                "shows, or get the model with doppler pull.",
                printable_path(path));
  }
  return {};
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

// A folder with an adapter is no model, though its file looks like one.
Status check_is_no_adapter(const fs::path& folder, const std::vector<std::string>& names) {
  if (!std::ranges::binary_search(names, "adapter_config.json")) return {};
  std::string base;
  const auto text = read_text_file(folder / "adapter_config.json", kMaxConfigBytes);
  const Result<Json> config = text ? parse_json(*text, "adapter_config.json") : Json();
  if (config && config->is_object() && config->contains("base_model_name_or_path") &&
      config->at("base_model_name_or_path").is_string())
    base = " for the model " + printable(config->at("base_model_name_or_path").get<std::string>());
  return fail(ErrorCode::kUnsupported,
              "The folder {} holds a LoRA adapter (adapter_config.json){}, and not a model. Merge it into "
              "that model, as "
              "peft's merge_and_unload does, and give the result.",
              printable_path(folder), base);
}

// The file that leads to the folder's weights. transformers' order: a complete model.safetensors wins over an
// index; a GGUF model counts only where there are no safetensors.
Result<fs::path> find_weights(const fs::path& folder) {
  DOPPLER_ASSIGN(const std::vector<std::string> names, list_folder(folder));
  for (const std::string_view name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::ranges::binary_search(names, name)) return folder / name;
  }
  if (has_rdrr_manifest(folder)) return folder / kRdrrManifestName;
  DOPPLER_TRY(check_is_no_adapter(folder, names));
  std::vector<std::string> candidates;
  std::string consolidated, other_name;
  for (const std::string& name : names) {
    const bool mistral = name.starts_with("consolidated") && name.ends_with(".safetensors");
    if (mistral)
      consolidated = name;
    else if (name.ends_with(".safetensors"))
      candidates.push_back(name);
    if (other_name.empty() && !other_weights(name).empty()) other_name = name;
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
  if (!consolidated.empty()) {
    return fail(ErrorCode::kUnsupported,
                "The folder {} holds {}, weights in Mistral's own layout, but no model.safetensors. Download "
                "those of the same "
                "model in transformers' layout.",
                printable_path(folder), printable(consolidated));
  }
  if (!other_name.empty()) {
    return fail(ErrorCode::kUnsupported,
                "The folder {} holds {} ({}) but neither .safetensors nor .gguf files. {}. Look for the same "
                "model in one of "
                "these, or convert it with transformers' save_pretrained.",
                printable_path(folder), printable(other_name), other_weights(other_name), kReads);
  }
  return fail(ErrorCode::kNotFound,
              "The folder {} holds no weights: neither model.safetensors nor model.safetensors.index.json "
              "nor any other "
              ".safetensors file is there. Download them.",
              printable_path(folder));
}

Result<Json> read_json_object(const fs::path& file) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMaxConfigBytes));
  const std::string what = fmt::format("The file {}", printable_path(file));
  DOPPLER_ASSIGN(Json value, parse_config_json(text, what));
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

struct WeightsFile {
  fs::path path;
  Kind kind = Kind::kUnknown;
};

// A clone without Git LFS has the index, which is small, and a pointer for each shard.
Status check_shards(const fs::path& index) {
  const auto shards = list_shards(index);
  if (!shards) return {};  // opening the index says what is wrong
  for (const std::string& shard : *shards) {
    const fs::path path = index.parent_path() / shard;
    DOPPLER_TRY(check_is_no_stand_in(path, kind_of_bytes(beginning_of(path))));
  }
  return {};
}

// What a file is: by its name if that says so, which its own opening then checks, else by its first bytes.
Result<WeightsFile> examine(const fs::path& path) {
  const std::string name = path.filename().string();
  const Kind kind = kind_of_bytes(beginning_of(path));
  DOPPLER_TRY(check_is_no_stand_in(path, kind));
  if (name.ends_with(kIndexSuffix)) {
    DOPPLER_TRY(check_shards(path));
    return WeightsFile{path, Kind::kIndex};
  }
  if (name == kRdrrManifestName && has_rdrr_manifest(path.parent_path()))
    return WeightsFile{path, Kind::kRdrr};
  if (name.ends_with(kGgufEnding)) return WeightsFile{path, Kind::kGguf};
  if (name.ends_with(".safetensors")) return WeightsFile{path, Kind::kSafetensors};
  if (kind != Kind::kUnknown) return WeightsFile{path, kind};
  const std::string_view other = other_weights(name);
  return fail(ErrorCode::kUnsupported, "The file {} is {}. {}. Give one of those.", printable_path(path),
              !other.empty() ? other : "of a kind that Doppler does not know", kReads);
}

// The file with the weights, for a path that the user gave; errors say all that is wrong with the path.
Result<WeightsFile> resolve_weights(const fs::path& model) {
  const auto kind = system::kind_of(model);
  if (!kind) {
    return fail(ErrorCode::kIo, "The model {} cannot be opened: {}. Check its permissions.",
                printable_path(model), kind.error().message());
  }
  if (*kind == system::PathKind::kMissing)
    return fail(ErrorCode::kNotFound, "The model {} does not exist. Check the path.", printable_path(model));
  if (*kind == system::PathKind::kFolder) {
    DOPPLER_ASSIGN(const fs::path weights, find_weights(cached_snapshot(model).value_or(model)));
    return examine(weights);
  }
  if (model.filename().string().ends_with(".safetensors")) DOPPLER_TRY(check_whole_model(model));
  return examine(model);
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

bool is_gguf(const fs::path& file) {
  return file.extension() == kGgufEnding || kind_of_bytes(beginning_of(file)) == Kind::kGguf;
}

std::string_view other_weights(std::string_view name) {
  const auto found =
      std::ranges::find_if(kOtherFormats, [&](const OtherFormat& f) { return name.ends_with(f.ending); });
  return found == kOtherFormats.end() ? std::string_view() : found->what;
}

namespace {

Status open_package(ModelFiles& files, Opening opening) {
  DOPPLER_ASSIGN(RdrrPackage package, open_rdrr(files.folder, opening));
  for (const std::string& note : package.notes) log(Level::kWarn, "Loader", "{}", note);
  files.tensors = std::move(package.tensors);
  files.rdrr = std::make_shared<const RdrrManifest>(std::move(package.manifest));
  if (const std::string& name = files.rdrr->tokenizer_file;
      !name.empty() && !system::is_file(files.folder / name)) {
    log(Level::kWarn, "Loader",
        "The tokenizer {}, which the manifest of {} names, is missing: without it only token ids can be "
        "given. "
        "Download it.",
        printable(name), printable_path(files.folder));
  }
  if (!files.rdrr->gguf_metadata.empty()) {
    DOPPLER_ASSIGN(GgufFile said, open_gguf(files.folder / files.rdrr->gguf_metadata, opening));
    files.gguf = std::move(said.metadata);
    return files.tensors.merge(std::move(said.tensors));  // none, but the mapped file that metadata lie in
  }
  files.config = rdrr_config(*files.rdrr);
  if (!files.generation_config) files.generation_config = rdrr_generation_config(*files.rdrr);
  return {};
}

}  // namespace

Result<ModelFiles> open_model_files(const fs::path& model, Opening opening) {
  DOPPLER_ASSIGN(const WeightsFile weights, resolve_weights(model));
  ModelFiles files;
  files.folder = weights.path.has_parent_path() ? weights.path.parent_path() : fs::path(".");
  if (weights.kind == Kind::kGguf) {
    DOPPLER_ASSIGN(GgufFile gguf, open_gguf(weights.path, opening));
    files.gguf = std::move(gguf.metadata);
    files.tensors = std::move(gguf.tensors);
    return files;
  }
  if (weights.kind != Kind::kRdrr) {
    DOPPLER_ASSIGN(files.config, read_config(files.folder));
  }
  auto generation = read_json_object(files.folder / "generation_config.json");
  if (generation) {
    files.generation_config = std::move(*generation);
  } else if (generation.error().code != ErrorCode::kNotFound) {
    return std::unexpected(std::move(generation).error());
  }
  if (weights.kind == Kind::kRdrr) {
    DOPPLER_TRY(open_package(files, opening));
    return files;
  }
  DOPPLER_ASSIGN(files.tensors, weights.kind == Kind::kIndex ? open_safetensors_index(weights.path, opening)
                                                             : open_safetensors(weights.path, opening));
  return files;
}

}  // namespace doppler
