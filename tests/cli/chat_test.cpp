// doppler chat from a pipe, and what run has in common with it: prompts that are piped in, and seeds. What a
// person sees at a terminal is in chat_terminal_test.py.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::model_path;
using testing::Outcome;
using testing::TempDir;

const std::string kDemo = DOPPLER_SOURCE_DIR "/demo";
const std::string kBear = "What does a bear eat?", kBearEats = "A bear eats fish and honey.";

Outcome chat_with(const std::string& input, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"chat", kDemo, "--backend", "cpu", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return doppler(arguments, input);
}

TEST(Chat, AnswersEachLineOfAPipe) {
  const Outcome chat = chat_with(kBear + "\n\nAnd where does it live?\n");
  EXPECT_EQ(chat.status, 0);
  EXPECT_EQ(chat.out, kBearEats + "\nA bear lives in the forest. Its home is a cave.\n");
  EXPECT_EQ(chat.err, "");
}

TEST(Chat, GivesTheConversationAsJson) {
  const Outcome chat = chat_with("\"\"\"What does\na bear eat?\"\"\"\n/undo\n" + kBear + "\n",
                                 {"--json", "--system", "You are kind.", "--seed", "7"});
  ASSERT_EQ(chat.status, 0) << chat.err;
  const Json messages = chat.json()["messages"];
  ASSERT_EQ(messages.size(), 3u) << chat.out;
  EXPECT_EQ(messages[0]["content"], "You are kind.");
  EXPECT_EQ(messages[1]["content"], kBear);
  EXPECT_EQ(chat.json()["seed"], 7);
}

TEST(Chat, LettersWhoseLastByteIsSpaceInLatin1StayWhole) {
  // The last byte of à is that of a no-break space, and that of … that of a next-line character.
  for (const std::string text : {"Tu es là", "Tu attends…"}) {
    const Outcome chat = chat_with("/system " + text + "\n" + kBear + "\n", {"--json"});
    ASSERT_EQ(chat.status, 0) << chat.err;
    EXPECT_EQ(chat.json()["messages"][0]["content"], text);
  }
}

TEST(Chat, TheFirstFailureOfAPipeEndsIt) {
  const Outcome chat = chat_with("/hepl\n" + kBear + "\n");
  EXPECT_EQ(chat.status, 3);
  EXPECT_EQ(chat.out, "");
  EXPECT_NE(chat.err.find("Did you mean /help?"), std::string::npos) << chat.err;
  EXPECT_EQ(chat_with("/edit\n").status, 3);
}

TEST(Chat, SavedConversationsGoOnAndAreReadByTokenize) {
  TempDir dir;
  const std::string file = (dir / "saved.json").string();
  ASSERT_EQ(chat_with(kBear + "\n/save " + file + "\n").status, 0);
  const Outcome more = chat_with("/load " + file + "\nAnd where does it live?\n");
  EXPECT_EQ(more.out, "A bear lives in the forest. Its home is a cave.\n") << more.err;
  EXPECT_EQ(doppler({"tokenize", kDemo, "--messages", file}).status, 0);
}

TEST(Chat, LeavesTheOldestTurnsOutOfAFullContextOrEndsTheAnswer) {
  std::string input;
  for (int i = 0; i < 8; ++i) input += kBear + "\n";
  const Outcome shift = chat_with(input, {"--context", "96"});
  EXPECT_EQ(shift.status, 0) << shift.err;
  EXPECT_NE(shift.err.find("left out. The system text stays."), std::string::npos) << shift.err;
  const Outcome stop = chat_with(input, {"--context", "96", "--on-full", "stop"});
  EXPECT_EQ(stop.status, 3);
  EXPECT_EQ(stop.err.find("left out"), std::string::npos);
  EXPECT_NE(stop.err.find("/clear"), std::string::npos) << stop.err;
  EXPECT_REFUSAL(chat_with("", {"--on-full", "burst"}), 2, "--on-full", "burst", "shift or stop");
}

// An answer that fills the context goes on in what leaving out the turns before it frees, without a seam.
TEST(Chat, AnAnswerGoesOnWhenTurnsAreLeftOutOnTheWay) {
  const Outcome chat = chat_with(kBear + "\n" + kBear + "\nTell me a story about a robot and a kite.\n",
                                 {"--context", "128", "--json"});
  ASSERT_EQ(chat.status, 0) << chat.err;
  EXPECT_NE(chat.err.find("left out"), std::string::npos) << chat.err;
  const Json messages = chat.json()["messages"];
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[1]["content"], kBearEats);
  EXPECT_GT(messages[5]["content"].get<std::string>().size(), 300u) << messages[5];
}

TEST(Chat, ASessionGoesOnWithItsCache) {
  TempDir dir;
  const std::string file = (dir / "session").string();
  ASSERT_EQ(chat_with(kBear + "\n", {"--session", file, "--system", "You are kind."}).status, 0);
  const Outcome more = chat_with("And where does it live?\n/stats\n/show system\n", {"--session", file});
  ASSERT_EQ(more.status, 0) << more.err;
  EXPECT_NE(more.err.find("You are kind."), std::string::npos);
  EXPECT_EQ(more.err.find(" 0 of them cached"), std::string::npos) << more.err;
  const Json last = chat_with("", {"--session", file, "--json"}).json();
  EXPECT_EQ(last["messages"].size(), 5u) << last;
  ASSERT_EQ(
      doppler({"run", kDemo, "Once", "--raw", "--max-tokens", "1", "--session", (dir / "text").string()})
          .status,
      0);
  EXPECT_REFUSAL(chat_with("", {"--session", (dir / "text").string()}), 2, "holds plain text");
}

TEST(Chat, NeedsATemplate) {
  EXPECT_REFUSAL(doppler({"chat", model_path("llama")}, "hi\n"), 3, "has no chat template", "run --raw");
}

TEST(Run, APipeFollowsThePrompt) {
  const auto ids = [](std::vector<std::string> arguments, const std::string& input) {
    arguments.insert(arguments.begin(), {"run", kDemo});
    arguments.insert(arguments.end(), {"--max-tokens", "1", "--json"});
    return doppler(arguments, input).json()["prompt_ids"];
  };
  const Json joined = ids({"Sum this up:\n\nBears eat fish."}, "");
  EXPECT_FALSE(joined.empty());
  EXPECT_EQ(ids({"Sum this up:"}, "Bears eat fish.\n"), joined);
  EXPECT_EQ(ids({"Sum this up:"}, ""), ids({}, "Sum this up:\n"));
}

TEST(Run, TheSeedIsRandomUnlessGivenAndPrinted) {
  const auto run = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", model_path("qwen3"), "--prompt-ids", "2,9,41", "--temperature", "1.2",
                               "--max-tokens", "20", "--ignore-eos"});
    return doppler(more);
  };
  const Json first = run({"--json"}).json(), second = run({"--json"}).json();
  EXPECT_NE(first["seed"], second["seed"]);
  const std::string seed = first["seed"].dump();
  EXPECT_EQ(run({"--json", "--seed", seed}).json()["ids"], first["ids"]);
  EXPECT_NE(run({"--seed", seed}).err.find("seed " + seed + "; stopped by"), std::string::npos);
}

}  // namespace
}  // namespace doppler
