// The commands as a user meets them: what they print, their JSON, their exit statuses.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "base/json.h"
#include "cli/program.h"
#include "diagnosis/compare/recording.h"
#include "formats/safetensors.h"
#include "tensors.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::model_path;
using testing::Outcome;
using testing::source_path;
using testing::TempDir;

std::string ids_text(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const auto id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

TEST(Program, HelpNamesEveryCommandAndVersionPrints) {
  const Outcome help = doppler({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* name :
       {"run", "chat", "inspect", "tokenize", "record", "compare", "debug", "bench", "synth", "completion"}) {
    EXPECT_NE(help.out.find(name), std::string::npos) << name;
    EXPECT_EQ(doppler({name, "--help"}).status, 0) << name;
  }
  EXPECT_EQ(doppler({"--version"}).status, 0);
}

TEST(Program, WrongUsageIsStatusTwoAndNamesTheNearestCommand) {
  EXPECT_REFUSAL(doppler({}), 2, "doppler --help");
  EXPECT_REFUSAL(doppler({"compre"}), 2, "Did you mean compare?");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--temprature", "1"}), 2,
                 "Did you mean --temperature?");
  EXPECT_REFUSAL(doppler({"run"}), 2, "MODEL", "doppler run --help");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--no-such-flag", "--prompt-ids", "2"}), 2,
                 "--no-such-flag");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "2,x"}), 2, "x is no token id");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "2", "--backend", "tpu"}), 2, "tpu",
                 "cpu", "reference");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "2", "--top-p", "2"}), 2, "--top-p",
                 "to \"2\"", "between 0 and 1");
}

TEST(Run, GreedyIdsAreThoseOfTransformersOnEveryBackend) {
  for (const char* model : {"llama", "llama3", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"}) {
    ASSERT_OK_AND_ASSIGN(const diagnosis::Recording recording,
                         diagnosis::open_recording(testing::data_path(std::string("models/") + model) /
                                                   "reference.safetensors"));
    for (const char* backend : {"reference", "cpu"}) {
      const Outcome run = doppler({"run", model_path(model), "--prompt-ids", ids_text(recording.prompt_ids),
                                   "--max-tokens", std::to_string(recording.greedy_ids.size()),
                                   "--ignore-eos", "--backend", backend, "--json"});
      ASSERT_EQ(run.status, 0) << run.err;
      const Json json = run.json();
      EXPECT_EQ(json["ids"], Json(recording.greedy_ids)) << model << " on " << backend;
      EXPECT_EQ(json["prompt_ids"], Json(recording.prompt_ids));
      EXPECT_EQ(json["stop_reason"], "max_tokens");
      EXPECT_EQ(json["backend"], backend);
      EXPECT_TRUE(json["text"].is_string());
      EXPECT_TRUE(json["timings"]["load_ms"].is_number());
    }
  }
}

TEST(Run, TheSameSeedGivesTheSameTokensOnEveryBackendAndThreadCount) {
  std::vector<Json> ids;
  for (const auto& [backend, threads] :
       {std::pair{"reference", "1"}, {"cpu", "1"}, {"cpu", "2"}, {"cpu", "3"}}) {
    ids.push_back(doppler({"run", model_path("qwen3"), "--prompt-ids", "2,9,41", "--temperature", "1.2",
                           "--top-p", "0.95", "--seed", "7", "--max-tokens", "30", "--ignore-eos",
                           "--backend", backend, "--threads", threads, "--json"})
                      .json()["ids"]);
    EXPECT_EQ(ids.back().size(), 30u);
    EXPECT_EQ(ids.back(), ids.front()) << backend << " with " << threads;
  }
  const Json other = doppler({"run", model_path("qwen3"), "--prompt-ids", "2,9,41", "--temperature", "1.2",
                              "--seed", "8", "--max-tokens", "30", "--ignore-eos", "--json"})
                         .json()["ids"];
  EXPECT_NE(other, ids.front());
}

TEST(Run, TheEndOfTheContextIsAReasonOfItsOwn) {
  const Outcome run = doppler({"run", model_path("llama"), "--prompt-ids", "2,5,9", "--context", "8",
                               "--max-tokens", "50", "--ignore-eos", "--json"});
  EXPECT_EQ(run.json()["stop_reason"], "context_end") << run.err;
  EXPECT_EQ(run.json()["ids"].size(), 6u);  // five more fit; the sixth is known but cannot be fed
}

TEST(Run, BadInputIsStatusThreeWithASentence) {
  TempDir dir;
  EXPECT_REFUSAL(doppler({"run", "/nonexistent/model", "--prompt-ids", "2"}), 3, "/nonexistent/model");
  EXPECT_REFUSAL(doppler({"run", dir.path().string(), "--prompt-ids", "2"}), 3, dir.path().c_str());
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "2,5,100000"}), 3, "100000",
                 "vocabulary of 256");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "1,2,3,4,5", "--context", "4"}), 3,
                 "5 tokens", "4");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "Hello"}), 3, "tokenizer.json");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "2", "--context", "2000000000"}), 3,
                 "KV cache", "Lower the context");
  EXPECT_REFUSAL(doppler({"run", model_path("llama"), "--prompt-ids", "2", "--context", "99999999999999"}), 2,
                 "99999999999999");
}

TEST(Run, TheDemoModelContinuesTheFamousPromptAsTransformersRecordedIt) {
  const std::string demo = source_path("demo").string();
  ASSERT_OK_AND_ASSIGN(const diagnosis::Recording recording,
                       diagnosis::open_recording(demo + "/reference.safetensors"));
  std::vector<std::int32_t> greedy = recording.greedy_ids;
  greedy.pop_back();  // the end of the sequence is no generated token
  for (const char* backend : {"reference", "cpu"}) {
    const Json json =
        doppler({"run", demo, "The color of the sky is", "--raw", "--backend", backend, "--json"}).json();
    EXPECT_EQ(json["prompt_ids"], Json(recording.prompt_ids));
    EXPECT_EQ(json["ids"], Json(greedy)) << backend;
    EXPECT_EQ(json["stop_reason"], "eos");
  }
  const Outcome chat = doppler({"run", demo, "The color of the sky is"});
  EXPECT_EQ(chat.out, "The sky is blue.\n");
}

TEST(Run, SettingsComeFromConfigSetAndFlagsInThatOrder) {
  TempDir dir;
  testing::write_file(dir / "c.json", R"({"runtime": {"inference": {"batching": {"maxTokens": 3}}}})");
  const std::vector<std::string> base = {"run", model_path("llama"), "--prompt-ids",
                                         "2,5", "--ignore-eos",      "--json"};
  const auto count = [&](std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return doppler(all).json()["ids"].size();
  };
  const std::string config = (dir / "c.json").string(), path = "runtime.inference.batching.maxTokens";
  EXPECT_EQ(count({"--config", config}), 3u);
  EXPECT_EQ(count({"--config", config, "--set", path + "=4"}), 4u);
  EXPECT_EQ(count({"--config", config, "--set", path + "=4", "--max-tokens", "5"}), 5u);
  EXPECT_EQ(count({"--config", R"({"runtime": {"inference": {"batching": {"maxTokens": 2}}}})"}), 2u);
}

TEST(Run, UnknownSettingsNameTheNearest) {
  const std::vector<std::string> base = {"run", model_path("llama"), "--prompt-ids", "2", "--set"};
  const auto with = [&](const char* set) {
    std::vector<std::string> all = base;
    all.emplace_back(set);
    return doppler(all);
  };
  EXPECT_REFUSAL(with("runtime.inference.sampling.temperatur=1"), 2,
                 "Did you mean runtime.inference.sampling.temperature?");
  EXPECT_REFUSAL(with("runtime.inference.sampling.topK=many"), 2, "topK", "whole number");
  EXPECT_REFUSAL(with("nonsense"), 2, "path=value");
}

TEST(Run, CtrlCEndsAGenerationCleanly) {
  testing::Program program({"run", model_path("gemma3"), "--prompt-ids", "2,5", "--ignore-eos", "--context",
                            "500000", "--max-tokens", "400000", "--json", "--trace", "kv", "--trace-steps",
                            "1", "--backend", "cpu"});  // a GPU's checks at load show steps, too
  // The signal must arrive after the handler is there; a step of the run shows that.
  program.wait_until([&] { return program.error_so_far().find("TRACE:kv") != std::string::npos; });
  program.interrupt();
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.json()["stop_reason"], "cancelled");
}

TEST(Inspect, EveryValueHasASource) {
  const Json json = doppler({"inspect", model_path("gemma3"), "--json", "--tensors", "--plan"}).json();
  EXPECT_EQ(json["family"], "gemma3");
  ASSERT_GT(json["spec"].size(), 15u);
  for (const Json& row : json["spec"]) {
    EXPECT_FALSE(row["path"].get<std::string>().empty());
    EXPECT_FALSE(row["source"].get<std::string>().empty()) << row;
  }
  EXPECT_GT(json["memory"]["kv_cache_bytes"], 0);
  EXPECT_FALSE(json["tensors"].empty());
  EXPECT_FALSE(json["plan"].empty());
  const Outcome text = doppler({"inspect", model_path("gemma3")});
  EXPECT_NE(text.out.find("generation_config.json: eos_token_id"), std::string::npos) << text.out;
}

// A multimodal checkpoint holds tensors of any number of dimensions beside the language model's.
TEST(Inspect, ListsTensorsOfThreeDimensions) {
  const TempDir dir;
  const std::filesystem::path from = testing::data_path("models/llama");
  std::filesystem::copy(from / "config.json", dir / "config.json");
  ASSERT_OK_AND_ASSIGN(const TensorStore store, open_safetensors(from / "model.safetensors"));
  std::vector<TensorView> tensors;
  for (const auto& [name, tensor] : store.tensors()) tensors.push_back(tensor);
  const std::vector<float> values(4 * 3 * 5, 0.5f);
  tensors.push_back({"vision_tower.patches", DType::kF32, {4, 3, 5}, std::as_bytes(std::span(values))});
  ASSERT_OK(testing::write_tensors(dir / "model.safetensors", tensors));
  const Outcome text = doppler({"inspect", dir.path().string(), "--tensors"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(std::regex_search(text.out, std::regex("vision_tower.patches +F32 +4 x 3 x 5\n"))) << text.out;
  const Json json = doppler({"inspect", dir.path().string(), "--tensors", "--json"}).json();
  const auto row = std::ranges::find_if(
      json["tensors"], [](const Json& tensor) { return tensor["name"] == "vision_tower.patches"; });
  ASSERT_NE(row, json["tensors"].end());
  EXPECT_EQ((*row)["shape"], Json({4, 3, 5}));
  EXPECT_EQ((*row)["bytes"], 4 * 3 * 5 * 4);
}

TEST(Compare, AgreesWithTransformersAndSaysSoInJson) {
  const std::string reference = model_path("gemma3") + "/reference.safetensors";
  for (const char* backend : {"reference", "cpu"}) {
    const Outcome outcome =
        doppler({"compare", model_path("gemma3"), "--reference", reference, "--backend", backend, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    const Json json = outcome.json();
    EXPECT_EQ(json["agrees"], true);
    EXPECT_TRUE(json["first_divergence"].is_null());
    EXPECT_GT(json["stages_compared"], 100);
    EXPECT_EQ(json["decode"]["steps"], json["decode"]["top1_equal"]);
  }
}

TEST(Compare, ABrokenModelIsStatusOneAndNamedAtItsStage) {
  TempDir dir;
  const std::filesystem::path from = testing::data_path("models/gemma3");
  for (const char* file : {"model.safetensors", "generation_config.json"})
    std::filesystem::copy(from / file, dir / file);
  std::string config = testing::read_file(from / "config.json");
  const std::string right = "\"query_pre_attn_scalar\": 32";
  ASSERT_NE(config.find(right), std::string::npos);
  config.replace(config.find(right), right.size(), "\"query_pre_attn_scalar\": 64");
  testing::write_file(dir / "config.json", config);
  const Outcome outcome = doppler(
      {"compare", dir.path().string(), "--reference", (from / "reference.safetensors").string(), "--json"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  const Json first = outcome.json()["first_divergence"];
  EXPECT_EQ(first["stage"], "attn_out");
  EXPECT_EQ(first["layer"], 0);
  EXPECT_EQ(first["phase"], "prefill");
  const Outcome text =
      doppler({"compare", dir.path().string(), "--reference", (from / "reference.safetensors").string()});
  EXPECT_NE(text.out.find("DIVERGES first at layers.0.attn_out"), std::string::npos) << text.out;
}

TEST(Record, ARecordingOfOneBackendComparesWithTheOther) {
  TempDir dir;
  const std::string file = (dir / "r.safetensors").string();
  EXPECT_EQ(doppler({"record", model_path("qwen3"), "--prompt-ids", "2,5,9,17", "--backend", "reference",
                     "-o", file, "--steps", "4"})
                .status,
            0);
  const Outcome outcome =
      doppler({"compare", model_path("qwen3"), "--reference", file, "--backend", "cpu", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.json()["decode"]["steps"], 5);
}

TEST(Record, AFullDiskLeavesNoFile) {
  TempDir dir;
  const std::string file = (dir / "r.safetensors").string();
  testing::Program program({"record", model_path("qwen3"), "--prompt-ids", "2,5,9,17", "-o", file}, "",
                           /*file_limit=*/4096);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.status, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("cannot be written"), std::string::npos) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Record, AnUnwritablePlaceIsNamed) {
  EXPECT_REFUSAL(
      doppler({"record", model_path("llama"), "--prompt-ids", "2", "-o", "/nonexistent/r.safetensors"}), 3,
      "/nonexistent/r.safetensors");
}

TEST(Completion, ScriptsKnowCommandsAndFlags) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = doppler({"completion", shell});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("compare"), std::string::npos);
    EXPECT_NE(outcome.out.find("max-tokens"), std::string::npos);
  }
  EXPECT_REFUSAL(doppler({"completion", "tcsh"}), 2, "tcsh");
}

}  // namespace
}  // namespace doppler
