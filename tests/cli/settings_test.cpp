// Every knob: what --set gives a path arrives in the option that it names, and nothing else moves.
#include "cli/settings.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "config/setting.h"
#include "testing.h"

namespace doppler::cli {
namespace {

// All that settings decide about loading and generating, by their paths.
Json options_of(const LoadOptions& load, const GenerateOptions& sampling, bool raw) {
  Json biases = Json::object();
  for (const auto& [id, bias] : sampling.logit_bias) biases[std::to_string(id)] = bias;
  return {{"runtime.backend", load.backend},
          {"runtime.threads", load.threads},
          {"runtime.family", load.family},
          {"runtime.inference.kvcache.maxSeqLen", load.context},
          {"runtime.inference.kvcache.positions", load.cache_positions},
          {"runtime.inference.kvcache.kvDtype", load.kv_type},
          {"runtime.cpu.exact", load.exact},
          {"runtime.cpu.target", load.cpu_target},
          {"runtime.gpu.adapter", load.gpu.adapter},
          {"runtime.gpu.submitTokens", load.gpu.submit_tokens},
          {"runtime.gpu.checked", load.gpu.checked},
          {"runtime.gpu.poison", load.gpu.poison},
          {"runtime.inference.batching.maxTokens", sampling.max_tokens},
          {"runtime.inference.sampling.temperature", sampling.temperature},
          {"runtime.inference.sampling.topK", sampling.top_k},
          {"runtime.inference.sampling.topP", sampling.top_p},
          {"runtime.inference.sampling.minP", sampling.min_p},
          {"runtime.inference.sampling.repetitionPenalty", sampling.repeat_penalty},
          {"runtime.inference.sampling.presencePenalty", sampling.presence_penalty},
          {"runtime.inference.sampling.frequencyPenalty", sampling.frequency_penalty},
          {"runtime.inference.sampling.repetitionPenaltyWindow", sampling.penalty_window},
          {"runtime.inference.sampling.seed", sampling.seed},
          {"runtime.inference.sampling.logitBias", biases},
          {"runtime.inference.generation.stopSequences", sampling.stop},
          {"runtime.inference.generation.ignoreEos", sampling.ignore_eos},
          {"runtime.inference.generation.speculate",
           sampling.speculate < 0 ? "auto" : std::to_string(sampling.speculate)},
          {"runtime.inference.chatTemplate.disabled", raw}};
}
Json options_of(const Settings& settings) {
  GenerateOptions sampling;
  settings.apply(sampling);
  return options_of(settings.load, sampling, settings.raw);
}

Settings settings_of(const std::string& set) {
  SettingFlags given;
  given.input.folders = {};
  if (!set.empty()) given.input.sets = {set};
  const auto settings = resolve_settings(given);
  EXPECT_TRUE(settings.has_value()) << settings.error().message;
  return settings.value_or(Settings());
}

// A value that is no default, as --set takes it and as it arrives.
std::pair<std::string, Json> another_value(const config::SettingInfo& info) {
  switch (info.type) {
    case config::ValueType::kBool:
      return {"true", true};
    case config::ValueType::kWhole:
      return {"5", 5};
    case config::ValueType::kNumber:
      return {"0.25", 0.25};
    case config::ValueType::kBiases:
      return {"12=-1.5", {{"12", -1.5}}};
    case config::ValueType::kTexts:
      return {"end", Json::array({"end"})};
    default:
      return info.choices.empty() ? std::pair<std::string, Json>("AVX2", "AVX2")
                                  : std::pair<std::string, Json>(info.choices.back(), info.choices.back());
  }
}

TEST(Settings, EveryNumberOfGuessesIsAChoice) {
  const config::SettingInfo* const info = config::find_setting("runtime.inference.generation.speculate");
  EXPECT_EQ(info->choices.size(), 2u + GenerateOptions::kMostSpeculated);
  for (const auto& [text, number] : {std::pair("off", 0), {"auto", -1}, {"1", 1}, {"16", 16}}) {
    GenerateOptions options;
    settings_of(std::string(info->path) + "=" + text).apply(options);
    EXPECT_EQ(options.speculate, number) << text;
  }
}

TEST(Settings, EveryKnobTurnsItsOptionAndNoOther) {
  const Json usual = options_of(settings_of(""));
  for (const config::SettingInfo& info : config::all_settings()) {
    if (info.path.starts_with("runtime.shared")) continue;  // about looking inside: read as trees
    const std::string path(info.path);
    ASSERT_TRUE(usual.contains(path)) << path << " is no option";
    const auto [text, value] = another_value(info);
    Json expected = usual;
    expected[path] = value;
    EXPECT_EQ(options_of(settings_of(path + "=" + text)), expected) << path;
  }
}

// Whoever calls the library and whoever calls the program begin with the same values.
TEST(Settings, DefaultsOfOptionsAreTheTables) {
  EXPECT_EQ(options_of(settings_of("")), options_of(LoadOptions(), GenerateOptions(), false));
}

TEST(Settings, WhatIsGivenIsKnown) {
  const Settings settings = settings_of("runtime.backend=cpu");
  EXPECT_TRUE(settings.given("runtime.backend"));
  EXPECT_FALSE(settings.given("runtime.threads"));
}

}  // namespace
}  // namespace doppler::cli
