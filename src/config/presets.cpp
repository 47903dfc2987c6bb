#include "config/presets.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/files.h"
#include "base/text.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::config {
namespace {

// Values follow the presets of these names that Doppler's users know.
constexpr auto kPresets = std::to_array<BuiltinPreset>({
    {"default", R"({"description": "nothing but the defaults", "runtime": {}})"},
    {"bench", R"({
  "description": "for measuring: greedy, and nothing may look inside",
  "runtime": {
    "inference": {"batching": {"maxTokens": 64}, "sampling": {"temperature": 0}},
    "shared": {
      "tooling": {"intent": "calibrate"},
      "debug": {"logLevel": {"defaultLogLevel": "info"}, "trace": {"enabled": false}}
    }
  }
})"},
    {"debug", R"({
  "description": "for looking inside: verbose, everything traced for 100 steps",
  "runtime": {"shared": {
    "tooling": {"intent": "investigate"},
    "debug": {
      "logLevel": {"defaultLogLevel": "verbose"},
      "logHistory": {"maxLogHistoryEntries": 5000},
      "trace": {"enabled": true, "categories": ["all"], "maxDecodeSteps": 100}
    }
  }}
})"},
    {"production", R"({
  "description": "for answering people: errors only, long answers, some chance",
  "runtime": {
    "inference": {"batching": {"maxTokens": 4096}, "sampling": {"temperature": 0.7}},
    "shared": {"debug": {"logLevel": {"defaultLogLevel": "error"}}}
  }
})"},
    {"low-memory", R"({
  "description": "for small machines: a short context, the cache in 8 bits",
  "runtime": {"inference": {"kvcache": {"maxSeqLen": 2048, "kvDtype": "q8_0"}}}
})"},
    {"ci", R"({
  "description": "for tests: the same text everywhere, on the cpu, failures with their last log lines",
  "runtime": {
    "backend": "cpu",
    "inference": {"sampling": {"temperature": 0, "seed": 0}},
    "shared": {
      "tooling": {"intent": "verify"},
      "debug": {"logLevel": {"defaultLogLevel": "info"}, "logOutput": {"stdout": false}}
    }
  }
})"},
    {"decode-latency", R"({
  "description": "each token as early as possible: one to a submission",
  "runtime": {"gpu": {"submitTokens": 1}}
})"},
    {"decode-throughput", R"({
  "description": "as many tokens a second as possible: 16 to a submission",
  "runtime": {"gpu": {"submitTokens": 16}}
})"},
    {"debug-logits", R"({
  "description": "what the model finds likely, step by step",
  "extends": "debug",
  "runtime": {"shared": {"debug": {"trace": {"categories": ["logits", "sample"]}}}}
})"},
    {"debug-trace-all-1tok", R"({
  "description": "everything about the prompt and a single token",
  "extends": "debug",
  "runtime": {"inference": {"batching": {"maxTokens": 1}}}
})"},
    {"trace-layers", R"({
  "description": "attention and feed-forward of every layer, first ten steps",
  "extends": "debug",
  "runtime": {"shared": {"debug": {"trace": {"categories": ["embed", "attn", "ffn"], "maxDecodeSteps": 10}}}}
})"},
    {"gemma2-debug", R"({
  "description": "Gemma 2 2B: first, middle and last layer, with the dimension that grows most",
  "extends": "debug",
  "runtime": {"shared": {"debug": {
    "trace": {"categories": ["ffn", "attn", "logits"], "layers": [0, 17, 25], "maxDecodeSteps": 20},
    "probes": [
      {"id": "layer_out", "stage": "layer_out", "layers": [0, 17, 25], "tokens": [0, -1], "dims": [334]},
      {"id": "final_norm", "stage": "final_norm", "tokens": [-1], "dims": [334]}
    ]
  }}}
})"},
    {"gemma3-layer-probe", R"({
  "description": "Gemma 3 1B: the ends of the model, and the logits that tell wrong norms from right ones",
  "extends": "debug",
  "runtime": {"shared": {"debug": {
    "trace": {"categories": ["embed", "logits"]},
    "probes": [
      {"id": "embed", "stage": "embed_out", "tokens": [-1], "dims": [0, 1, 2, 3, 4, 5, 6, 7]},
      {"id": "final", "stage": "final_norm", "tokens": [-1], "dims": [0, 1, 2, 3, 4, 5, 6, 7]},
      {"id": "logits", "stage": "logits", "tokens": [-1], "dims": [138, 3730, 4781, 3187, 496, 506]}
    ]
  }}}
})"},
});

constexpr std::uint64_t kMostBytes = 1 << 20;  // a thousand times a usual file

std::filesystem::path file_of(const std::filesystem::path& folder, std::string_view name) {
  return folder.empty() ? folder : folder / (std::string(name) + ".json");
}

Result<ConfigText> parse_preset(std::string_view name, std::string_view json, std::filesystem::path file) {
  ConfigText preset{.source = fmt::format("preset {}", printable(name)), .tree = {}, .file = std::move(file)};
  DOPPLER_ASSIGN(preset.tree, parse_json(json, "The " + preset.source));
  if (preset.tree.is_object()) return preset;
  return fail(ErrorCode::kUsage, "The {} is not a JSON object.", preset.source);
}

std::string text_at(const Json& tree, const char* key) {
  const auto at = tree.find(key);
  return at != tree.end() && at->is_string() ? at->get<std::string>() : "";
}

PresetListing listing(std::string name, const Result<ConfigText>& preset, std::string where) {
  if (!preset) return {std::move(name), preset.error().message, "", std::move(where)};
  return {std::move(name), text_at(preset->tree, "description"), text_at(preset->tree, "extends"),
          std::move(where)};
}

std::vector<std::string> preset_names(const PresetFolders& folders) {
  std::vector<std::string> names;
  for (const PresetListing& preset : list_presets(folders)) names.push_back(preset.name);
  return names;
}

// The configuration that "extends" in `from` names.
Result<ConfigText> resolve_extends(const std::string& name, const ConfigText& from,
                                   const PresetFolders& folders) {
  if (name.ends_with(".json")) return read_config_file(from.file.parent_path() / name);
  // A preset that extends its own name means the preset that it replaces.
  const bool own = from.file.stem() == name;
  DOPPLER_ASSIGN(auto preset, find_preset(name, folders, own ? from.file : std::filesystem::path()));
  if (preset) return std::move(*preset);
  const std::vector<std::string> names = preset_names(folders);
  const std::string nearest = nearest_name(name, names);
  return fail(ErrorCode::kUsage, "The {} extends {}, which is no preset. {}", from.source, printable(name),
              nearest.empty() ? fmt::format("Presets are {}.", join(names, ", "))
                              : fmt::format("Did you mean {}?", nearest));
}

}  // namespace

std::span<const BuiltinPreset> builtin_presets() {
  return kPresets;
}

PresetFolders usual_preset_folders() {
  const std::filesystem::path home = system::home_folder();
  return {.user = home.empty() ? home : home / ".doppler" / "presets", .project = ".doppler"};
}

Result<ConfigText> read_config_file(const std::filesystem::path& path) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(path, kMostBytes));
  ConfigText file{.source = fmt::format("file {}", printable(path.string(), 200)), .tree = {}, .file = path};
  DOPPLER_ASSIGN(file.tree, parse_json(text, "The " + file.source));
  if (file.tree.is_object()) return file;
  return fail(ErrorCode::kUsage, "The {} is not a JSON object.", file.source);
}

Result<std::optional<ConfigText>> find_preset(std::string_view name, const PresetFolders& folders,
                                              const std::filesystem::path& not_this) {
  // Names are no paths: nothing outside the folders can be meant.
  if (name.empty() || name.size() > 100 || name.find_first_of(std::string_view("/\\\0", 3)) != name.npos ||
      name.starts_with('.'))
    return std::nullopt;
  const std::filesystem::path files[] = {file_of(folders.project, name), file_of(folders.user, name)};
  // If `not_this` is one of the files, the search begins after it.
  std::size_t first = 0;
  for (std::size_t i = 0; i < std::size(files); ++i)
    if (system::same_file(files[i], not_this)) first = i + 1;
  for (const auto& file : std::span(files).subspan(first)) {
    if (!system::is_file(file)) continue;
    DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMostBytes));
    DOPPLER_ASSIGN(ConfigText preset, parse_preset(name, text, file));
    return std::optional(std::move(preset));
  }
  for (const BuiltinPreset& builtin : kPresets) {
    if (builtin.name != name) continue;
    DOPPLER_ASSIGN(ConfigText preset, parse_preset(name, builtin.json, {}));
    return std::optional(std::move(preset));
  }
  return std::nullopt;
}

std::vector<PresetListing> list_presets(const PresetFolders& folders) {
  std::map<std::string, PresetListing> by_name;
  for (const BuiltinPreset& builtin : kPresets) {
    const std::string name(builtin.name);
    by_name[name] = listing(name, parse_preset(name, builtin.json, {}), "built in");
  }
  for (const auto& folder : {folders.user, folders.project}) {
    const auto files = system::list_folder(folder);
    if (!files) continue;
    for (const std::filesystem::path& file : *files) {
      if (file.extension() != ".json" || !system::is_file(file)) continue;
      const std::string name = file.stem().string();
      by_name[name] = listing(name, read_config_file(file), file.string());
    }
  }
  std::vector<PresetListing> all;
  for (auto& [name, preset] : by_name) all.push_back(std::move(preset));
  return all;
}

Result<std::vector<ConfigText>> extends_chain(ConfigText of, const PresetFolders& folders) {
  std::vector<ConfigText> chain;  // `of` first
  chain.push_back(std::move(of));
  for (;;) {
    const auto extends = chain.back().tree.find("extends");
    if (extends == chain.back().tree.end() || extends->is_null()) break;
    if (!extends->is_string()) {
      return fail(ErrorCode::kUsage, "The {} extends {}, but it must be the name of a preset or a file.",
                  chain.back().source, printable(extends->dump(), 60));
    }
    DOPPLER_ASSIGN(ConfigText parent, resolve_extends(extends->get<std::string>(), chain.back(), folders));
    std::string way;
    for (const ConfigText& link : chain) way += link.source + " -> ";
    way += parent.source;
    for (const ConfigText& link : chain) {
      const bool same = parent.file.empty() && link.file.empty() ? parent.source == link.source
                                                                 : system::same_file(parent.file, link.file);
      if (same) return fail(ErrorCode::kUsage, "The presets extend each other in a circle: {}.", way);
    }
    if (chain.size() > kMostExtends) {
      return fail(ErrorCode::kUsage, "The presets extend each other more than {} times: {}.", kMostExtends,
                  printable(way, 400));
    }
    chain.push_back(std::move(parent));
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace doppler::config
