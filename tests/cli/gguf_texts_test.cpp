// GGUF files as the source of a tokenizer and of chat templates, on the command line.
#include "base/json.h"
#include "cli/program.h"
#include "engine/loaded.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::TempDir;

std::string vocab_path(const std::string& name) {
  return testing::data_path("tokenizers_gguf/vocab_" + name + ".gguf").string();
}

// The vocabulary of Llama 3's fixture with chat templates added.
Status write_chat(const std::filesystem::path& path,
                  const std::vector<std::pair<std::string, std::string>>& templates, bool vocabulary = true) {
  DOPPLER_ASSIGN(const GgufFile vocab, open_gguf(vocab_path("llama3")));
  DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(path));
  for (const GgufMetadata::Entry& entry : vocab.metadata.entries()) {
    if (vocabulary || !entry.key.starts_with("tokenizer.")) DOPPLER_TRY(writer.add_entry(entry));
  }
  for (const auto& [key, source] : templates) DOPPLER_TRY(writer.add<std::string_view>(key, source));
  DOPPLER_TRY(writer.write_header());
  return writer.finish();
}

// The session of docs/debugging.md: the template of another model in the demo, converted.
TEST(GgufTexts, AWrongTemplateIsFoundWithARecording) {
  const TempDir dir;
  const std::string demo = testing::source_path("demo").string();
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "special_tokens_map.json"})
    std::filesystem::copy_file(testing::source_path("demo") / name, dir / name);
  std::string source = testing::read_file(testing::source_path("demo") / "chat_template.jinja");
  for (std::size_t at = 0; (at = source.find("model", at)) != std::string::npos;)
    source.replace(at, 5, "assistant");
  testing::write_file(dir / "chat_template.jinja", source);
  const std::string broken = (dir / "broken.gguf").string();
  ASSERT_EQ(doppler({"convert", dir.path().string(), "-o", broken, "--type", "Q8_0"}).status, 0);
  const auto found =
      doppler({"doctor", broken, "--reference", demo + "/reference.safetensors", "--check", "texts"});
  EXPECT_EQ(found.status, 1) << found.err;
  for (const char* text : {"sick: 1 finding", "chat_role", "the role model is written as assistant",
                           "line 19", "tokenizer.chat_template of the GGUF file"})
    EXPECT_NE(found.out.find(text), std::string::npos) << text << "\n" << found.out;
}

TEST(GgufTexts, TokenizeAsTheFixturesDo) {
  for (const char* name : {"gemma_json", "llama3", "spm_gemma"}) {
    const Json cases =
        Json::parse(testing::read_file(testing::data_path("tokenizers/" + std::string(name) + "/cases.json")),
                    nullptr, false);
    ASSERT_TRUE(cases.is_array());
    for (std::size_t i = 0; i < cases.size(); i += 29) {
      const std::string text = cases[i]["text"];
      if (text.find('\0') != std::string::npos) continue;  // no argument can hold it
      EXPECT_EQ(doppler({"tokenize", vocab_path(name), "--json", "--no-special", "--", text}).json()["ids"],
                cases[i]["ids"])
          << name << ": " << text;
    }
  }
}

TEST(GgufTexts, RenderConversationsWithTheFilesOwnTokens) {
  const TempDir dir;
  const std::string file = (dir / "x.gguf").string();
  ASSERT_OK(
      write_chat(file, {{"tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}<|eot_id|>"},
                        {"tokenizer.chat_template.tool_use", "{{ tools[0] }}"}}));
  // Files beside it say otherwise, and are not asked.
  testing::write_file(dir / "tokenizer_config.json", R"({"bos_token": "<wrong>", "chat_template": "wrong"})");
  testing::write_file(dir / "tokenizer.json", "{}");
  const std::string messages = (dir / "m.json").string();
  testing::write_file(messages, R"([{"role": "user", "content": "on"}])");
  const Json rendered = doppler({"tokenize", file, "--messages", messages, "--json"}).json();
  EXPECT_EQ(rendered["text"], "<|begin_of_text|>on<|eot_id|>");
  EXPECT_EQ(rendered["ids"].size(), 3u) << rendered["ids"];
  EXPECT_EQ(rendered["ids"][0], 1500);
  EXPECT_EQ(rendered["ids"].back(), 1504);
  testing::write_file(messages, R"({"messages": [], "tools": ["hammer"]})");
  EXPECT_EQ(doppler({"tokenize", file, "--messages", messages, "--json"}).json()["text"], "hammer");
}

TEST(GgufTexts, ComeFromTheFolderWhereTheFileHasNone) {
  const TempDir dir;
  const std::string file = (dir / "x.gguf").string();
  ASSERT_OK(write_chat(file, {}, /*vocabulary=*/false));
  EXPECT_REFUSAL(doppler({"tokenize", file, "Hello"}), 3, "The GGUF file has no tokenizer");
  std::filesystem::copy(testing::data_path("tokenizers/llama3/tokenizer.json"), dir / "tokenizer.json");
  EXPECT_FALSE(doppler({"tokenize", file, "--json", "Hello"}).json()["ids"].empty());
}

// What inspect prints as the ids that end an answer, and where they come from.
Json stop_tokens(const std::string& model) {
  const Json inspected = doppler({"inspect", model, "--json"}).json();
  for (const Json& row : inspected["spec"]) {
    if (row["path"] == "eos_token_id") return row;
  }
  return {};
}

// run stops where inspect says: at the ids of the file, or where it names none, at those of a tokenizer
// beside it.
TEST(GgufTexts, InspectNamesEveryStopTokenOfARun) {
  const TempDir dir;
  const std::string with = (dir / "with.gguf").string(), without = (dir / "without.gguf").string();
  const std::string demo = testing::source_path("demo").string();
  ASSERT_EQ(doppler({"convert", demo, "-o", with, "--type", "F16"}).status, 0);
  ASSERT_EQ(doppler({"convert", demo, "-o", without, "--type", "F16", "--no-tokenizer"}).status, 0);
  EXPECT_TRUE(stop_tokens(without).is_null());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(testing::source_path("demo") / file, dir / file);
  const std::pair<std::string, std::string> cases[] = {{with, "gguf: tokenizer.ggml.eos_token_id"},
                                                       {without, "the tokenizer in " + dir.path().string()}};
  for (const auto& [file, source] : cases) {
    const Json row = stop_tokens(file);
    ASSERT_FALSE(row.is_null()) << file;
    EXPECT_TRUE(row["source"].get<std::string>().starts_with(source)) << row;
    LoadOptions load;
    load.backend = "reference";
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, load_all(file, load));
    std::string ids;
    for (const std::int32_t id : loaded.model->spec.eos_ids)
      ids += (ids.empty() ? "" : ", ") + std::to_string(id);
    EXPECT_EQ(row["value"], ids);
  }
}

TEST(GgufTexts, NameWhatIsWrong) {
  const TempDir dir;
  const std::string file = (dir / "x.gguf").string();
  const std::string messages = (dir / "m.json").string();
  testing::write_file(messages, "[]");
  ASSERT_OK(write_chat(file, {{"tokenizer.chat_template", "{% if %}"}}));
  EXPECT_REFUSAL(doppler({"tokenize", file, "--messages", messages}), 3, "tokenizer.chat_template", "line 1");
  ASSERT_OK(write_chat(file, {}));
  EXPECT_REFUSAL(doppler({"tokenize", file, "--messages", messages}), 3, "no chat template");
}

}  // namespace
}  // namespace doppler
