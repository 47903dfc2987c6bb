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

TEST(BenchCommand, PrintsOneJsonObjectAndComparesWithIt) {
  const TempDir folder;
  const std::string model = data_path("models/llama"), old = folder / "old.json";
  const std::vector<std::string> arguments = {"bench",    model,     "--json",   "--prefill", "8",
                                              "--decode", "2",       "--depths", "0",         "--repetitions",
                                              "2",        "--loads", "1"};
  const Outcome first = doppler(arguments);
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_TRUE(first.json().is_object()) << first.out;
  EXPECT_EQ(first.json()["decode"].size(), 1u);
  write_file(old, first.out);
  std::vector<std::string> again = arguments;
  again.insert(again.end(), {"--compare", old});
  const Outcome second = doppler(again);
  ASSERT_EQ(second.status, 0) << second.err;  // slower or faster: a time is no verdict
  EXPECT_NE(second.err.find("decode @0"), std::string::npos) << second.err;
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
