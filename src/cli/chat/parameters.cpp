#include "cli/chat/parameters.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "config/value.h"

namespace doppler::cli {
namespace {

using G = GenerateOptions;

struct Parameter {
  std::string_view path;
  std::string (*value)(const G& options);  // as a person reads it
};

template <auto Member>
std::string number(const G& options) {
  return fmt::format("{}", options.*Member);
}

std::string stops_of(const G& options) {
  return options.stop.empty() ? "none" : dump_json(Json(options.stop));
}

std::string biases_of(const G& options) {
  std::vector<std::string> texts;
  for (const auto& [id, bias] : options.logit_bias) texts.push_back(fmt::format("{}={}", id, bias));
  return texts.empty() ? "none" : join(texts, " ");
}

std::string guesses_of(const G& options) {
  if (options.speculate == G::kSpeculateAuto) return "auto";
  return options.speculate == 0 ? "off" : std::to_string(options.speculate);
}

constexpr auto kParameters = std::to_array<Parameter>({
    {"runtime.inference.sampling.temperature", number<&G::temperature>},
    {"runtime.inference.sampling.topK", number<&G::top_k>},
    {"runtime.inference.sampling.topP", number<&G::top_p>},
    {"runtime.inference.sampling.minP", number<&G::min_p>},
    {"runtime.inference.sampling.repetitionPenalty", number<&G::repeat_penalty>},
    {"runtime.inference.sampling.presencePenalty", number<&G::presence_penalty>},
    {"runtime.inference.sampling.frequencyPenalty", number<&G::frequency_penalty>},
    {"runtime.inference.sampling.repetitionPenaltyWindow", number<&G::penalty_window>},
    {"runtime.inference.sampling.seed", number<&G::seed>},
    {"runtime.inference.sampling.logitBias", biases_of},
    {"runtime.inference.batching.maxTokens", number<&G::max_tokens>},
    {"runtime.inference.generation.stopSequences", stops_of},
    {"runtime.inference.generation.ignoreEos", number<&G::ignore_eos>},
    {"runtime.inference.generation.speculate", guesses_of},
});

// What other programs call them.
struct OtherName {
  std::string_view other, path;
};
constexpr auto kOtherNames = std::to_array<OtherName>({
    {"temp", "runtime.inference.sampling.temperature"},
    {"numpredict", "runtime.inference.batching.maxTokens"},
    {"npredict", "runtime.inference.batching.maxTokens"},
    {"repeatlastn", "runtime.inference.sampling.repetitionPenaltyWindow"},
});

// "--top-k", "topK" and "top_k" are one name.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != '-' && c != '_') plain += ascii_lower(c);
  return plain;
}

std::string_view short_name(const Parameter& parameter) {
  return config::find_setting(parameter.path)->flag.substr(2);  // without its dashes
}

const Parameter* find_parameter(std::string_view name) {
  const std::string plain = plain_name(name);
  const auto is = [&](const Parameter& each) {
    const std::string_view last = each.path.substr(each.path.rfind('.') + 1);
    return plain == plain_name(short_name(each)) || plain == plain_name(last) ||
           plain == plain_name(each.path);
  };
  const auto found = std::find_if(kParameters.begin(), kParameters.end(), is);
  if (found != kParameters.end()) return found;
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const OtherName& each) { return each.other == plain; });
  if (other == kOtherNames.end()) return nullptr;
  return std::find_if(kParameters.begin(), kParameters.end(),
                      [&](const Parameter& each) { return each.path == other->path; });
}

bool narrows_choice(const Parameter& parameter) {
  return parameter.path.ends_with("topK") || parameter.path.ends_with("topP") ||
         parameter.path.ends_with("minP");
}

// JSON where it is some, such as "\n" in quotes; else the text itself, as on a command line.
Result<Json> value_of(std::string_view text) {
  if (text.starts_with('"') || text.starts_with('[') || text.starts_with('{'))
    return parse_json(text, "The value");
  return Json(text);
}

}  // namespace

Parameters::Parameters(Settings settings, GenerateOptions model)
    : settings_(std::move(settings)), model_(std::move(model)), first_(settings_.config) {
  apply();
}

void Parameters::apply() {
  const std::uint64_t seed = model_.seed;
  options_ = model_;
  settings_.apply(options_);
  // The settings' own default is no choice of the user.
  if (!settings_.given("runtime.inference.sampling.seed")) options_.seed = seed;
}

bool Parameters::has(std::string_view name) {
  return find_parameter(name) != nullptr;
}

std::vector<std::string> Parameters::names() {
  std::vector<std::string> names;
  for (const Parameter& each : kParameters) names.emplace_back(short_name(each));
  return names;
}

Result<std::string> Parameters::set(std::string_view name, std::string_view value) {
  const Parameter& parameter = *find_parameter(name);
  std::vector<std::pair<std::string_view, Json>> changed = changed_;
  std::erase_if(changed, [&](const auto& each) { return each.first == parameter.path; });
  if (value != "default") {
    DOPPLER_ASSIGN(Json given, value_of(value));
    changed.emplace_back(parameter.path, std::move(given));
  }
  config::Config config = first_;
  for (const auto& [path, given] : changed)
    DOPPLER_TRY(config.set(path, given, "command /set", given.is_string()));
  changed_ = std::move(changed);
  settings_.config = std::move(config);
  apply();
  const bool idle = options_.temperature <= 0 && narrows_choice(parameter);
  return fmt::format("{} is {}{}", short_name(parameter), parameter.value(options_),
                     idle ? ", without effect while temperature is 0" : "");
}

std::string Parameters::describe(std::string_view name) const {
  const Parameter& parameter = *find_parameter(name);
  const config::SettingInfo& info = *config::find_setting(parameter.path);
  return fmt::format("{} is {}, {}: {}", short_name(parameter), parameter.value(options_),
                     config::describe_type(info), info.meaning);
}

std::string Parameters::table() const {
  std::string text;
  for (const Parameter& each : kParameters)
    text += fmt::format("{:18} {}\n", short_name(each), each.value(options_));
  return text;
}

}  // namespace doppler::cli
