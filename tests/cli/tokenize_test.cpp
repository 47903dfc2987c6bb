// doppler tokenize: texts, ids and conversations, as a user or a script asks for them.
#include "base/json.h"
#include "cli/program.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::Outcome;
using testing::source_path;
using testing::TempDir;

std::string tokenizer_path(const std::string& name) {
  return testing::data_path("tokenizers/" + name).string();
}

TEST(Tokenize, GivesTheFixturesIdsAndTexts) {
  for (const char* name : {"gemma_json", "llama3", "qwen2", "spm_llama"}) {
    const Json cases = Json::parse(testing::read_file(tokenizer_path(name) + "/cases.json"), nullptr, false);
    ASSERT_TRUE(cases.is_array());
    // The tokenizer's own tests take all of them; here it is the command that is tested.
    for (std::size_t i = 0; i < cases.size(); i += 13) {
      const std::string text = cases[i]["text"];
      if (text.find('\0') != std::string::npos) continue;  // no argument can hold it
      const Json plain =
          doppler({"tokenize", tokenizer_path(name), "--json", "--no-special", "--", text}).json();
      EXPECT_EQ(plain["ids"], cases[i]["ids"]) << name << ": " << text;
      if (cases[i].contains("ids_special")) {
        EXPECT_EQ(doppler({"tokenize", tokenizer_path(name), "--json", "--", text}).json()["ids"],
                  cases[i]["ids_special"]);
      }
      std::string ids;
      for (const Json& id : cases[i]["ids"]) ids += id.dump() + ",";
      EXPECT_EQ(doppler({"tokenize", tokenizer_path(name), "--decode", ids, "--json"}).json()["text"],
                cases[i]["decoded"]);
    }
  }
}

// transformers adds BOS before one that the text has; what `tokenize` shows is what `run` feeds.
TEST(Tokenize, ShowsTheTwoBosThatRunFeeds) {
  const std::string demo = source_path("demo").string();
  const Json ids = doppler({"tokenize", demo, "--json", "<bos>The"}).json()["ids"];
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], ids[1]);
  const Outcome run = doppler({"run", demo, "<bos>The", "--raw", "--backend", "cpu", "--max-tokens", "1"});
  EXPECT_NE(run.err.find("begins with two BOS tokens (2)"), std::string::npos) << run.err;
}

TEST(Tokenize, TakesTheTextFromStandardInput) {
  const Outcome given = doppler({"tokenize", tokenizer_path("llama3"), "--json", "Hello"});
  EXPECT_EQ(doppler({"tokenize", tokenizer_path("llama3"), "--json"}, "Hello").out, given.out);
}

TEST(Tokenize, RefusesIdsThatDoNotExist) {
  EXPECT_REFUSAL(doppler({"tokenize", tokenizer_path("llama3"), "--decode", "5,999999"}), 3, "999999");
  EXPECT_REFUSAL(doppler({"tokenize", tokenizer_path("llama3"), "--decode", "5,-1"}), 2, "-1 is no token id");
}

// A folder with a template, and special tokens named where transformers looks for them.
class Conversations : public ::testing::Test {
 protected:
  void write_messages(const std::string& json) { testing::write_file(dir_ / "m.json", json); }
  Outcome render() {
    return doppler({"tokenize", dir_.path().string(), "--messages", (dir_ / "m.json").string(), "--json"});
  }
  TempDir dir_;
};

TEST_F(Conversations, AreRenderedWithTheFoldersSpecialTokens) {
  testing::write_file(dir_ / "tokenizer_config.json",
                      R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true,
                          "chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"})");
  write_messages(R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})");
  const Outcome outcome = render();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["text"], "<s>[user] Hi</s>>");
  EXPECT_FALSE(outcome.json().contains("ids"));  // there is no tokenizer
  // What the file says comes before what the folder says; a bare list is a conversation too.
  write_messages(R"({"messages": [{"role": "user", "content": "Hi"}], "bos_token": "B"})");
  EXPECT_EQ(render().json()["text"], "B[user] Hi</s>>");
  write_messages(R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(render().json()["text"], "<s>[user] Hi</s>>");
  write_messages(R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false})");
  EXPECT_EQ(render().json()["text"], "<s>[user] Hi</s>");
}

TEST_F(Conversations, FailWithTheTemplatesOwnWords) {
  testing::write_file(dir_ / "chat_template.jinja",
                      "{% if not tools %}\n{{ raise_exception('Tools, please') }}{% endif %}");
  write_messages(R"({"messages": []})");
  const Outcome outcome = render();
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.err.find("Tools, please"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("line 2"), std::string::npos) << outcome.err;
  write_messages(R"({"no messages": 1})");
  EXPECT_REFUSAL(render(), 2, "holds no conversation");
  write_messages("{");
  EXPECT_REFUSAL(render(), 2, "not valid JSON");
}

// What is shown is what is sent.
TEST_F(Conversations, HaveTheIdsThatRunSends) {
  write_messages(R"([{"role": "user", "content": "What does a bear eat?"}])");
  const std::string demo = source_path("demo").string();
  const Json shown = doppler({"tokenize", demo, "--messages", (dir_ / "m.json").string(), "--json"}).json();
  const Json sent = doppler({"run", demo, "What does a bear eat?", "--max-tokens", "1", "--json"}).json();
  EXPECT_EQ(shown["ids"], sent["prompt_ids"]);
}

TEST_F(Conversations, OfTheDemoGetOneBos) {
  write_messages(R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})");
  const Json json =
      doppler({"tokenize", source_path("demo").string(), "--messages", (dir_ / "m.json").string(), "--json"})
          .json();
  EXPECT_EQ(json["text"], "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(json["ids"][0], 2);
  EXPECT_EQ(json["ids"][1], 4);
}

}  // namespace
}  // namespace doppler
