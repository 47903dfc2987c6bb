#include "cli/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "base/log.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"
#include "config/conflicts.h"
#include "system/numbers.h"

namespace doppler::cli {
namespace {

// Values beyond 32 bits mean "as many as there are".
void read(const Json& value, std::uint32_t& to) {
  to = static_cast<std::uint32_t>(std::min<std::uint64_t>(value.get<std::uint64_t>(), UINT32_MAX));
}
void read(const Json& value, std::map<TokenId, double>& to) {
  for (const auto& [id_text, bias] : value.items()) {
    const std::string number = bias.is_string() ? bias.get<std::string>() : bias.dump();  // infinity is text
    TokenId id = 0;
    double added = 0;
    std::from_chars(id_text.data(), id_text.data() + id_text.size(), id);
    system::read_double(number.data(), number.data() + number.size(), added);
    to[id] = added;
  }
}
template <typename T>
void read(const Json& value, T& to) {
  to = value.get<T>();
}

// The option of each setting: this row and the setting's row in config/setting.cpp are all that a new setting
// needs. Values are canonical, so their types are right.
template <typename Options>
struct Knob {
  std::string_view path;
  void (*read)(const Json& value, Options& options);
};
template <auto Member, typename Options>
void member(const Json& value, Options& options) {
  read(value, options.*Member);
}
template <auto Member>
void of_gpu(const Json& value, LoadOptions& options) {
  read(value, options.gpu.*Member);
}

// "auto", "off", or a number.
void speculate(const Json& value, GenerateOptions& options) {
  const std::string text = value.get<std::string>();
  options.speculate = text == "auto" ? GenerateOptions::kSpeculateAuto : 0;
  std::from_chars(text.data(), text.data() + text.size(), options.speculate);
}

using L = LoadOptions;
constexpr auto kLoadKnobs = std::to_array<Knob<LoadOptions>>({
    {"runtime.backend", member<&L::backend>},
    {"runtime.threads", member<&L::threads>},
    {"runtime.family", member<&L::family>},
    {"runtime.inference.kvcache.maxSeqLen", member<&L::context>},
    {"runtime.inference.kvcache.positions", member<&L::cache_positions>},
    {"runtime.inference.kvcache.kvDtype", member<&L::kv_type>},
    {"runtime.cpu.exact", member<&L::exact>},
    {"runtime.cpu.target", member<&L::cpu_target>},
    {"runtime.gpu.adapter", of_gpu<&GpuOptions::adapter>},
    {"runtime.gpu.submitTokens", of_gpu<&GpuOptions::submit_tokens>},
    {"runtime.gpu.checked", of_gpu<&GpuOptions::checked>},
    {"runtime.gpu.poison", of_gpu<&GpuOptions::poison>},
});
using G = GenerateOptions;
constexpr auto kGenerateKnobs = std::to_array<Knob<GenerateOptions>>({
    {"runtime.inference.batching.maxTokens", member<&G::max_tokens>},
    {"runtime.inference.sampling.temperature", member<&G::temperature>},
    {"runtime.inference.sampling.topK", member<&G::top_k>},
    {"runtime.inference.sampling.topP", member<&G::top_p>},
    {"runtime.inference.sampling.minP", member<&G::min_p>},
    {"runtime.inference.sampling.repetitionPenalty", member<&G::repeat_penalty>},
    {"runtime.inference.sampling.presencePenalty", member<&G::presence_penalty>},
    {"runtime.inference.sampling.frequencyPenalty", member<&G::frequency_penalty>},
    {"runtime.inference.sampling.repetitionPenaltyWindow", member<&G::penalty_window>},
    {"runtime.inference.sampling.seed", member<&G::seed>},
    {"runtime.inference.sampling.logitBias", member<&G::logit_bias>},
    {"runtime.inference.generation.stopSequences", member<&G::stop>},
    {"runtime.inference.generation.ignoreEos", member<&G::ignore_eos>},
    {"runtime.inference.generation.speculate", speculate},
});
constexpr auto kOwnKnobs = std::to_array<Knob<Settings>>({
    {"runtime.inference.chatTemplate.disabled", member<&Settings::raw>},
});

// Null leaves a value to what the options hold: what the model or the command decides.
template <typename Options>
void turn(std::span<const Knob<Options>> knobs, const config::Config& config, Options& options) {
  for (const Knob<Options>& knob : knobs) {
    const config::ConfigValue* const value = config.find(knob.path);
    if (value != nullptr && !value->value.is_null()) knob.read(value->value, options);
  }
}

std::string type_name(const config::SettingInfo& info) {
  switch (info.type) {
    case config::ValueType::kWhole:
      return "UINT";
    case config::ValueType::kNumber:
      return "FLOAT";
    case config::ValueType::kLayers:
      return "LAYERS";
    default:
      return "TEXT";
  }
}

bool takes_group(config::SettingGroup group, bool generation, bool trace) {
  return group == config::SettingGroup::kEverywhere ||
         (group == config::SettingGroup::kGeneration && generation) ||
         (group == config::SettingGroup::kTrace && trace);
}

const char* group_title(config::SettingGroup group) {
  switch (group) {
    case config::SettingGroup::kGeneration:
      return "Generation";
    case config::SettingGroup::kTrace:
      return "Looking inside";
    default:
      return "Everywhere";
  }
}

void add_flag(Command& command, SettingFlags& given, const config::SettingInfo& info) {
  const std::string flag(info.flag), help(info.meaning);
  given.taken.push_back(&info);
  const auto add = [&given, &info](Json value) {
    given.input.flags.push_back({&info, std::move(value)});
    return Status();
  };
  Option option;
  if (info.type == config::ValueType::kBool) {
    option = command.call_flag(flag, [add] { static_cast<void>(add(true)); }, help);
  } else if (info.type == config::ValueType::kTexts || info.type == config::ValueType::kBiases) {
    option = command
                 .call_list_option(
                     flag, [add](const std::vector<std::string>& texts) { return add(Json(texts)); }, help)
                 .one_value_each();
  } else {
    option = command.call_option(flag, [add](const std::string& text) { return add(text); }, help);
  }
  if (info.type != config::ValueType::kBool) option.value_name(type_name(info));
  std::vector<std::string> values(info.choices.begin(), info.choices.end());
  if (info.path == "runtime.shared.debug.trace.categories") {
    values.emplace_back("all");
    for (const CategoryInfo& category : all_categories()) values.emplace_back(category.name);
  }
  option.values(std::move(values)).group(group_title(info.group));
}

Status choose_colours_by_name(const std::string& name) {
  constexpr std::array<std::string_view, 3> kNames = {"auto", "always", "never"};  // as ColourChoice
  const auto at = std::ranges::find(kNames, name);
  if (at == kNames.end())
    return fail(ErrorCode::kUsage, "{} is no choice of colours. Say auto, always or never", printable(name));
  choose_colours(static_cast<ColourChoice>(at - kNames.begin()));
  return {};
}

// What every command with settings takes.
void add_common_flags(Command& command, SettingFlags& given) {
  std::vector<std::string> presets;
  for (const config::PresetListing& preset : config::list_presets(given.input.folders))
    presets.push_back(preset.name);
  command.add_option("--config", given.input.configs, "a preset, a JSON file, or JSON text; may be repeated")
      .group("Everywhere")
      .one_value_each()
      .values(std::move(presets));
  command.add_option("--set", given.input.sets, "one setting, path=value; may be repeated")
      .group("Everywhere")
      .one_value_each();
  command
      .add_flag("--json", given.json,
                "print one JSON object on stdout and nothing else there, for an error, too")
      .group("Everywhere");
  const config::SettingInfo* const level =
      config::find_setting("runtime.shared.debug.logLevel.defaultLogLevel");
  command
      .call_flag(
          "--quiet", [&given, level] { given.input.flags.push_back({level, "error"}); },
          "only the answer, and errors: the same as --log-level error")
      .group("Everywhere");
  command
      .call_option("--color", choose_colours_by_name,
                   "auto (on a terminal, unless NO_COLOR is set), always or never; auto unless given")
      .group("Everywhere")
      .values({"auto", "always", "never"});
}

}  // namespace

void add_setting_flags(Command& command, SettingFlags& given, bool generation, bool trace,
                       std::initializer_list<std::string_view> without) {
  for (const config::SettingInfo& info : config::all_settings()) {
    const bool left_out = std::ranges::find(without, info.flag) != without.end();
    if (!info.flag.empty() && !left_out && takes_group(info.group, generation, trace))
      add_flag(command, given, info);
  }
  add_common_flags(command, given);
}

void add_few_setting_flags(Command& command, SettingFlags& given,
                           std::initializer_list<std::string_view> flags) {
  for (const config::SettingInfo& info : config::all_settings()) {
    if (info.flag == "--log-level" || std::ranges::find(flags, info.flag) != flags.end())
      add_flag(command, given, info);
  }
  add_common_flags(command, given);
}

Status refuse_flags(const SettingFlags& given, std::initializer_list<std::string_view> flags,
                    std::string_view why) {
  for (const config::ConfigInput::Flag& flag : given.input.flags) {
    const std::string_view name = flag.info->flag;
    const bool meant =
        flags.size() == 0 ? name != "--log-level" : std::ranges::find(flags, name) != flags.end();
    if (meant) return fail(ErrorCode::kUsage, "The flag {} has no effect {}. Leave it out.", name, why);
  }
  return {};
}

Status check_sets(const SettingFlags& given) {
  for (const config::ConfigValue& value : given.flags.config.values()) {
    const bool answers = value.info->group == config::SettingGroup::kGeneration && !value.info->flag.empty();
    if (!answers || value.source.name != "--set" ||
        std::ranges::find(given.taken, value.info) != given.taken.end())
      continue;
    return fail(ErrorCode::kUsage, "The --set of {} has no effect on this command. Leave it out.",
                value.info->path);
  }
  return {};
}

Result<Settings> resolve_settings(const SettingFlags& given) {
  Settings settings;
  DOPPLER_ASSIGN(settings.config, config::resolve_config(given.input));
  turn<LoadOptions>(kLoadKnobs, settings.config, settings.load);
  turn<Settings>(kOwnKnobs, settings.config, settings);
  return settings;
}

bool Settings::given(std::string_view path) const {
  const config::ConfigValue* const value = config.find(path);
  return value != nullptr && value->given() && !value->value.is_null();
}

void Settings::apply(GenerateOptions& options) const {
  turn<GenerateOptions>(kGenerateKnobs, config, options);
}

namespace {

std::vector<std::string> texts_at(const Json& tree, const char* group, const char* name) {
  return tree[group][name].get<std::vector<std::string>>();
}
std::string text_at(const Json& tree, const char* group, const char* name) {
  const Json& value = tree[group][name];
  return value.is_string() ? value.get<std::string>() : "";
}

}  // namespace

Status begin_log(const Settings& settings) {
  const Json tree = settings.debug();
  LogOptions options;
  options.level = level_from_name(text_at(tree, "logLevel", "defaultLogLevel")).value_or(Level::kWarn);
  options.modules = texts_at(tree, "logLevel", "modules");
  options.screen = tree["logOutput"]["stdout"].get<bool>();
  options.file = text_at(tree, "logOutput", "file");
  options.append = tree["logOutput"]["append"].get<bool>();
  options.history = tree["logHistory"]["maxLogHistoryEntries"].get<std::size_t>();
  if (tree["trace"]["enabled"].get<bool>()) {
    DOPPLER_ASSIGN(options.categories, parse_categories(texts_at(tree, "trace", "categories")));
    options.trace_layers = tree["trace"]["layers"].get<std::vector<int>>();
    options.trace_steps = tree["trace"]["maxDecodeSteps"].get<std::uint64_t>();
    options.trace_file = text_at(tree, "trace", "file");
  }
  configure_screen({.notes = options.level < Level::kError, .errors = options.level < Level::kSilent});
  DOPPLER_TRY(configure_log(options));
  for (const std::string& warning : settings.config.warnings()) log(Level::kWarn, "Config", warning);
  if (!settings.config.chain().empty())
    log(Level::kVerbose, "Config", "Config loaded: {}", join(settings.config.chain(), " -> "));
  return {};
}

Status end_log(const Settings& settings, bool failed) {
  constexpr std::size_t kShown = 20;  // a screenful with room for the error
  const config::ConfigValue* const screen = settings.config.find("runtime.shared.debug.logOutput.stdout");
  if (failed && screen != nullptr && screen->value == false) {
    for (const LogRecord& record : log_history(kShown)) say(Said::kError, format_line(record));
  }
  return close_log();
}

}  // namespace doppler::cli
