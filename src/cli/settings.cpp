#include "cli/settings.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <variant>

#include "base/log.h"
#include "base/text.h"
#include "config/conflicts.h"
#include "system/numbers.h"

namespace doppler::cli {
namespace {

using S = Settings;

// Which member shows which setting.
struct View {
  std::string_view path;
  std::variant<std::optional<std::string> S::*, std::optional<std::uint64_t> S::*, std::optional<double> S::*,
               std::optional<bool> S::*, std::optional<std::vector<std::string>> S::*>
      member;
};
const std::array<View, 24> kViews = {{
    {"runtime.backend", &S::backend},
    {"runtime.threads", &S::threads},
    {"runtime.inference.kvcache.maxSeqLen", &S::context},
    {"runtime.inference.kvcache.kvDtype", &S::kv_type},
    {"runtime.cpu.exact", &S::exact},
    {"runtime.cpu.target", &S::cpu_target},
    {"runtime.gpu.adapter", &S::gpu_adapter},
    {"runtime.gpu.submitTokens", &S::submit_tokens},
    {"runtime.gpu.checked", &S::gpu_checked},
    {"runtime.gpu.poison", &S::gpu_poison},
    {"runtime.inference.batching.maxTokens", &S::max_tokens},
    {"runtime.inference.sampling.temperature", &S::temperature},
    {"runtime.inference.sampling.topK", &S::top_k},
    {"runtime.inference.sampling.topP", &S::top_p},
    {"runtime.inference.sampling.minP", &S::min_p},
    {"runtime.inference.sampling.repetitionPenalty", &S::repeat_penalty},
    {"runtime.inference.sampling.presencePenalty", &S::presence_penalty},
    {"runtime.inference.sampling.frequencyPenalty", &S::frequency_penalty},
    {"runtime.inference.sampling.repetitionPenaltyWindow", &S::penalty_window},
    {"runtime.inference.sampling.seed", &S::seed},
    {"runtime.inference.sampling.logitBias", &S::logit_bias},
    {"runtime.inference.generation.stopSequences", &S::stop},
    {"runtime.inference.generation.ignoreEos", &S::ignore_eos},
    {"runtime.inference.chatTemplate.disabled", &S::raw},
}};

// The values are canonical, so their kinds are right.
void show(const Json& value, std::optional<std::vector<std::string>>& to) {
  to.emplace();
  if (value.is_object()) {
    for (const auto& [id, bias] : value.items())
      to->push_back(id + "=" + (bias.is_string() ? bias.get<std::string>() : bias.dump()));
  } else {
    for (const Json& text : value) to->push_back(text.get<std::string>());
  }
}
template <typename T>
void show(const Json& value, std::optional<T>& to) {
  to = value.get<T>();
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
  option.group(group_title(info.group));
}

// Values beyond 32 bits mean "as many as there are".
std::uint32_t narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, UINT32_MAX));
}

}  // namespace

void add_setting_flags(Command& command, SettingFlags& given, bool generation, bool trace) {
  for (const config::SettingInfo& info : config::all_settings()) {
    if (!info.flag.empty() && takes_group(info.group, generation, trace)) add_flag(command, given, info);
  }
  command.add_option("--config", given.input.configs, "a preset, a JSON file, or JSON text; may be repeated")
      .group("Everywhere")
      .one_value_each();
  command.add_option("--set", given.input.sets, "one setting, path=value; may be repeated")
      .group("Everywhere")
      .one_value_each();
  command.add_flag("--json", given.json, "print one JSON object on stdout and nothing else there")
      .group("Everywhere");
}

Result<Settings> resolve_settings(const SettingFlags& given) {
  Settings settings;
  DOPPLER_ASSIGN(settings.config, config::resolve_config(given.input));
  for (const View& view : kViews) {
    const config::ConfigValue* const value = settings.config.find(view.path);
    if (value == nullptr)
      return fail(ErrorCode::kInternal, "The setting {} is not in the table of settings.", view.path);
    if (!value->given() || value->value.is_null()) continue;
    std::visit([&](auto member) { show(value->value, settings.*member); }, view.member);
  }
  return settings;
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
    for (const LogRecord& record : log_history(kShown)) fmt::print(stderr, "{}\n", format_line(record));
  }
  return close_log();
}

LoadOptions Settings::load_options() const {
  LoadOptions options;
  options.kv_type = kv_type.value_or("");
  options.exact = exact.value_or(false);
  options.cpu_target = cpu_target.value_or("");
  options.gpu_adapter = gpu_adapter.value_or("");
  options.submit_tokens = narrow(submit_tokens.value_or(options.submit_tokens));
  options.gpu_checked = gpu_checked.value_or(false);
  options.gpu_poison = gpu_poison.value_or(false);
  options.backend = backend.value_or("auto");
  options.threads = threads.value_or(0);
  options.context = context.value_or(0);
  return options;
}

Status Settings::apply(GenerateOptions& options) const {
  if (max_tokens) options.max_tokens = narrow(*max_tokens);
  if (top_k) options.top_k = narrow(*top_k);
  if (penalty_window) options.penalty_window = narrow(*penalty_window);
  if (seed) options.seed = *seed;
  if (temperature) options.temperature = *temperature;
  if (top_p) options.top_p = *top_p;
  if (min_p) options.min_p = *min_p;
  if (repeat_penalty) options.repeat_penalty = *repeat_penalty;
  if (presence_penalty) options.presence_penalty = *presence_penalty;
  if (frequency_penalty) options.frequency_penalty = *frequency_penalty;
  if (ignore_eos) options.ignore_eos = *ignore_eos;
  if (stop) options.stop = *stop;
  for (const std::string& text : logit_bias.value_or(std::vector<std::string>{})) {
    TokenId id = 0;
    double bias = 0;
    const std::size_t equals = text.find('=');  // the form was checked with the configuration
    std::from_chars(text.data(), text.data() + equals, id);
    system::read_double(text.data() + equals + 1, text.data() + text.size(), bias);
    options.logit_bias[id] = bias;
  }
  return {};
}

}  // namespace doppler::cli
