// doppler synth and doppler bench, run as a user would.
#include "cli/program.h"

namespace doppler::testing {
namespace {

TEST(SynthCommand, WritesAModelThatRuns) {
  const TempDir folder;
  const std::string file = folder / "m.gguf";
  const Outcome made =
      doppler({"synth", "qwen3-0.6b", file, "--type", "q8_0", "--layers", "1", "--vocab", "500", "--json"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["type"], "Q8_0");
  EXPECT_GT(made.json()["tensor_bytes"], 1000000);
  const Outcome ran = doppler({"run", file, "--prompt-ids", "1,2,3", "--max-tokens", "2", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.json()["ids"].size(), 2u);
}

TEST(SynthCommand, UnknownShapesAndTypesAreWrongUsage) {
  EXPECT_EQ(doppler({"synth", "gemma9", "x.gguf"}).status, 2);
  EXPECT_EQ(doppler({"synth", "gemma3-1b", "x.gguf", "--type", "Q9_0"}).status, 2);
}

TEST(BenchCommand, SavesAMeasurementAndComparesWithIt) {
  const TempDir folder;
  const std::string model = data_path("models/llama"), old = folder / "old.json";
  const std::vector<std::string> arguments = {"bench",    model,     "--json",   "--prefill", "8",
                                              "--decode", "2",       "--depths", "0",         "--repetitions",
                                              "2",        "--loads", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    return doppler(more);
  };
  const Outcome first = with({"--save", old});
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_TRUE(first.json().is_object()) << first.out;
  EXPECT_EQ(first.json()["decode"].size(), 1u);
  EXPECT_EQ(Json::parse(read_file(old)), first.json());
  const Outcome second = with({"--baseline", old});
  ASSERT_EQ(second.status, 0) << second.err;  // slower or faster: without --fail-over a time is no verdict
  EXPECT_EQ(second.json()["comparison"]["figures"][0]["name"], "decode @0, tok/s");
  // A baseline that nothing can reach.
  Json fast = first.json();
  for (const char* bound : {"median", "low", "high"}) fast["prefill"]["tokens_per_second"][bound] = 1e12;
  fast["prefill"]["tokens_per_second"]["high"] = 2e12;
  write_file(old, fast.dump());
  const Outcome slow = with({"--baseline", old, "--fail-over", "5%"});
  EXPECT_EQ(slow.status, 1) << slow.err;
  EXPECT_NE(slow.json()["comparison"]["failures"].dump().find("prefill 8, tok/s"), std::string::npos)
      << slow.out;
  EXPECT_EQ(with({"--fail-over", "5%"}).status, 2);
  EXPECT_EQ(with({"--baseline", old, "--fail-over", "fast"}).status, 2);
  write_file(old, "{}");
  EXPECT_EQ(with({"--baseline", old}).status, 3);
}

TEST(BenchCommand, MeasuresLoading) {
  const Outcome outcome = doppler({"bench", "loading", data_path("models/llama"), "--loads", "2", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["suite"], "loading");
  EXPECT_EQ(outcome.json()["warm"]["ready_seconds"]["count"], 2);
  // Some file systems forget nothing; then the reason is there instead.
  EXPECT_NE(outcome.json()["cold"].is_null(), outcome.json()["why_no_cold"] == "");
}

TEST(TestCommand, ComparesAWholeModelWithTheReference) {
  const Outcome outcome =
      doppler({"test", "kernels", data_path("models/gemma3"), "--backend", "cpu", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["right"], true);
  EXPECT_EQ(outcome.json()["models"][0]["kernels"][0]["what"], "the whole model");
  EXPECT_EQ(doppler({"test"}).status, 2);
}

TEST(BenchCommand, MeasuresTheLossOnAText) {
  const TempDir folder;
  write_file(folder / "text.txt",
             "Once upon a time there was a cheerful girl. The color of the sky is blue.");
  const std::string demo = source_path("demo").string();
  const Outcome outcome = doppler({"bench", demo, "--perplexity", folder / "text.txt", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["chunks"], 1);
  EXPECT_GT(outcome.json()["tokens"], 10);
  // It was trained on such sentences; a model that knows nothing loses the logarithm of its vocabulary,
  // about 8.
  EXPECT_LT(outcome.json()["loss"], 4);
  const Outcome none = doppler({"bench", data_path("models/llama"), "--perplexity", folder / "text.txt"});
  EXPECT_EQ(none.status, 3);  // no tokenizer
}

}  // namespace
}  // namespace doppler::testing
