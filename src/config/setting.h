// Settings: everything a user can set, as one table. Configuration files, presets, --set, flags, explanations
// and the JSON Schema are all made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace doppler::config {

enum class ValueType : std::uint8_t {
  kBool,
  kWhole,  // 0, 1, 2, …
  kNumber,
  kText,
  kTexts,   // a list of texts; a single text counts as a list of one
  kLayers,  // a list of layers: [0, 17], "0,17", "0-5"
  kBiases,  // {"12": -1.5}, or a list of "12=-1.5"
  kProbes,  // a list of objects, see kProbeFields
};

// Which commands a setting is a flag of; any command takes it through --config and --set.
enum class SettingGroup : std::uint8_t { kEverywhere, kGeneration, kTrace };

struct SettingInfo {
  std::string_view path;  // "runtime.inference.sampling.temperature"
  ValueType type = ValueType::kText;
  std::string_view fallback;  // the default as JSON; "null": the model or the command decides
  std::string_view off;       // as JSON: the value that null stands for when a user writes it to switch off
  std::string_view meaning;
  std::string_view flag = {};                      // "--temperature"; empty: none
  SettingGroup group = SettingGroup::kEverywhere;  // of the flag
  std::string_view turns_on = {};                  // a setting of type kBool that the flag makes true
  std::span<const std::string_view> choices = {};  // of kText: nothing else is allowed
  double least = -1e308, most = 1e308;             // of kNumber and kWhole
  bool comma = false;  // of kTexts: a text from a flag or --set is split at commas
};
std::span<const SettingInfo> all_settings();
// Null if there is none.
const SettingInfo* find_setting(std::string_view path);
// Whether a path lies below a group.
bool is_setting_below(std::string_view path, std::string_view group);
// Whether settings lie below a path, as below "runtime.shared.debug".
bool is_setting_group(std::string_view path);

// An older name of a setting, which users may have in their files, and its current name.
struct SettingAlias {
  std::string_view old_path, path;
};
std::span<const SettingAlias> all_setting_aliases();

// The fields of a probe. Types: kText, kLayers; here kWhole stands for a list of whole numbers, kNumber for a
// list of whole numbers that may be negative.
struct ProbeField {
  std::string_view name;
  ValueType type;
  bool needed;
  std::string_view meaning;
};
std::span<const ProbeField> all_probe_fields();

}  // namespace doppler::config
