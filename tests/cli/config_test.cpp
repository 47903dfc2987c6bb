// Configuration, log and trace as a user meets them on the command line.
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "cli/program.h"

namespace doppler::testing {
namespace {

using Words = std::vector<std::string>;

Words run_demo(const Words& more) {
  Words words = {"run",
                 source_path("demo").string(),
                 "The color of the sky is",
                 "--raw",
                 "--backend",
                 "cpu",
                 "--max-tokens",
                 "3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The JSON lines of a trace of these categories.
std::vector<Json> trace_of(const std::string& categories, const Words& more = {}) {
  const TempDir dir;
  const std::string file = (dir / "t.jsonl").string();
  Words words = run_demo({"--trace", categories, "--trace-file", file});
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = doppler(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, " blue. On\n");
  std::vector<Json> lines;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) {
    lines.push_back(Json::parse(line, nullptr, false));
    // The screen shows the same.
    const std::string text = printable(lines.back()["text"].get<std::string>(), SIZE_MAX);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << line;
  }
  return lines;
}

bool any_text(const std::vector<Json>& lines, const std::string& part) {
  for (const Json& line : lines)
    if (line["text"].get<std::string>().find(part) != std::string::npos) return true;
  return false;
}

TEST(Trace, LoaderTellsFilesTensorsTypesBytesAndSeconds) {
  const auto lines = trace_of("loader", {"--trace-layers", "3"});
  for (const char* part :
       {"File: ", "model.safetensors (11.3 MB)",
        "model.layers.3.self_attn.q_proj.weight BF16 256 x 256 131.1 kB", "model.norm.weight",
        "Type BF16: 106 tensors, 11.3 MB", "Seconds: weights ", "Complete: 106 tensors"})
    EXPECT_TRUE(any_text(lines, part)) << part;
  EXPECT_FALSE(any_text(lines, "model.layers.2."));
  for (const Json& line : lines) EXPECT_EQ(line["category"], "loader");
}

TEST(Trace, KernelsTellWhatComputesEachOpAndWhy) {
  const auto lines = trace_of("kernels");
  for (const char* part :
       {"backend cpu", "pass gated_ffn (gate, up and activation in one op): on",
        "matmul q_proj+k_proj+v_proj: BF16 in place x floats", "(the weights are floats)",
        "attention attn_out: cache in f32, window of 128", "attention attn_out: cache in f32, all positions"})
    EXPECT_TRUE(any_text(lines, part)) << part;
}

TEST(Trace, KvTellsEachStepsPlaceAndEachLayersRoom) {
  const auto lines = trace_of("kv", {"--trace-layers", "0,5"});
  ASSERT_EQ(lines.size(), 3u * 3);  // prompt and two steps; the sequence and two layers
  EXPECT_EQ(lines[0]["data"], Json::parse(R"({"slot": 0, "kvLen": 7, "startPos": 0, "numTokens": 7})"));
  EXPECT_EQ(lines[0]["step"], 0);
  EXPECT_EQ(lines[1]["layer"], 0);
  EXPECT_EQ(lines[1]["data"]["capacity"], 1024);
  EXPECT_EQ(lines[2]["layer"], 5);
  EXPECT_EQ(lines[2]["data"]["capacity"], 1024);
  EXPECT_EQ(lines[6]["data"]["kvLen"], 9);
  EXPECT_EQ(lines[6]["data"]["startPos"], 8);
  EXPECT_EQ(lines[6]["step"], 2);
  EXPECT_EQ(trace_of("kv", {"--trace-steps", "1", "--trace-layers", "0"}).size(), 2u * 2);
}

TEST(Trace, SampleTellsTheTokenItsLogitAndTheTopFive) {
  const auto lines = trace_of("sample");
  ASSERT_EQ(lines.size(), 3u * 2);
  EXPECT_TRUE(lines[0]["text"].get<std::string>().starts_with("Greedy: id=789 \"▁blue\" logit=27.249"))
      << lines[0];
  EXPECT_EQ(lines[0]["data"]["id"], 789);
  ASSERT_EQ(lines[0]["data"]["top"].size(), 5u);
  EXPECT_EQ(lines[0]["data"]["top"][0]["id"], 789);
  EXPECT_TRUE(
      lines[1]["text"].get<std::string>().starts_with("Top-5 (temp=0, topK=0, topP=1): 789 \"▁blue\""));
  const auto sampled = trace_of("sample", {"--temperature", "0.01", "--top-k", "9", "--top-p", "0.5"});
  EXPECT_TRUE(any_text(sampled, "Sampled: id=789"));
  EXPECT_TRUE(any_text(sampled, "Top-5 (temp=0.01, topK=9, topP=0.5): "));
}

TEST(Trace, BuffersTellWhatMemoryIsFor) {
  const auto lines = trace_of("buffers", {"--trace-layers", "0"});
  for (const char* part :
       {"weights: 11.3 MB mapped from 1 file(s), 0 B copied",
        "KV cache: 1024 positions x 2 heads x 64 x keys and values in f32, 1 slot(s): 1.0 MB",
        "KV cache: 8.4 MB in 8 layers, f32, context of 1024", "backend cpu: "})
    EXPECT_TRUE(any_text(lines, part)) << part;
}

TEST(Trace, PerfSumsPromptAndDecodeUp) {
  const auto lines = trace_of("perf");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(any_text(lines, "Prefill: 7 tokens in "));
  EXPECT_TRUE(any_text(lines, "Decode: 3 tokens in "));
  EXPECT_TRUE(any_text(lines, "ms a token p50="));
  EXPECT_TRUE(any_text(lines, "Counters: "));
}

TEST(Trace, ExcludedCategoriesAreSilentAndTheRestSpeaks) {
  std::map<std::string, int> seen;
  for (const Json& line : trace_of("all,-buffers,-attn", {"--trace-layers", "1"})) ++seen[line["category"]];
  for (const char* name : {"loader", "kernels", "embed", "ffn", "logits", "kv", "sample", "perf"})
    EXPECT_GT(seen[name], 0) << name;
  EXPECT_EQ(seen["buffers"] + seen["attn"], 0);
}

TEST(Trace, EveryLineOfEveryCategoryHasItsNumbersForPrograms) {
  std::map<std::string, int> seen;
  for (const Json& line : trace_of("all")) {
    ++seen[line["category"]];
    EXPECT_TRUE(line.contains("data") && line["data"].is_object() && !line["data"].empty()) << line;
  }
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Log, LevelsAndFilesAreTheUsers) {
  const TempDir dir;
  const Outcome quiet = doppler(run_demo({}));
  EXPECT_EQ(quiet.err.find("[Loader]"), std::string::npos) << quiet.err;
  const Outcome info = doppler(run_demo({"--log-level", "info"}));
  EXPECT_NE(info.err.find("ms][Loader] Complete: 11.3 MB in "), std::string::npos) << info.err;
  EXPECT_NE(info.err.find("ms][Engine] Prefill: 7 tokens"), std::string::npos);
  EXPECT_EQ(info.err.find("Layers: 0-7"), std::string::npos);
  EXPECT_EQ(info.out, " blue. On\n");
  const std::string file = (dir / "log.jsonl").string();
  const Outcome verbose =
      doppler(run_demo({"--log-level", "verbose", "--set", "runtime.shared.debug.logOutput.file=" + file,
                        "--set", "runtime.debug.logOutput.stdout=false"}));
  EXPECT_EQ(verbose.err.find("["), std::string::npos) << verbose.err;
  const std::string lines = read_file(file);
  EXPECT_NE(lines.find("Layers: 0-7"), std::string::npos) << lines;
  EXPECT_NE(lines.find("Write runtime.shared.debug.logOutput"), std::string::npos) << lines;
}

TEST(Log, AFailureShowsTheLastLinesOfAScreenThatWasOff) {
  const Outcome outcome =
      doppler({"run", model_path("llama"), "--prompt-ids", "1,2,3,4,5", "--context", "4", "--config", "ci"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.err.find("[Loader] Complete: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("doppler: The prompt has 5 tokens"), std::string::npos) << outcome.err;
}

TEST(Log, AFullDiskIsAnError) {
  const Outcome outcome = doppler(run_demo({"--trace", "kv", "--trace-file", "/dev/full"}));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.err.find("The log file /dev/full is not complete: No space left"), std::string::npos)
      << outcome.err;
  EXPECT_REFUSAL(doppler(run_demo({"--trace", "kv", "--trace-file", "/nonexistent/x"})), 3, "/nonexistent/x");
}

TEST(Config, ExplainShowsValueSourceAndMeaning) {
  const Json json = doppler({"config", "explain", "runtime.debug.trace", "--config", "gemma2-debug",
                             "--trace", "ffn", "--json"})
                        .json();
  EXPECT_EQ(json["chain"], (Json{"preset debug", "preset gemma2-debug"}));
  std::map<std::string, Json> rows;
  for (const Json& row : json["settings"]) rows[row["path"]] = row;
  EXPECT_EQ(rows["runtime.shared.debug.trace.categories"]["value"], Json{"ffn"});
  EXPECT_EQ(rows["runtime.shared.debug.trace.categories"]["source"], "--trace");
  EXPECT_EQ(rows["runtime.shared.debug.trace.layers"]["source"], "preset gemma2-debug");
  EXPECT_EQ(rows["runtime.shared.debug.trace.file"]["source"], "default");
  EXPECT_EQ(rows.count("runtime.threads"), 0u);
  const Outcome text = doppler({"config", "explain", "runtime.inference.sampling.temperature", "--set",
                                "runtime.inference.sampling.temperature=0.5"});
  EXPECT_NE(text.out.find("runtime.inference.sampling.temperature  0.5    --set  0 takes the likeliest"),
            std::string::npos)
      << text.out;
  EXPECT_REFUSAL(doppler({"config", "explain", "runtime.thread"}), 2, "Did you mean runtime.threads?");
  EXPECT_REFUSAL(doppler({"config"}), 2, "subcommand");
}

TEST(Config, SchemaAndPresetsArePrinted) {
  const Json schema = Json::parse(doppler({"config", "schema"}).out, nullptr, false);
  EXPECT_EQ(schema["properties"]["runtime"]["properties"]["threads"]["default"], 0);
  const TempDir home;
  std::filesystem::create_directories(home / ".doppler/presets");
  write_file(
      home / ".doppler/presets/mine.json",
      R"({"description": "my own", "extends": "bench", "runtime": {"inference": {"batching": {"maxTokens": 1}}}})");
  const Environment environment("HOME", home.path().c_str());
  const Outcome listed = doppler({"config", "presets"});
  EXPECT_NE(listed.out.find("my own; extends bench ("), std::string::npos) << listed.out;
  EXPECT_NE(listed.out.find("gemma2-debug"), std::string::npos);
  const Json json = doppler({"run", source_path("demo").string(), "The color of the sky is", "--raw",
                             "--backend", "cpu", "--config", "mine", "--json"})
                        .json();
  EXPECT_EQ(json["ids"].size(), 1u);
}

TEST(Config, ContradictionsAndImpossibleLayersStopEveryCommand) {
  EXPECT_REFUSAL(doppler(run_demo({"--config", "bench", "--trace", "attn"})), 2, "contradicts itself",
                 "(preset bench)", "(--trace)");
  const Outcome preset = doppler(run_demo({"--config", "gemma2-debug"}));  // which also logs
  EXPECT_EQ(preset.status, 2);
  EXPECT_NE(
      preset.err.find("The preset gemma2-debug asks for layer 17 in runtime.shared.debug.trace.layers, but "
                      "the model has layers 0 to 7."),
      std::string::npos)
      << preset.err;
  EXPECT_REFUSAL(doppler(run_demo({"--trace", "attn", "--trace-layers", "8"})), 2, "--trace-layers",
                 "layer 8");
  EXPECT_REFUSAL(
      doppler({"compare", source_path("demo").string(), "--reference", "x", "--trace-layers", "1"}), 2,
      "trace.enabled is false (default)");
  EXPECT_REFUSAL(doppler({"tokenize", source_path("demo").string(), "x", "--config", "nope"}), 2, "nope",
                 "Presets are");
}

}  // namespace
}  // namespace doppler::testing
