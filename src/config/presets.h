// Presets: configurations with a name. Those of the program, a user's in ~/.doppler/presets/NAME.json, and a
// project's in ./.doppler/NAME.json; of presets with one name the project's counts, then the user's, then the
// program's.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace doppler::config {

struct BuiltinPreset {
  std::string_view name;
  std::string_view json;  // with a "description"
};
std::span<const BuiltinPreset> builtin_presets();

// Where to look for presets besides the built-in ones; empty paths: nowhere.
struct PresetFolders {
  std::filesystem::path user, project;
};
// ~/.doppler/presets by $HOME, and ./.doppler.
PresetFolders usual_preset_folders();

// A configuration as it stands in its file.
struct ConfigText {
  std::string source;          // "preset bench", "file my.json"
  Json tree;                   // an object
  std::filesystem::path file;  // empty for built-in presets and texts
};

// A preset by name; nothing if there is none. Errors: kCorrupt, kIo, kLimit if its file is broken. `not_this`
// and presets with precedence over it are skipped, so that ./.doppler/debug.json can extend the preset debug
// that it replaces.
Result<std::optional<ConfigText>> find_preset(std::string_view name, const PresetFolders& folders,
                                              const std::filesystem::path& not_this = {});
// A file of JSON. Errors as above, and kNotFound.
Result<ConfigText> read_config_file(const std::filesystem::path& path);

struct PresetListing {
  std::string name, description, extends, where;  // "built in", or the file
};
// All presets that find_preset() would find, by name. Broken files are listed with the error as description.
std::vector<PresetListing> list_presets(const PresetFolders& folders);

// Deeper chains of "extends" are a mistake.
inline constexpr std::size_t kMostExtends = 10;

// The chain behind `of` and itself, the root first. An "extends" names a preset or, ending in .json, a file
// beside the one it stands in. Errors: kUsage for a name that does not exist (with the nearest), a chain that
// is circular or deeper than kMostExtends.
Result<std::vector<ConfigText>> extends_chain(ConfigText of, const PresetFolders& folders);

}  // namespace doppler::config
