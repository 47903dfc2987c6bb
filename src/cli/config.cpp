// doppler config: every setting with its value and source, the JSON Schema of all, and the existing presets.
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "base/layout.h"
#include "base/text.h"
#include "cli/command.h"
#include "config/schema.h"

namespace doppler::cli {
namespace {

struct ConfigArguments {
  std::string path;
};

std::string value_text(const Json& value) {
  return value.is_null() ? "-" : dump_json(value);
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
  using enum Column::Kind;
  Table table({{"setting"}, {"value", kText}, {"from"}, {"meaning", kText}});
  for (const config::ConfigValue& value : values) {
    table.add({std::string(value.info->path), value_text(value.value), value.source.name,
               fmt::format("{}{}", value.info->meaning,
                           value.info->flag.empty() ? "" : fmt::format(" ({})", value.info->flag))});
  }
  return table.text(table_columns());
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
  Table table({{""}, {"", Column::Kind::kText}});
  for (const config::PresetListing& preset : all) {
    rows.push_back({{"name", preset.name},
                    {"description", preset.description},
                    {"extends", preset.extends.empty() ? Json(nullptr) : Json(preset.extends)},
                    {"where", preset.where}});
    std::string what = printable(preset.description, 200);
    if (!preset.extends.empty()) what += fmt::format("; extends {}", printable(preset.extends));
    if (preset.where != "built in") what += fmt::format(" ({})", preset.where);
    table.add({preset.name, std::move(what)});
  }
  DOPPLER_TRY(given.json ? print_json({{"presets", rows}}) : print(table.text(table_columns())));
  return kDone;
}

}  // namespace

Run add_config(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<ConfigArguments>();
  Command explained =
      command.add_part("explain", "print every setting with its value, its source and its meaning");
  explained.add_option("PATH", arguments->path, "only this setting, or those below it");
  add_setting_flags(explained, given, true, true);
  const Command schema = command.add_part("schema", "print a JSON Schema of configurations");
  Command listed = command.add_part("presets", "list the presets that --config takes by name");
  listed.add_flag("--json", given.json, "print one JSON object on stdout and nothing else there");
  command.require_part();
  return [arguments, &given, explained, schema]() -> Result<int> {
    if (explained.chosen()) return explain(*arguments, given);
    if (!schema.chosen()) return presets(given);
    DOPPLER_TRY(print(config::config_schema().dump(2) + "\n"));
    return kDone;
  };
}

}  // namespace doppler::cli
