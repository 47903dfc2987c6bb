#include "config/presets.h"

#include "config/config.h"
#include "testing.h"

namespace doppler::config {
namespace {

using testing::TempDir;
using testing::write_file;

class PresetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"user", "project"}) std::filesystem::create_directory(dir_ / name);
  }
  Result<Config> resolve(const std::string& config) const {
    return resolve_config({.configs = {config}, .sets = {}, .flags = {}, .folders = folders()});
  }
  PresetFolders folders() const { return {.user = dir_ / "user", .project = dir_ / "project"}; }
  void preset(const char* place, const char* text) const { write_file(dir_ / place, text); }
  TempDir dir_;
};

TEST_F(PresetTest, EveryBuiltInPresetResolvesAndDescribesItself) {
  for (const BuiltinPreset& preset : builtin_presets()) {
    const auto config = resolve(std::string(preset.name));
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_TRUE(config->warnings().empty()) << preset.name;
  }
  for (const PresetListing& preset : list_presets(folders())) {
    EXPECT_FALSE(preset.description.empty()) << preset.name;
    EXPECT_EQ(preset.where, "built in");
  }
}

TEST_F(PresetTest, PresetsSayWhatTheirUsersKnow) {
  const auto value = [&](const char* preset, const char* path) { return resolve(preset)->find(path)->value; };
  const std::string debug = "runtime.shared.debug.";
  EXPECT_EQ(value("bench", "runtime.shared.tooling.intent"), "calibrate");
  EXPECT_EQ(value("bench", "runtime.inference.batching.maxTokens"), 64);
  EXPECT_EQ(value("bench", "runtime.inference.sampling.temperature"), 0);
  EXPECT_EQ(value("debug", (debug + "trace.maxDecodeSteps").c_str()), 100);
  EXPECT_EQ(value("debug", (debug + "logHistory.maxLogHistoryEntries").c_str()), 5000);
  EXPECT_EQ(value("debug", (debug + "logLevel.defaultLogLevel").c_str()), "verbose");
  EXPECT_EQ(value("production", "runtime.inference.sampling.temperature"), 0.7);
  EXPECT_EQ(value("low-memory", "runtime.inference.kvcache.maxSeqLen"), 2048);
  EXPECT_EQ(value("gemma2-debug", (debug + "trace.categories").c_str()), (Json{"ffn", "attn", "logits"}));
  EXPECT_EQ(value("gemma2-debug", (debug + "trace.layers").c_str()), (Json{0, 17, 25}));
  EXPECT_EQ(value("gemma2-debug", (debug + "probes").c_str())[0]["dims"], (Json{334}));
  EXPECT_EQ(value("gemma3-layer-probe", (debug + "probes").c_str())[2]["dims"],
            (Json{138, 3730, 4781, 3187, 496, 506}));
}

TEST_F(PresetTest, AChainIsMergedFromItsRootAndRemembered) {
  preset("user/mine.json", R"({"extends": "gemma2-debug",
      "runtime": {"shared": {"debug": {"trace": {"layers": [1]}}}}})");
  const auto config = resolve("mine");
  ASSERT_OK(config);
  EXPECT_EQ(config->chain(),
            (std::vector<std::string>{"preset debug", "preset gemma2-debug", "preset mine"}));
  EXPECT_EQ(config->find("runtime.shared.debug.trace.layers")->value, Json{1});
  EXPECT_EQ(config->find("runtime.shared.debug.trace.layers")->source.name, "preset mine");
  EXPECT_EQ(config->find("runtime.shared.debug.trace.maxDecodeSteps")->source.name, "preset gemma2-debug");
  EXPECT_EQ(config->find("runtime.shared.debug.trace.enabled")->source.name, "preset debug");
}

TEST_F(PresetTest, AProjectsPresetsCountBeforeAUsersAndMayExtendWhatTheyReplace) {
  preset("user/debug.json", R"({"extends": "debug", "runtime": {"threads": 2, "backend": "cpu"}})");
  preset("project/debug.json", R"({"extends": "debug", "runtime": {"threads": 3}})");
  const auto config = resolve("debug");
  ASSERT_OK(config);
  EXPECT_EQ(config->find("runtime.threads")->value, 3);
  // The project's extends the user's, which extends the built-in one.
  EXPECT_EQ(config->find("runtime.backend")->value, "cpu");
  EXPECT_EQ(config->find("runtime.shared.debug.trace.enabled")->value, true);
}

TEST_F(PresetTest, AFileMayExtendAFileBesideIt) {
  preset("base.json", R"({"extends": "bench", "runtime": {"threads": 7}})");
  preset("top.json", R"({"extends": "base.json"})");
  const auto config = resolve((dir_ / "top.json").string());
  ASSERT_OK(config);
  EXPECT_EQ(config->find("runtime.threads")->value, 7);
  EXPECT_EQ(config->chain().size(), 3u);
  EXPECT_EQ(config->chain()[0], "preset bench");
}

TEST_F(PresetTest, CirclesAndEndlessChainsAreErrorsThatShowTheWay) {
  preset("user/a.json", R"({"extends": "b"})");
  preset("user/b.json", R"({"extends": "a"})");
  EXPECT_ERROR(resolve("a"), "in a circle", "preset a -> preset b -> preset a");
  preset("self.json", R"({"extends": "self.json"})");
  EXPECT_ERROR(resolve((dir_ / "self.json").string()), "in a circle");
  preset("user/c0.json", "{}");
  for (int i = 1; i <= 12; ++i) {
    const std::string name = "user/c" + std::to_string(i) + ".json";
    preset(name.c_str(), (R"({"extends": "c)" + std::to_string(i - 1) + R"("})").c_str());
  }
  EXPECT_TRUE(resolve("c10").has_value());
  EXPECT_ERROR(resolve("c11"), "more than 10 times");
}

TEST_F(PresetTest, BrokenPresetsAreErrorsWithTheirName) {
  preset("user/broken.json", "{");
  EXPECT_ERROR(resolve("broken"), "preset broken", "line 1");
  preset("user/list.json", "[]");
  EXPECT_ERROR(resolve("list"), "preset list is not a JSON object");
  preset("user/lost.json", R"({"extends": "debgu-logits"})");
  EXPECT_ERROR(resolve("lost"), "preset lost extends debgu-logits", "Did you mean debug-logits?");
  preset("user/odd.json", R"({"extends": 5})");
  EXPECT_ERROR(resolve("odd"), "preset odd extends 5");
  preset("user/typo.json", R"({"extend": "debug"})");
  EXPECT_ERROR(resolve("typo"), "preset typo sets extend, which does not exist");
  const auto all = list_presets(folders());
  EXPECT_EQ(all.size(), builtin_presets().size() + 5);
}

TEST_F(PresetTest, NamesCannotLeaveTheirFolders) {
  preset("secret.json", "{}");
  for (const char* name : {"../secret", "/etc/passwd", ".hidden", ""}) {
    const auto found = find_preset(name, folders());
    ASSERT_OK(found);
    EXPECT_FALSE(found->has_value()) << name;
  }
}

}  // namespace
}  // namespace doppler::config
