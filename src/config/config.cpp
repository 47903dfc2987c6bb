#include "config/config.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "config/conflicts.h"
#include "config/value.h"
#include "system/files.h"

namespace doppler::config {
namespace {

constexpr std::string_view kRoot = "runtime.", kShared = "runtime.shared.";

bool is_known(std::string_view path) {
  return find_setting(path) != nullptr || is_setting_group(path);
}

// Keys that a configuration's root may hold besides settings, for people and for extends_chain().
bool is_remark(std::string_view key) {
  return key == "id" || key == "name" || key == "description" || key == "extends" || key == "$schema";
}

bool equal_but_for_case(std::string_view a, std::string_view b) {
  return ascii_lower(a) == ascii_lower(b);
}

std::unexpected<Error> unknown(std::string_view path, const ConfigSource& source) {
  // Bounds the time for hostile input: a distance takes the product of both lengths.
  const std::string_view name = path.substr(0, 120);
  std::vector<std::string> known;
  for (const SettingInfo& info : all_settings()) {
    std::string group(info.path);
    known.push_back(group);
    for (std::size_t dot; (dot = group.rfind('.')) != std::string::npos;) {
      group.resize(dot);
      if (std::find(known.begin(), known.end(), group) == known.end()) known.push_back(group);
    }
  }
  std::string nearest = nearest_name(name, known);
  for (const std::string& other : known) {
    if (equal_but_for_case(name, other)) nearest = other;
  }
  return fail(ErrorCode::kUsage, "The {} sets {}, which does not exist.{}", source.name, printable(path, 100),
              nearest.empty() ? " All settings begin with runtime; doppler config explain lists them."
                              : fmt::format(" Did you mean {}?", nearest));
}

std::string end_sentence(std::string text) {
  if (!text.ends_with('?') && !text.ends_with('.')) text += '.';
  return text;
}

// Objects merge: what `given` names is set to its canonical value, or taken away by a null.
void merge_biases(Json& onto, const Json& canonical, const Json& given) {
  for (const auto& [id, bias] : given.items()) {
    if (bias.is_null()) onto.erase(id);
  }
  onto.update(canonical);
}

}  // namespace

Config::Config() {
  static const std::vector<ConfigValue> kDefaults = [] {
    std::vector<ConfigValue> values;
    for (const SettingInfo& info : all_settings())
      values.push_back({&info, Json::parse(info.fallback, nullptr, false), {}});
    return values;
  }();
  values_ = kDefaults;
}

const ConfigValue* Config::find(std::string_view path) const {
  const auto at = std::find_if(values_.begin(), values_.end(),
                               [&](const ConfigValue& value) { return value.info->path == path; });
  return at == values_.end() ? nullptr : &*at;
}

Json Config::subtree(std::string_view group) const {
  Json tree = Json::object();
  for (const ConfigValue& value : values_) {
    std::string_view rest = value.info->path;
    if (!is_setting_below(rest, group)) continue;
    rest.remove_prefix(group.size() + 1);
    Json* node = &tree;
    for (std::size_t dot; (dot = rest.find('.')) != std::string_view::npos; rest.remove_prefix(dot + 1))
      node = &(*node)[std::string(rest.substr(0, dot))];
    (*node)[std::string(rest)] = value.value;
  }
  return tree;
}

std::string current_setting_name(std::string_view path) {
  std::string now(path);
  if (is_known(now)) return now;
  if (path.starts_with(kRoot) && !path.starts_with(kShared)) {
    const std::string shared = std::string(kShared) + now.substr(kRoot.size());
    if (is_known(shared)) now = shared;
  }
  for (const SettingAlias& alias : all_setting_aliases()) {
    if (alias.old_path == now) now = alias.path;
  }
  return now;
}

// The current name of `path`; warns once for each older name.
std::string Config::name_of(std::string_view path, const ConfigSource& source) {
  std::string now = current_setting_name(path);
  if (now == path) return now;
  std::string warning =
      fmt::format("The {} sets {}, an older name. Write {}.", source.name, printable(path, 100), now);
  if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end())
    warnings_.push_back(std::move(warning));
  return now;
}

Status Config::assign(ConfigValue& to, const Json& value, const Giver& giver) {
  Result<Json> canonical = canonical_value(*to.info, value, giver.text);
  if (!canonical) {
    const std::string given = dump_json(value);
    return std::unexpected(
        Error{ErrorCode::kUsage,
              end_sentence(fmt::format("The {} sets {} to {}, but it must be {}", giver.source.name,
                                       to.info->path, printable(given, 60), canonical.error().message))});
  }
  if (to.info->type == ValueType::kBiases && value.is_object())
    merge_biases(to.value, *canonical, value);
  else
    to.value = std::move(*canonical);
  to.source = giver.source;
  return {};
}

// Depth is bounded by the JSON parser.
Status Config::apply(std::string_view path, const Json& value, const Giver& giver) {
  const std::string now = name_of(path, giver.source);
  for (ConfigValue& known : values_) {
    if (known.info->path == now) return assign(known, value, giver);
  }
  if (!is_setting_group(now)) return unknown(now, giver.source);
  if (value.is_null()) {
    for (ConfigValue& known : values_) {
      if (is_setting_below(known.info->path, now)) DOPPLER_TRY(assign(known, value, giver));
    }
    return {};
  }
  if (!value.is_object()) {
    return fail(ErrorCode::kUsage,
                "The {} sets {} to {}, but settings lie below it, so it must be an object or null.",
                giver.source.name, now, printable(dump_json(value), 60));
  }
  for (const auto& [key, child] : value.items()) DOPPLER_TRY(apply(now + "." + key, child, giver));
  return {};
}

Status Config::merge(const Json& tree, const std::string& source) {
  const Giver giver{{source, ++rank_}, false};
  chain_.push_back(source);
  for (const auto& [key, value] : tree.items()) {
    if (!is_remark(key)) DOPPLER_TRY(apply(key, value, giver));
  }
  return {};
}

Status Config::set(std::string_view path, const Json& value, const std::string& source, bool text) {
  return apply(path, value, {{source, ++rank_}, text});
}

namespace {

enum class Kind : std::uint8_t { kPreset, kFile, kText };  // in the order in which they are merged

struct Given {
  Kind kind;
  ConfigText text;
};

Result<Given> read_config(const std::string& given, const PresetFolders& folders) {
  if (given.starts_with('{')) {
    Given text{Kind::kText, {.source = "--config text", .tree = {}, .file = {}}};
    DOPPLER_ASSIGN(text.text.tree, parse_json(given, "The --config text"));
    if (!text.text.tree.is_object())
      return fail(ErrorCode::kUsage, "The --config text is not a JSON object.");
    return text;
  }
  DOPPLER_ASSIGN(auto preset, find_preset(given, folders));
  if (preset) return Given{Kind::kPreset, std::move(*preset)};
  if (system::exists(given)) {
    DOPPLER_ASSIGN(ConfigText file, read_config_file(given));
    return Given{Kind::kFile, std::move(file)};
  }
  std::vector<std::string> names;
  for (const PresetListing& known : list_presets(folders)) names.push_back(known.name);
  const std::string nearest = nearest_name(given.substr(0, 120), names);
  return fail(ErrorCode::kUsage,
              "The --config {} is neither a preset nor a file, nor JSON that begins with {{. {}",
              printable(given, 200),
              nearest.empty() ? fmt::format("Presets are {}.", join(names, ", "))
                              : fmt::format("Did you mean the preset {}?", nearest));
}

Status apply_set(Config& config, const std::string& given) {
  const std::size_t equals = given.find('=');
  if (equals == std::string::npos) {
    return fail(ErrorCode::kUsage, "The --set {} has no '='. Write --set path=value.", printable(given));
  }
  const std::string_view text = std::string_view(given).substr(equals + 1);
  Result<Json> value = parse_json(text, "The value");
  if (!value) value = std::string(text);  // plain words need no quotes
  return config.set(std::string_view(given).substr(0, equals), *value, "--set", true);
}

}  // namespace

Result<Config> resolve_config(const ConfigInput& input) {
  std::vector<Given> configs;
  for (const std::string& given : input.configs) {
    DOPPLER_ASSIGN(Given config, read_config(given, input.folders));
    configs.push_back(std::move(config));
  }
  Config config;
  for (const Kind kind : {Kind::kPreset, Kind::kFile, Kind::kText}) {
    for (Given& given : configs) {
      if (given.kind != kind) continue;
      DOPPLER_ASSIGN(const auto chain, extends_chain(std::move(given.text), input.folders));
      for (const ConfigText& link : chain) DOPPLER_TRY(config.merge(link.tree, link.source));
    }
  }
  for (const std::string& set : input.sets) DOPPLER_TRY(apply_set(config, set));
  for (const ConfigInput::Flag& flag : input.flags) {
    const std::string source(flag.info->flag);
    if (!flag.info->turns_on.empty()) DOPPLER_TRY(config.set(flag.info->turns_on, true, source, true));
    DOPPLER_TRY(config.set(flag.info->path, flag.value, source, true));
  }
  DOPPLER_TRY(check_conflicts(config));
  return config;
}

}  // namespace doppler::config
