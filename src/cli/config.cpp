// doppler config: every setting with its value and source, the JSON Schema of all, and the existing presets.
#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "cli/command.h"
#include "config/schema.h"

namespace doppler::cli {
namespace {

struct ConfigArguments {
  std::string path;
};

std::string value_text(const Json& value) {
  return value.is_null() ? "-" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const config::ConfigValue& value) {
  return {{"path", value.info->path},
          {"value", value.value},
          {"source", value.source.name},
          {"flag", value.info->flag.empty() ? Json(nullptr) : Json(value.info->flag)},
          {"meaning", value.info->meaning}};
}

// The setting, or those below a group; all if there is no path.
Result<std::vector<config::ConfigValue>> chosen(const config::Config& config, const std::string& path) {
  std::vector<config::ConfigValue> values;
  std::vector<std::string> known;
  for (const config::ConfigValue& value : config.values()) {
    known.emplace_back(value.info->path);
    if (path.empty() || value.info->path == path || config::is_setting_below(value.info->path, path))
      values.push_back(value);
  }
  if (!values.empty()) return values;
  const std::string nearest = nearest_name(path.substr(0, 120), known);
  return fail(
      ErrorCode::kUsage, "There is no setting {}.{}", printable(path),
      nearest.empty() ? " doppler config explain lists all." : fmt::format(" Did you mean {}?", nearest));
}

std::string table(std::span<const config::ConfigValue> values) {
  // Long values (probes) shift the rest of their line instead of widening the column for all.
  constexpr std::size_t kWidest = 24;
  std::size_t path_width = 7, value_width = 5, source_width = 4;
  for (const config::ConfigValue& value : values) {
    path_width = std::max(path_width, value.info->path.size());
    value_width = std::max(value_width, std::min(value_text(value.value).size(), kWidest));
    source_width = std::max(source_width, std::min(value.source.name.size(), kWidest));
  }
  std::string text = fmt::format("{:{}}  {:{}}  {:{}}  meaning\n", "setting", path_width, "value",
                                 value_width, "from", source_width);
  for (const config::ConfigValue& value : values) {
    text += fmt::format("{:{}}  {:{}}  {:{}}  {}{}\n", value.info->path, path_width, value_text(value.value),
                        value_width, value.source.name, source_width, value.info->meaning,
                        value.info->flag.empty() ? "" : fmt::format(" ({})", value.info->flag));
  }
  return text;
}

Result<int> explain(const ConfigArguments& arguments, const SettingFlags& given) {
  const config::Config& config = given.flags.config;
  DOPPLER_ASSIGN(const std::vector<config::ConfigValue> values,
                 chosen(config, config::current_setting_name(arguments.path)));
  if (!given.json) {
    DOPPLER_TRY(print(table(values)));
    return kDone;
  }
  Json rows = Json::array();
  for (const config::ConfigValue& value : values) rows.push_back(to_json(value));
  DOPPLER_TRY(print_json({{"settings", rows}, {"chain", config.chain()}, {"warnings", config.warnings()}}));
  return kDone;
}

Result<int> presets(const SettingFlags& given) {
  const std::vector<config::PresetListing> all = config::list_presets(given.input.folders);
  Json rows = Json::array();
  std::size_t width = 0;
  for (const config::PresetListing& preset : all) width = std::max(width, preset.name.size());
  std::string text;
  for (const config::PresetListing& preset : all) {
    rows.push_back({{"name", preset.name},
                    {"description", preset.description},
                    {"extends", preset.extends.empty() ? Json(nullptr) : Json(preset.extends)},
                    {"where", preset.where}});
    text += fmt::format("{:{}}  {}", preset.name, width, printable(preset.description, 200));
    if (!preset.extends.empty()) text += fmt::format("; extends {}", printable(preset.extends));
    if (preset.where != "built in") text += fmt::format(" ({})", preset.where);
    text += "\n";
  }
  DOPPLER_TRY(given.json ? print_json({{"presets", rows}}) : print(text));
  return kDone;
}

}  // namespace

Run add_config(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<ConfigArguments>();
  Command explained =
      command.add_part("explain", "print every setting with its value, its source and its meaning");
  explained.add_option("PATH", arguments->path, "only this setting, or those below it");
  const Command schema = command.add_part("schema", "print a JSON Schema of configurations");
  command.add_part("presets", "list the presets that --config takes by name");
  command.require_part();
  add_setting_flags(command, given, true, true);
  command.footer("\n  doppler config explain runtime.shared.debug --config debug --trace attn,ffn");
  return [arguments, &given, explained, schema]() -> Result<int> {
    if (explained.chosen()) return explain(*arguments, given);
    if (!schema.chosen()) return presets(given);
    DOPPLER_TRY(print(config::config_schema().dump(2) + "\n"));
    return kDone;
  };
}

}  // namespace doppler::cli
