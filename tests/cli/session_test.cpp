// run --session: a conversation goes on from run to run, and a file that does not fit is refused and left
// alone.
#include "program.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::Outcome;

Outcome ask(const std::filesystem::path& session, const std::string& text,
            const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "run",   testing::source_path("demo").string(), text, "--session", session.string(), "--backend", "cpu",
      "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return doppler(arguments);
}

TEST(RunSession, GoesOnFromRunToRun) {
  const testing::TempDir folder;
  const auto file = folder / "s";
  const Outcome first = ask(file, "What does a bear eat?");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.json()["timings"]["cached_tokens"], 0);
  const Outcome second = ask(file, "And where does it live?");
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_GE(second.json()["timings"]["cached_tokens"], first.json()["prompt_ids"].size());
  // One program that is asked both says the same.
  const Outcome chat = doppler({"chat", testing::source_path("demo").string(), "--backend", "cpu", "--json"},
                               "What does a bear eat?\nAnd where does it live?\n");
  ASSERT_EQ(chat.status, 0) << chat.err;
  EXPECT_EQ(chat.json()["messages"][1]["content"], first.json()["text"]);
  EXPECT_EQ(chat.json()["messages"][3]["content"], second.json()["text"]);

  // A chat takes up the same file.
  const Outcome third = doppler({"chat", testing::source_path("demo").string(), "--backend", "cpu", "--json",
                                 "--session", file.string()},
                                "Thank you.\n");
  ASSERT_EQ(third.status, 0) << third.err;
  EXPECT_EQ(third.json()["messages"].size(), 6u);
  EXPECT_EQ(third.json()["messages"][3]["content"], second.json()["text"]);

  const std::string before = testing::read_file(file);
  EXPECT_REFUSAL(ask(file, "more", {"--raw"}), 2, "holds a conversation", "another file");
  EXPECT_REFUSAL(ask(file, "more", {"--system", "Be brief."}), 2, "too late", "another file");
  EXPECT_EQ(testing::read_file(file), before);
}

TEST(RunSession, PlainTextGoesOnToo) {
  const testing::TempDir folder;
  const auto file = folder / "s";
  const Outcome first = ask(file, "The color of the sky is", {"--raw", "--max-tokens", "4"});
  ASSERT_EQ(first.status, 0) << first.err;
  const Outcome second = ask(file, " day", {"--raw", "--max-tokens", "4"});
  ASSERT_EQ(second.status, 0) << second.err;
  const Json said = first.json();
  Json held = said["prompt_ids"];
  held.insert(held.end(), said["ids"].begin(), said["ids"].end());
  const Json ids = second.json()["prompt_ids"];
  ASSERT_GT(ids.size(), held.size());
  EXPECT_TRUE(std::equal(held.begin(), held.end(), ids.begin()));
  EXPECT_EQ(second.json()["timings"]["cached_tokens"], held.size() - 1) << "all but the newest token";
  EXPECT_REFUSAL(ask(file, "Hello"), 2, "no messages", "--raw");
}

TEST(RunSession, AFileThatDoesNotFitIsRefusedAndLeftAlone) {
  const testing::TempDir folder;
  const auto file = folder / "s";
  ASSERT_EQ(ask(file, "What does a bear eat?").status, 0);
  const std::string good = testing::read_file(file);
  const auto llama = testing::data_path("models/llama").string();
  EXPECT_REFUSAL(doppler({"run", llama, "--prompt-ids", "2,3", "--session", file.string()}), 3,
                 "another model", "another file");
  EXPECT_REFUSAL(ask(file, "more", {"--kv-type", "q8_0"}), 3, "another type", "another file");
  EXPECT_REFUSAL(ask(file, "more", {"--context", "12"}), 3, "context holds 12", "another file");
  for (const std::string& bad :
       {good.substr(0, good.size() / 2), std::string("hello"), good + "x", std::string()}) {
    testing::write_file(file, bad);
    EXPECT_REFUSAL(ask(file, "more"), 3, "no sequence that Doppler has saved", "another file");
    EXPECT_EQ(testing::read_file(file), bad);
  }
  EXPECT_REFUSAL(ask(folder / "no" / "such" / "folder", "more"), 3, "no/such");
}

TEST(RunThreads, AskedForBeyondWhatTheProcessGetsAreNamed) {
  const Outcome run = doppler({"run", testing::data_path("models/llama").string(), "--prompt-ids", "2,5",
                               "--max-tokens", "3", "--backend", "cpu", "--threads", "9999", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("of the 9999 threads"), std::string::npos) << run.err;
  EXPECT_NE(run.json()["fallbacks"].dump().find("processor"), std::string::npos);
}

}  // namespace
}  // namespace doppler
