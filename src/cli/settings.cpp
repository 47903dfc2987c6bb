#include "cli/settings.h"

#include <array>
#include <charconv>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace doppler::cli {
namespace {

using S = Settings;
constexpr auto kAll = SettingGroup::kEverywhere;
constexpr auto kGen = SettingGroup::kGeneration;

// Paths as the Doppler runtime configuration names them; backend and threads are ours.
const std::array<SettingInfo, 25> kSettings = {{
    {"runtime.backend", "--backend",
     "what computes: auto (a real GPU, or else the cpu), gpu, cpu or reference", kAll, &S::backend},
    {"runtime.threads", "--threads", "threads to use; 0: one per core", kAll, &S::threads},
    {"runtime.inference.kvcache.maxSeqLen", "--context",
     "longest sequence in tokens; 0: the model's own, at most 4096", kAll, &S::context},
    {"runtime.inference.kvcache.kvDtype", "--kv-type",
     "how keys and values are kept: f32, f16 or q8_0; f16 for quantised models unless given, else f32", kAll,
     &S::kv_type},
    {"runtime.cpu.exact", "--exact",
     "multiply quantised weights with float activations instead of 8-bit ones: slower", kAll, &S::exact},
    {"runtime.cpu.target", "--cpu-target", "kernels by instruction set, such as AVX2; the best unless given",
     kAll, &S::cpu_target},
    {"runtime.gpu.adapter", "--gpu-adapter",
     "part of a GPU's name, or its number in doppler inspect --gpu; the best unless given", kAll,
     &S::gpu_adapter},
    {"runtime.gpu.submitTokens", "--submit-tokens",
     "tokens that a GPU generates before the host looks at them, 1 to 64; 8 unless given", kAll,
     &S::submit_tokens},
    {"runtime.gpu.checked", "--gpu-checked", "GPU kernels check every access to memory: slower", kAll,
     &S::gpu_checked},
    {"runtime.gpu.poison", "--gpu-poison", "memory on the GPU begins as NaN, so that reading too early shows",
     kAll, &S::gpu_poison},
    {"runtime.shared.debug.logLevel.defaultLogLevel", "--log-level",
     "debug, verbose, info, warn, error or silent", kAll, &S::log_level},
    {"runtime.inference.batching.maxTokens", "--max-tokens", "tokens to generate at most", kGen,
     &S::max_tokens},
    {"runtime.inference.sampling.temperature", "--temperature",
     "0 takes the likeliest token each time (greedy)", kGen, &S::temperature},
    {"runtime.inference.sampling.topK", "--top-k", "sample among the k likeliest; 0: all", kGen, &S::top_k},
    {"runtime.inference.sampling.topP", "--top-p",
     "sample among the likeliest that together reach this probability", kGen, &S::top_p},
    {"runtime.inference.sampling.minP", "--min-p",
     "sample among those at least this share as likely as the likeliest", kGen, &S::min_p},
    {"runtime.inference.sampling.repetitionPenalty", "--repeat-penalty",
     "above 1: tokens seen before become less likely", kGen, &S::repeat_penalty},
    {"runtime.inference.sampling.presencePenalty", "--presence-penalty",
     "subtracted once from tokens seen before", kGen, &S::presence_penalty},
    {"runtime.inference.sampling.frequencyPenalty", "--frequency-penalty",
     "subtracted for each time they were seen", kGen, &S::frequency_penalty},
    {"runtime.inference.sampling.repetitionPenaltyWindow", "--penalty-window",
     "tokens back that count as seen; 0: all", kGen, &S::penalty_window},
    {"runtime.inference.sampling.seed", "--seed", "the same seed gives the same text", kGen, &S::seed},
    {"runtime.inference.sampling.logitBias", "--logit-bias",
     "ID=NUMBER, added to a token's logit; may be repeated", kGen, &S::logit_bias},
    {"runtime.inference.generation.stopSequences", "--stop", "end before this text; may be repeated", kGen,
     &S::stop},
    {"runtime.inference.generation.ignoreEos", "--ignore-eos", "go on past end-of-sequence tokens", kGen,
     &S::ignore_eos},
    {"runtime.inference.chatTemplate.disabled", "--raw",
     "continue the prompt as it is, without the model's chat template", kGen, &S::raw},
}};

// Older spellings that users have in their files.
struct Alias {
  std::string_view old_path, path;
};
constexpr std::array<Alias, 2> kAliases = {{
    {"runtime.debug.logLevel.defaultLogLevel", "runtime.shared.debug.logLevel.defaultLogLevel"},
    {"runtime.inference.generation.maxTokens", "runtime.inference.batching.maxTokens"},
}};

Result<std::string> text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return fail(ErrorCode::kUsage, "a text");
}

// Each assign_* gives, as its error's message, what the value should have been.
Status assign(std::optional<std::string>& to, const Json& value) {
  DOPPLER_ASSIGN(to, text_of(value));
  return {};
}
Status assign(std::optional<std::uint64_t>& to, const Json& value) {
  if (!value.is_number_unsigned()) return fail(ErrorCode::kUsage, "a whole number of 0 or more");
  to = value.get<std::uint64_t>();
  return {};
}
Status assign(std::optional<double>& to, const Json& value) {
  if (!value.is_number()) return fail(ErrorCode::kUsage, "a number");
  to = value.get<double>();
  return {};
}
Status assign(std::optional<bool>& to, const Json& value) {
  if (!value.is_boolean()) return fail(ErrorCode::kUsage, "true or false");
  to = value.get<bool>();
  return {};
}
Status assign(std::optional<std::vector<std::string>>& to, const Json& value) {
  std::vector<std::string> list;
  const auto add = [&](const Json& item) -> Status {
    DOPPLER_ASSIGN(std::string text, text_of(item));
    list.push_back(std::move(text));
    return {};
  };
  if (value.is_object()) {  // {"12": -1.5}: the natural way to write biases
    for (const auto& [key, number] : value.items()) list.push_back(key + "=" + number.dump());
  } else if (value.is_array()) {
    for (const Json& item : value) DOPPLER_TRY(add(item));
  } else {
    DOPPLER_TRY(add(value));
  }
  to = std::move(list);
  return {};
}

Status set_path(Settings& settings, std::string_view path, const Json& value, std::string_view source) {
  for (const Alias& alias : kAliases) {
    if (alias.old_path == path) path = alias.path;
  }
  std::vector<std::string> known;
  for (const SettingInfo& info : kSettings) {
    known.emplace_back(info.path);
    if (info.path != path) continue;
    const Status status =
        std::visit([&](auto member) { return assign(settings.*member, value); }, info.member);
    if (status) return {};
    return fail(ErrorCode::kUsage, "The {} sets {} to {}, but it must be {}.", source, path,
                printable(value.dump(), 60), status.error().message);
  }
  const std::string nearest = nearest_name(path, known);
  return fail(
      ErrorCode::kUsage, "The {} sets {}, which does not exist.{}", source, printable(path, 100),
      nearest.empty() ? " All settings begin with runtime." : fmt::format(" Did you mean {}?", nearest));
}

bool is_setting(std::string_view path) {
  for (const SettingInfo& info : kSettings) {
    if (info.path == path) return true;
  }
  return false;
}

// Depth is bounded by the JSON parser.
Status apply_tree(Settings& settings, const Json& tree, const std::string& prefix, std::string_view source) {
  for (const auto& [key, value] : tree.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object() && !is_setting(path))
      DOPPLER_TRY(apply_tree(settings, value, path, source));
    else
      DOPPLER_TRY(set_path(settings, path, value, source));
  }
  return {};
}

Status apply_config(Settings& settings, const std::string& given) {
  std::string text = given, source = "--config text";
  if (!given.starts_with("{")) {
    constexpr std::uint64_t kMaxConfig = 1 << 20;  // a thousand times what anyone writes
    DOPPLER_ASSIGN(text, read_text_file(given, kMaxConfig));
    source = "file " + given;
  }
  DOPPLER_ASSIGN(const Json tree, parse_json(text, "The " + source));
  if (!tree.is_object()) return fail(ErrorCode::kUsage, "The {} is not a JSON object.", source);
  return apply_tree(settings, tree, "", source);
}

Status apply_set(Settings& settings, const std::string& given) {
  const std::size_t equals = given.find('=');
  if (equals == std::string::npos)
    return fail(ErrorCode::kUsage, "The --set {} has no '='. Write --set path=value.", printable(given));
  const std::string_view text = std::string_view(given).substr(equals + 1);
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = std::string(text);  // plain words need no quotes
  return set_path(settings, given.substr(0, equals), value, "--set");
}

// Values beyond 32 bits mean "as many as there are".
std::uint32_t narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, UINT32_MAX));
}

template <typename T>
void overlay(Settings& onto, const Settings& flags, std::optional<T> Settings::* member) {
  if (flags.*member) onto.*member = flags.*member;
}

}  // namespace

std::span<const SettingInfo> all_settings() {
  return kSettings;
}

void add_setting_flags(CLI::App& command, SettingFlags& given, bool generation) {
  for (const SettingInfo& info : kSettings) {
    if (info.group == SettingGroup::kGeneration && !generation) continue;
    const std::string flag(info.flag), help(info.help),
        group = info.group == kAll ? "Everywhere" : "Generation";
    if (const auto* member = std::get_if<std::optional<bool> Settings::*>(&info.member)) {
      command.add_flag_callback(flag, [&given, m = *member] { given.flags.*m = true; }, help)->group(group);
    } else {
      std::visit([&](auto m) { command.add_option(flag, given.flags.*m, help)->group(group); }, info.member);
    }
  }
  command.add_option("--config", given.configs, "settings as a JSON file or text; may be repeated")
      ->group("Everywhere")
      ->allow_extra_args(false);
  command.add_option("--set", given.sets, "one setting, path=value; may be repeated")
      ->group("Everywhere")
      ->allow_extra_args(false);
  command.add_flag("--json", given.json, "print one JSON object on stdout and nothing else there")
      ->group("Everywhere");
}

Result<Settings> resolve_settings(const SettingFlags& given) {
  Settings settings;
  for (const std::string& config : given.configs) DOPPLER_TRY(apply_config(settings, config));
  for (const std::string& set : given.sets) DOPPLER_TRY(apply_set(settings, set));
  for (const SettingInfo& info : kSettings) {
    std::visit([&](auto member) { overlay(settings, given.flags, member); }, info.member);
  }
  return settings;
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
    const std::size_t equals = text.find('=');
    TokenId id = 0;
    double bias = 0;
    const char* const middle = text.data() + std::min(equals, text.size());
    const char* const end = text.data() + text.size();
    const bool good = equals != std::string::npos && std::from_chars(text.data(), middle, id).ptr == middle &&
                      equals > 0 && middle + 1 < end && std::from_chars(middle + 1, end, bias).ptr == end;
    if (!good)
      return fail(ErrorCode::kUsage, "The logit bias {} is not of the form ID=NUMBER.", printable(text));
    options.logit_bias[id] = bias;
  }
  return {};
}

}  // namespace doppler::cli
