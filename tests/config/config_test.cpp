#include "config/config.h"

#include <array>

#include "config/conflicts.h"
#include "testing.h"

namespace doppler::config {
namespace {

using testing::TempDir;
using testing::write_file;

constexpr const char* kTemperature = "runtime.inference.sampling.temperature";
constexpr const char* kTrace = "runtime.shared.debug.trace";

// A folder for a user's presets and one for a project's, and what a command line says.
class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"user", "project"}) std::filesystem::create_directory(dir_ / name);
    input_.folders = {.user = dir_ / "user", .project = dir_ / "project"};
  }
  void flag(const char* name, const char* value) {
    for (const SettingInfo& info : all_settings())
      if (info.flag == name) input_.flags.push_back({&info, value});
  }
  Result<Config> resolve() const { return resolve_config(input_); }
  // The value and where it comes from, in one text.
  std::string told(std::string_view path) const {
    const auto config = resolve();
    if (!config) return config.error().message;
    const ConfigValue* value = config->find(path);
    return value == nullptr ? "no such setting" : value->value.dump() + " from " + value->source.name;
  }
  TempDir dir_;
  ConfigInput input_;
};

TEST_F(ConfigTest, EveryDefaultIsAValidValueOfItsOwnKind) {
  for (const SettingInfo& info : all_settings()) {
    for (const std::string_view text : {info.fallback, info.off}) {
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << info.path;
      if (value.is_null()) continue;
      Config config;
      ASSERT_OK(config.set(info.path, value, "test", false));
      EXPECT_EQ(config.find(info.path)->value, value) << info.path;
    }
    EXPECT_TRUE(info.path.starts_with("runtime.")) << info.path;
    EXPECT_FALSE(is_setting_group(info.path)) << info.path << " is a value and a group";
    EXPECT_EQ(find_setting(info.path), &info) << info.path << " comes twice";
  }
  for (const SettingAlias& alias : all_setting_aliases()) {
    EXPECT_NE(find_setting(alias.path), nullptr) << alias.path;
    EXPECT_EQ(find_setting(alias.old_path), nullptr) << alias.old_path;
  }
}

TEST_F(ConfigTest, LaterSourcesDecideAndAreRemembered) {
  EXPECT_EQ(told(kTemperature), "null from default");
  input_.configs = {"production"};
  EXPECT_EQ(told(kTemperature), "0.7 from preset production");
  write_file(dir_ / "c.json", R"({"runtime": {"inference": {"sampling": {"temperature": 0.2, "topK": 3}}}})");
  const std::string file = (dir_ / "c.json").string();
  // The order of kinds counts, not that of the command line.
  input_.configs = {R"({"runtime": {"inference": {"sampling": {"temperature": 0.3}}}})", file, "production"};
  EXPECT_EQ(told(kTemperature), "0.3 from --config text");
  EXPECT_EQ(told("runtime.inference.sampling.topK"), "3 from file " + file);
  EXPECT_EQ(told("runtime.inference.batching.maxTokens"), "4096 from preset production");
  input_.sets = {std::string(kTemperature) + "=0.4"};
  EXPECT_EQ(told(kTemperature), "0.4 from --set");
  flag("--temperature", "0.5");
  EXPECT_EQ(told(kTemperature), "0.5 from --temperature");
}

TEST_F(ConfigTest, ObjectsMergeListsReplaceAndNullSwitchesOff) {
  const std::string biases = "runtime.inference.sampling.logitBias";
  input_.configs = {
      R"({"runtime": {"inference": {"sampling": {"topK": 5, "logitBias": {"1": 1, "2": 2}},
                                    "generation": {"stopSequences": ["a", "b"]}}}})",
      R"({"runtime": {"inference": {"sampling": {"topK": null, "logitBias": {"2": null, "3": -3.5}},
                                    "generation": {"stopSequences": ["c"]}}}})"};
  EXPECT_EQ(told(biases), R"({"1":1.0,"3":-3.5} from --config text)");
  EXPECT_EQ(told("runtime.inference.sampling.topK"), "0 from --config text");
  EXPECT_EQ(told("runtime.inference.generation.stopSequences"), R"(["c"] from --config text)");
  input_.sets = {biases + "=null"};
  EXPECT_EQ(told(biases), "{} from --set");
}

TEST_F(ConfigTest, ANullSwitchesAWholeGroupOff) {
  input_.configs = {"debug"};
  input_.sets = {std::string(kTrace) + "=null"};
  EXPECT_EQ(told("runtime.shared.debug.trace.enabled"), "false from --set");
  EXPECT_EQ(told("runtime.shared.debug.trace.categories"), "[] from --set");
}

TEST_F(ConfigTest, ListsMayBeWrittenTheShortWay) {
  flag("--trace", "all,-buffers, -kv");
  flag("--trace-layers", "0,4-6,9:10");
  EXPECT_EQ(told("runtime.shared.debug.trace.categories"), R"(["all","-buffers","-kv"] from --trace)");
  EXPECT_EQ(told("runtime.shared.debug.trace.layers"), "[0,4,5,6,9,10] from --trace-layers");
  EXPECT_EQ(told("runtime.shared.debug.trace.enabled"), "true from --trace");
  flag("--stop", "a,b");
  EXPECT_EQ(told("runtime.inference.generation.stopSequences"), R"(["a,b"] from --stop)");
  flag("--logit-bias", "12=-inf");
  EXPECT_EQ(told("runtime.inference.sampling.logitBias"), R"({"12":"-inf"} from --logit-bias)");
  input_.sets = {"runtime.gpu.adapter=0"};
  EXPECT_EQ(told("runtime.gpu.adapter"), R"("0" from --set)");
}

TEST_F(ConfigTest, WhatIsNoSettingNamesTheNearest) {
  input_.sets = {"runtime.inference.sampling.temperatur=1"};
  EXPECT_ERROR(resolve(), "--set", "temperatur,", "Did you mean runtime.inference.sampling.temperature?");
  input_.sets = {"runtime.inference.sampling.topp=1"};
  EXPECT_ERROR(resolve(), "Did you mean runtime.inference.sampling.topP?");
  input_.sets = {"xyzzy=1"};
  EXPECT_ERROR(resolve(), "xyzzy", "doppler config explain");
  input_.sets = {"nonsense"};
  EXPECT_ERROR(resolve(), "path=value");
  input_.sets = {};
  input_.configs = {R"({"runtime": {"shared": {"debug": {"trase": {"enabled": true}}}}})"};
  EXPECT_ERROR(resolve(), "--config text", "runtime.shared.debug.trase",
               "Did you mean runtime.shared.debug.trace?");
  input_.configs = {R"({"runtime": {"shared": 5}})"};
  EXPECT_ERROR(resolve(), "runtime.shared to 5", "object or null");
  input_.configs = {"[1]"};
  EXPECT_ERROR(resolve(), "[1]", "neither a preset nor a file");
  input_.configs = {"nothing-like-it"};
  EXPECT_ERROR(resolve(), "nothing-like-it", "Presets are bench, ");
  input_.configs = {"debgu"};
  EXPECT_ERROR(resolve(), "debgu", "Did you mean the preset debug?");
  input_.configs = {"gemma-debug"};
  EXPECT_ERROR(resolve(), "Did you mean the preset gemma2-debug?");
}

TEST_F(ConfigTest, ValuesOfTheWrongKindSayWhatTheyMustBe) {
  const std::array<std::array<const char*, 2>, 14> wrong = {{
      {"runtime.threads=-1", "a whole number of 0 or more"},
      {"runtime.threads=many", "a whole number"},
      {"runtime.backend=tpu", "one of auto, gpu, cpu, reference"},
      {"runtime.gpu.submitTokens=65", "between 1 and 64"},
      {"runtime.inference.sampling.topP=1.5", "between 0 and 1"},
      {"runtime.inference.sampling.temperature=-1", "a number of 0 or more"},
      {"runtime.gpu.poison=3", "true or false"},
      {"runtime.inference.sampling.logitBias=5", "ID=NUMBER"},
      {"runtime.inference.sampling.logitBias={\"x\": 1}", "ID=NUMBER"},
      {"runtime.inference.generation.stopSequences=[1]", "a list of texts"},
      {"runtime.shared.debug.debugLayers=[-1]", "counted from 0"},
      {"runtime.shared.debug.debugLayers=0-4000000000", "counted from 0"},
      {"runtime.shared.debug.trace.categories=all,-bufers", "Did you mean buffers?"},
      {"runtime.shared.debug.logOutput.stdout=\"yes\"", "true or false"},
  }};
  for (const auto& [set, part] : wrong) {
    input_.sets = {set};
    EXPECT_ERROR(resolve(), "--set", part);
  }
}

TEST_F(ConfigTest, ProbesAreCheckedFieldByField) {
  const auto probe = [&](const char* text) {
    input_.sets = {std::string("runtime.shared.debug.probes=") + text};
    return resolve();
  };
  ASSERT_OK_AND_ASSIGN(
      const Config config,
      probe(R"([{"stage": "logits", "tokens": [0, -1], "dims": [3]}, {"stage": "x", "layers": "0-2"}])"));
  const Json probes = config.subtree("runtime.shared.debug")["probes"];
  EXPECT_EQ(probes[0]["tokens"], (Json{0, -1}));
  EXPECT_EQ(probes[1]["layers"], (Json{0, 1, 2}));
  EXPECT_ERROR(probe(R"([{"stag": "x"}])"), "probe 0 has stag", "did you mean stage?");
  EXPECT_ERROR(probe(R"([{"stage": "x"}, {"dims": [1]}])"), "probe 1 lacks its stage");
  EXPECT_ERROR(probe(R"([{"stage": "x", "dims": [-1]}])"), "the dims of probe 0 is [-1]");
  EXPECT_ERROR(probe(R"([{"stage": "x", "layers": [-1]}])"), "layers of probe 0");
  EXPECT_ERROR(probe(R"([{"stage": 7}])"), "stage of probe 0 is 7, not a text");
  EXPECT_ERROR(probe("[7]"), "probe 0 is none");
  EXPECT_ERROR(probe("7"), "a list of probes");
}

TEST_F(ConfigTest, OlderNamesWorkAndAreSaid) {
  input_.configs = {
      R"({"runtime": {"debug": {"trace": {"enabled": true}, "logLevel": {"defaultLogLevel": "info"}}}})"};
  input_.sets = {"runtime.inference.generation.maxTokens=5", "runtime.debug.trace.maxDecodeSteps=2"};
  ASSERT_OK_AND_ASSIGN(const Config config, resolve());
  EXPECT_EQ(config.find("runtime.shared.debug.trace.enabled")->value, true);
  EXPECT_EQ(config.find("runtime.shared.debug.logLevel.defaultLogLevel")->value, "info");
  EXPECT_EQ(config.find("runtime.inference.batching.maxTokens")->value, 5);
  EXPECT_EQ(config.find("runtime.shared.debug.trace.maxDecodeSteps")->value, 2);
  ASSERT_EQ(config.warnings().size(), 3u);
  EXPECT_EQ(config.warnings()[0],
            "The --config text sets runtime.debug, an older name. Write runtime.shared.debug.");
  EXPECT_NE(config.warnings()[1].find("Write runtime.inference.batching.maxTokens."), std::string::npos);
  EXPECT_EQ(current_setting_name("runtime.debug.trace"), kTrace);
  EXPECT_EQ(current_setting_name("runtime.nonsense"), "runtime.nonsense");
}

TEST_F(ConfigTest, TheDebugTreeHasTheNamesOfTheReference) {
  const Json debug = Config().subtree("runtime.shared.debug");
  for (const char* pointer :
       {"/logLevel/defaultLogLevel", "/logOutput/stdout", "/logOutput/file", "/logOutput/append",
        "/logHistory/maxLogHistoryEntries", "/trace/enabled", "/trace/categories", "/trace/layers",
        "/trace/maxDecodeSteps", "/trace/file", "/probes", "/debugLayers"}) {
    EXPECT_TRUE(debug.contains(Json::json_pointer(pointer))) << pointer;
  }
  EXPECT_EQ(debug["debugLayers"], nullptr);
  EXPECT_EQ(debug["probes"], Json::array());
}

// --- contradictions

TEST_F(ConfigTest, MeasuringAndLookingExcludeEachOther) {
  input_.configs = {"bench"};
  ASSERT_OK(resolve());
  flag("--trace", "attn");
  EXPECT_ERROR(resolve(), "runtime.shared.tooling.intent is \"calibrate\" (preset bench)",
               "runtime.shared.debug.trace.enabled is true (--trace)");
  input_.flags.clear();
  input_.sets = {R"(runtime.shared.debug.probes=[{"stage": "logits", "dims": [1]}])"};
  EXPECT_ERROR(resolve(), "calibrate\" (preset bench)", "runtime.shared.debug.probes is", "(--set)");
  input_.sets = {"runtime.shared.debug.debugLayers=[]"};
  EXPECT_ERROR(resolve(), "calibrate", "runtime.shared.debug.debugLayers is []");
  input_.sets = {"runtime.shared.tooling.intent=investigate", "runtime.shared.debug.debugLayers=[0]"};
  EXPECT_TRUE(resolve().has_value());
}

TEST_F(ConfigTest, WhatIsAskedOfATraceThatIsOffIsAMistake) {
  flag("--trace-layers", "0");
  EXPECT_ERROR(resolve(), "runtime.shared.debug.trace.layers is [0] (--trace-layers)",
               "runtime.shared.debug.trace.enabled is false (default)", "Add --trace");
  flag("--trace", "attn");
  EXPECT_TRUE(resolve().has_value());
  input_.flags.clear();
  input_.configs = {
      R"({"runtime": {"shared": {"debug": {"trace": {"enabled": false, "categories": ["attn"]}}}}})"};
  EXPECT_ERROR(resolve(), "categories is [\"attn\"] (--config text)", "enabled is false (--config text)");
  // Overruling on purpose is none: the preset's categories come first, then the trace is switched off.
  input_.configs = {"debug"};
  input_.sets = {"runtime.shared.debug.trace.enabled=false"};
  EXPECT_TRUE(resolve().has_value());
  input_.sets.emplace_back(R"(runtime.shared.debug.probes=[{"stage": "logits", "dims": [1]}])");
  EXPECT_ERROR(resolve(), "probes", "trace.enabled is false (--set)");
}

TEST_F(ConfigTest, ATraceThatNobodyCouldSeeIsAMistake) {
  const std::string debug = "runtime.shared.debug.";
  input_.sets = {debug + "trace.enabled=true", debug + "logOutput.stdout=false"};
  EXPECT_ERROR(resolve(), "trace.enabled is true", "logOutput.stdout is false", "Nobody would see");
  input_.sets.push_back(debug + "trace.file=t.jsonl");
  EXPECT_TRUE(resolve().has_value());
  input_.sets.push_back(debug + "logOutput.file=t.jsonl");
  EXPECT_ERROR(resolve(), "logOutput.file is \"t.jsonl\"", "trace.file is \"t.jsonl\"");
  input_.sets = {debug + "logOutput.append=true"};
  EXPECT_ERROR(resolve(), "logOutput.append is true", "no file to append to");
  input_.sets = {debug + "trace.enabled=true", debug + "trace.categories=attn,-attn"};
  EXPECT_ERROR(resolve(), "No category is left");
}

TEST_F(ConfigTest, SettingsOfAnotherBackendAreAMistakeUnlessTheBackendWasChosenLater) {
  input_.sets = {"runtime.backend=cpu", "runtime.gpu.adapter=NVIDIA"};
  EXPECT_ERROR(resolve(), "runtime.gpu.adapter is \"NVIDIA\" (--set)", "runtime.backend is \"cpu\" (--set)");
  input_.sets = {"runtime.gpu.adapter=NVIDIA", "runtime.backend=cpu"};
  EXPECT_TRUE(resolve().has_value());
  input_.sets = {"runtime.backend=auto", "runtime.gpu.adapter=NVIDIA"};
  EXPECT_TRUE(resolve().has_value());
}

TEST_F(ConfigTest, LayersThatAModelLacksAreNamedWithTheirSource) {
  input_.configs = {"gemma2-debug"};
  ASSERT_OK_AND_ASSIGN(const Config config, resolve());
  EXPECT_TRUE(check_config_layers(config, 26).has_value());
  EXPECT_ERROR(check_config_layers(config, 8), "preset gemma2-debug", "layer 17", "trace.layers",
               "layers 0 to 7");
  input_.configs = {};
  input_.sets = {R"(runtime.shared.debug.probes=[{"stage": "q_rope", "layers": [8], "dims": [1]}])"};
  ASSERT_OK_AND_ASSIGN(const Config probed, resolve());
  EXPECT_ERROR(check_config_layers(probed, 8), "--set", "layer 8", "probes[0].layers");
}

}  // namespace
}  // namespace doppler::config
