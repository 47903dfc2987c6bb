#include "config/conflicts.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace doppler::config {
namespace {

constexpr std::string_view kDebug = "runtime.shared.debug.";

std::string said(const ConfigValue& value) {
  const std::string text = dump_json(value.value);
  return fmt::format("{} is {} ({})", value.info->path, printable(text, 60), value.source.name);
}

std::unexpected<Error> conflict(const ConfigValue& one, const ConfigValue& other, std::string_view advice) {
  return fail(ErrorCode::kUsage, "The configuration contradicts itself: {}, but {}. {}", said(one),
              said(other), advice);
}

const ConfigValue& at(const Config& config, std::string_view path) {
  static const ConfigValue kNone;
  const ConfigValue* const value = config.find(path);
  return value != nullptr ? *value : kNone;
}
const ConfigValue& debug_at(const Config& config, std::string_view path) {
  return at(config, std::string(kDebug) + std::string(path));
}

// Whether the setting was given, and not to switch it off.
bool asks(const ConfigValue& value) {
  return value.given() && value.value != Json::parse(value.info->off, nullptr, false);
}

// The intent "calibrate" measures times, which traces, probes and checkpoints would change.
Status check_intent(const Config& config) {
  const ConfigValue& intent = at(config, "runtime.shared.tooling.intent");
  if (intent.value != "calibrate") return {};
  for (const std::string_view path : {"trace.enabled", "probes", "debugLayers"}) {
    const ConfigValue& looks = debug_at(config, path);
    if (asks(looks))
      return conflict(intent, looks,
                      "Measuring and looking inside exclude each other; leave one of them out.");
  }
  return {};
}

// A group whose "enabled" is false, though its other values are given.
Status check_enabled(const Config& config, std::string_view group) {
  const ConfigValue& enabled = debug_at(config, fmt::format("{}.enabled", group));
  if (enabled.value != false) return {};
  for (const ConfigValue& value : config.values()) {
    const bool inside = is_setting_below(value.info->path, fmt::format("{}{}", kDebug, group));
    if (!inside || &value == &enabled || !asks(value) || value.source.rank < enabled.source.rank) continue;
    return conflict(value, enabled,
                    fmt::format("{} {} to true, or leave {} out.",
                                group == "trace" ? "Add --trace CATEGORIES or set" : "Set",
                                enabled.info->path, value.info->path));
  }
  return {};
}

Status check_trace(const Config& config) {
  const ConfigValue& enabled = debug_at(config, "trace.enabled");
  const ConfigValue& categories = debug_at(config, "trace.categories");
  const ConfigValue& probes = debug_at(config, "probes");
  // An "enabled" that is false by default does not forbid probes; one that was given as false does.
  if (enabled.value == false && enabled.given() && asks(probes) && probes.source.rank >= enabled.source.rank)
    return conflict(probes, enabled, "Probes print through the trace; leave one of them out.");
  if (enabled.value != true) return {};
  std::vector<std::string> words;
  for (const Json& word : categories.value) words.push_back(word.get<std::string>());
  if (parse_categories(words).value_or(0) == 0)
    return conflict(enabled, categories, "No category is left to trace; name one, or all.");
  const ConfigValue& screen = debug_at(config, "logOutput.stdout");
  const bool unseen =
      debug_at(config, "trace.file").value.is_null() && debug_at(config, "logOutput.file").value.is_null();
  if (screen.value == false && unseen)
    return conflict(enabled, screen,
                    "Nobody would see the trace; name a trace.file, or let it onto the screen.");
  return {};
}

Status check_files(const Config& config) {
  const ConfigValue& file = debug_at(config, "logOutput.file");
  const ConfigValue& append = debug_at(config, "logOutput.append");
  const ConfigValue& trace_file = debug_at(config, "trace.file");
  if (asks(append) && file.value.is_null())
    return conflict(append, file, "There is no file to append to; name one.");
  if (!file.value.is_null() && file.value == trace_file.value)
    return conflict(file, trace_file, "One would overwrite the other; name two files.");
  return {};
}

// A setting that only one backend reads: refused while another backend is named.
struct BackendSetting {
  std::string_view path, backend;
};
constexpr std::array<BackendSetting, 2> kBackendSettings = {
    {{"runtime.cpu.target", "cpu"}, {"runtime.gpu.adapter", "gpu"}}};

Status check_backend(const Config& config) {
  const ConfigValue& backend = at(config, "runtime.backend");
  for (const BackendSetting& setting : kBackendSettings) {
    const ConfigValue& value = at(config, setting.path);
    if (!asks(value) || backend.value == "auto" || backend.value == setting.backend) continue;
    if (value.source.rank < backend.source.rank) continue;
    return conflict(value, backend, "The other backend does not look at it; leave one of them out.");
  }
  return {};
}

}  // namespace

Status check_conflicts(const Config& config) {
  DOPPLER_TRY(check_intent(config));
  DOPPLER_TRY(check_enabled(config, "trace"));
  DOPPLER_TRY(check_trace(config));
  DOPPLER_TRY(check_files(config));
  return check_backend(config);
}

Status check_config_layers(const Config& config, std::size_t layers) {
  const auto check = [&](const ConfigValue& value, const Json& list, std::string_view where) -> Status {
    for (const Json& layer : list) {
      if (layer.get<std::uint64_t>() < layers) continue;
      return fail(ErrorCode::kUsage, "The {} asks for layer {} in {}{}, but the model has layers 0 to {}.",
                  value.source.name, layer.get<std::uint64_t>(), value.info->path, where, layers - 1);
    }
    return {};
  };
  for (const ConfigValue& value : config.values()) {
    if (value.info->type == ValueType::kLayers && value.value.is_array())
      DOPPLER_TRY(check(value, value.value, ""));
    if (value.info->type != ValueType::kProbes) continue;
    for (std::size_t i = 0; i < value.value.size(); ++i) {
      const auto list = value.value[i].find("layers");
      if (list != value.value[i].end() && list->is_array())
        DOPPLER_TRY(check(value, *list, fmt::format("[{}].layers", i)));
    }
  }
  return {};
}

}  // namespace doppler::config
