// Config: every setting with its value and where the value comes from. Order of decision: defaults < preset
// chain < files < texts < --set < flags. Objects merge, lists and single values replace, and null switches a
// setting off.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "config/presets.h"
#include "config/setting.h"

namespace doppler::config {

// Where a value comes from, and the rank of that source: of two sources the one with the higher rank counts.
struct ConfigSource {
  std::string name = "default";  // "preset bench", "file my.json", "--config text", "--set", "--temperature"
  std::size_t rank = 0;          // 0: the default
};

struct ConfigValue {
  const SettingInfo* info = nullptr;
  Json value;  // canonical, see value.h
  ConfigSource source;
  bool given() const { return source.rank > 0; }
};

// The current name of a setting's path, which may be an older name.
std::string current_setting_name(std::string_view path);

class Config {
 public:
  // All defaults.
  Config();

  // One per setting, in the table's order.
  std::span<const ConfigValue> values() const { return values_; }
  // Null for a path that is no setting.
  const ConfigValue* find(std::string_view path) const;
  // The settings below a path, as "runtime.shared.debug", as nested objects, defaults included.
  Json subtree(std::string_view group) const;
  // The merged sources, in order: "preset debug", "preset gemma2-debug".
  const std::vector<std::string>& chain() const { return chain_; }
  // Sentences about older names.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Merges a tree; a later merge or set overrides an earlier one. Errors: kUsage for a path that is no
  // setting (with the nearest name), or a value of the wrong type.
  Status merge(const Json& tree, const std::string& source);
  // Sets one path, or a group with an object or null. `text`: the value comes from a command line, where
  // lists are written "a,b".
  Status set(std::string_view path, const Json& value, const std::string& source, bool text);

 private:
  struct Giver {
    ConfigSource source;
    bool text = false;
  };
  Status apply(std::string_view path, const Json& value, const Giver& giver);
  Status assign(ConfigValue& to, const Json& value, const Giver& giver);
  std::string name_of(std::string_view path, const ConfigSource& source);
  std::vector<ConfigValue> values_;
  std::vector<std::string> chain_, warnings_;
  std::size_t rank_ = 0;
};

// The configuration that a command line gives.
struct ConfigInput {
  std::vector<std::string> configs;  // presets, files and JSON texts
  std::vector<std::string> sets;     // path=value
  struct Flag {
    const SettingInfo* info;
    Json value;
  };
  std::vector<Flag> flags;
  PresetFolders folders = usual_preset_folders();
};
// Errors: kUsage for input that is no configuration, or one that contradicts itself (see conflicts.h);
// kNotFound, kIo, kCorrupt for files.
Result<Config> resolve_config(const ConfigInput& input);

}  // namespace doppler::config
