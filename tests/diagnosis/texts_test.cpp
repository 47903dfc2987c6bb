// Texts beside what transformers makes of them: healthy tokenizers and templates agree, and every fault of
// the table is put down to its step. tests/data/texts/*/text.json is what transformers says.
#include "diagnosis/compare/text_truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "base/json.h"
#include "diagnosis/compare/compare_texts.h"
#include "diagnosis/compare/text_side.h"
#include "diagnosis/doctor/doctor.h"
#include "diagnosis/faults/faults.h"
#include "engine/messages.h"
#include "formats/gguf.h"
#include "testing.h"
#include "tokenizer/gguf_tokenizer.h"

namespace doppler::diagnosis {
namespace {

constexpr const char* kTextFamilies[] = {"demo", "llama2", "llama3", "qwen2", "smollm"};

// A folder with a tokenizer and a template, and no weights; and what transformers makes of its texts.
class TextPatient {
 public:
  explicit TextPatient(const std::string& name) {
    const auto texts = testing::data_path("texts") / name;
    const auto source = name == "demo" ? testing::source_path("demo") : texts;
    for (const auto& entry : std::filesystem::directory_iterator(source)) {
      if (entry.is_regular_file() && entry.path().extension().string().starts_with(".j"))
        std::filesystem::copy_file(entry.path(), folder_ / entry.path().filename());
    }
    if (name != "demo") {
      std::string tokenizer = testing::read_file(texts / "tokenizer");
      tokenizer.pop_back();
      std::filesystem::copy_file(testing::data_path("tokenizers") / tokenizer / "tokenizer.json",
                                 folder_ / "tokenizer.json");
    }
    loaded.model = std::make_shared<Model>();
    loaded.model->files.folder = folder_.path();
    load(*loaded.model);
    auto tokenizer = load_tokenizer_if_any(loaded.model->files);
    auto chat = load_chat_template_if_any(loaded.model->files);
    auto truth = read_text_truth(testing::read_file(texts / "text.json"));
    if (!tokenizer || !chat || !truth) {
      ADD_FAILURE() << name << ": "
                    << (!tokenizer ? tokenizer.error()
                        : !chat    ? chat.error()
                                   : truth.error())
                           .message;
      return;
    }
    loaded.tokenizer = std::move(*tokenizer);
    loaded.chat = std::move(*chat);
    recording.prompt_ids = {1};
    recording.text = std::move(*truth);
  }

  Subject subject() const { return subject_of(loaded, "reference"); }

  Loaded loaded;
  Recording recording;

 private:
  void load(Model& model) {
    auto config =
        parse_json(testing::read_file(folder_ / "generation_config.json"), "generation_config.json");
    if (!config) return;
    const Json& eos = (*config)["eos_token_id"];
    if (eos.is_array())
      model.spec.eos_ids = eos.get<std::vector<std::int32_t>>();
    else
      model.spec.eos_ids = {eos.get<std::int32_t>()};
    model.spec.pad_id = config->value("pad_token_id", -1);
    model.files.generation_config = JsonMember(std::move(*config));
  }

  testing::TempDir folder_;
};

std::string all_differences(const TextComparison& comparison) {
  std::string text;
  for (const TextDifference& d : comparison.differences)
    text += fmt::format("{} ({}): {} {} x{}\n", d.cause, d.step, d.explanation, d.repair, d.places);
  return text;
}

Result<Diagnosis> examine_texts(const Subject& subject, const Recording& recording) {
  return diagnose(subject, {.reference = &recording, .seconds = 600, .only = {"texts"}});
}

TEST(Texts, AgreeWithTransformers) {
  for (const char* name : kTextFamilies) {
    SCOPED_TRACE(name);
    const TextPatient patient(name);
    ASSERT_OK_AND_ASSIGN(const TextComparison comparison,
                         compare_texts(*patient.recording.text, text_side_of(patient.loaded)));
    EXPECT_EQ(all_differences(comparison), "");
    EXPECT_GE(comparison.texts, 45u);
    EXPECT_GE(comparison.conversations, 8u);
  }
}

TEST(Texts, ARecordingOfOnesOwnAgrees) {
  for (const char* name : kTextFamilies) {
    SCOPED_TRACE(name);
    const TextPatient patient(name);
    const TextSide side = text_side_of(patient.loaded);
    ASSERT_OK_AND_ASSIGN(const TextTruth truth, text_truth_of(side, "A prompt."));
    ASSERT_OK_AND_ASSIGN(const TextTruth again, read_text_truth(text_truth_json(truth)));
    EXPECT_EQ(text_truth_json(again), text_truth_json(truth));
    ASSERT_OK_AND_ASSIGN(const TextComparison comparison, compare_texts(again, side));
    EXPECT_EQ(all_differences(comparison), "");
  }
}

// cases.json of a tokenizer: texts with their ids and what they decode to.
TextTruth truth_of_cases(const std::filesystem::path& file) {
  TextTruth truth;
  const auto cases = parse_json(testing::read_file(file), file.string());
  if (!cases) return truth;
  for (const Json& entry : *cases) {
    TextCase made;
    made.text = entry["text"];
    made.ids = entry["ids"].get<std::vector<TokenId>>();
    if (entry.contains("ids_special")) made.with_special = entry["ids_special"].get<std::vector<TokenId>>();
    made.decoded = entry["decoded"];
    truth.texts.push_back(std::move(made));
  }
  return truth;
}

// Every tokenizer that the repository has, as files and as GGUF metadata.
TEST(Texts, HealthyTokenizersRaiseNoAlarm) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("tokenizers"))) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    const TextTruth truth = truth_of_cases(entry.path() / "cases.json");
    const auto vocabulary = testing::data_path("tokenizers_gguf") / ("vocab_" + name + ".gguf");
    std::vector<std::pair<std::string, tokenizer::Tokenizer>> tokenizers;
    ASSERT_OK_AND_ASSIGN(tokenizer::Tokenizer own, tokenizer::Tokenizer::load(entry.path()));
    tokenizers.emplace_back(name, std::move(own));
    if (std::filesystem::exists(vocabulary)) {
      ASSERT_OK_AND_ASSIGN(const GgufFile gguf, open_gguf(vocabulary));
      ASSERT_OK_AND_ASSIGN(auto read, tokenizer::load_gguf_tokenizer(gguf.metadata, name));
      tokenizers.emplace_back(name + ".gguf", std::move(*read));
    }
    for (const auto& [what, tokenizer] : tokenizers) {
      SCOPED_TRACE(what);
      TextSide side;
      side.tokenizer = &tokenizer;
      side.gguf = what.ends_with("gguf");
      TextTruth some = truth;
      if (what == "gemma_json.gguf")  // GGUF cannot hold a token that is NUL
        std::erase_if(some.texts,
                      [](const TextCase& text) { return text.text.find('\0') != std::string::npos; });
      ASSERT_OK_AND_ASSIGN(const TextComparison comparison, compare_texts(some, side));
      EXPECT_EQ(all_differences(comparison), "");
      ++count;
    }
  }
  EXPECT_GE(count, 20u);
}

// Every text fault of the table, in every patient that it changes.
TEST(Texts, FaultsAreNamed) {
  std::size_t named = 0, all = 0;
  for (const char* name : kTextFamilies) {
    const TextPatient patient(name);
    for (const FaultInfo& fault : all_faults()) {
      if (fault.kind != FaultKind::kText) continue;
      Subject subject = patient.subject();
      if (!applies(fault.name, subject)) continue;
      ASSERT_OK_AND_ASSIGN(const FaultPlace place, inject(fault.name, subject));
      ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis, examine_texts(subject, patient.recording));
      ++all;
      const bool right = !diagnosis.healthy() && diagnosis.findings[0].cause == fault.cause;
      named += right;
      std::string said;
      for (const Finding& finding : diagnosis.findings) said += describe(finding) + "\n";
      if (!right)
        std::cout << name << ": " << fault.name << " is " << fault.cause << ", said:\n" << said << "\n";
      EXPECT_FALSE(diagnosis.healthy()) << name << ": " << fault.name;
      if (right && diagnosis.findings[0].stage.empty() != (place.stage == Stage::kNone))
        ADD_FAILURE() << fault.name;
    }
  }
  std::cout << named << " of " << all << " text faults named\n";
  EXPECT_GE(all, 100u);
  EXPECT_GE(static_cast<double>(named), 0.95 * static_cast<double>(all));
}

TEST(Texts, HostileTextPartsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "an object"},
      {"{\"texts\": 1}", "a list"},
      {"{\"texts\": [{\"text\": \"a\"}]}", "a list"},
      {"{\"texts\": [{\"ids\": []}]}", "a text"},
      {"{\"texts\": [{\"text\": \"a\", \"ids\": [-1]}]}", "token id"},
      {"{\"texts\": [{\"text\": \"a\", \"ids\": [1e99]}]}", "token id"},
      {"{\"texts\": [{\"text\": \"a\", \"ids\": [9999999999]}]}", "token id"},
      {"{\"conversations\": [{\"name\": \"a\", \"conversation\": []}]}", "an object with messages"},
      {"{\"pieces\": [[1]]}", "pairs"},
      {"{\"roles\": {\"bos\": 2}}", "ids and texts"},
      {"{\"sampling\": {\"temperature\": \"hot\"}}", "numbers"},
      {"{\"now\": \"yesterday\"}", "a time"},
      {"{\"now\": \"2026-13-01T00:00:00\"}", "a time"},
      {"{\"texts\": ", "JSON"},
  };
  for (const auto& [json, says] : cases) {
    SCOPED_TRACE(json);
    EXPECT_ERROR(read_text_truth(json), says);
  }
  EXPECT_ERROR(read_text_truth(std::string(std::size_t{5} << 20, ' ')), "bytes");
  std::string many = "{\"texts\": [";
  for (int i = 0; i < 1001; ++i) many += fmt::format("{}{{\"text\": \"a\", \"ids\": []}}", i > 0 ? "," : "");
  EXPECT_ERROR(read_text_truth(many + "]}"), "1001 texts");
}

// Ids beyond the vocabulary, messages that are no messages: compared, not trusted.
TEST(Texts, HostileTruthIsComparedWithoutHarm) {
  const TextPatient patient("demo");
  ASSERT_OK_AND_ASSIGN(
      const TextTruth truth,
      read_text_truth(
          R"({"texts": [{"text": "a", "ids": [4000000], "with_special": [], "decoded": "b"}, {"text": "", "ids": []}],
        "conversations": [{"name": "x", "conversation": {"messages": [7, {"role": 3}, null]}, "rendered": "y"},
                          {"name": "z", "conversation": {"messages": []}}],
        "pieces": [[4000000, ""]], "special": [4000000], "roles": {"bos": {"id": 4000000, "text": ""}}, "stop_ids": [4000000]})"));
  ASSERT_OK_AND_ASSIGN(const TextComparison comparison, compare_texts(truth, text_side_of(patient.loaded)));
  EXPECT_FALSE(comparison.differences.empty());
}

// transformers puts its BOS before one that the text has; so does a run, and so does `tokenize`.
TEST(Texts, ABosInTheTextIsASecondOne) {
  const TextPatient patient("demo");
  ASSERT_OK_AND_ASSIGN(const auto ids, tokenize_prompt(patient.loaded, "<bos>Hello"));
  EXPECT_EQ(ids, (std::vector<TokenId>{2, 2, 859}));
  ASSERT_OK_AND_ASSIGN(const auto encoded, patient.loaded.tokenizer->encode("<bos>Hello"));
  EXPECT_EQ(ids, encoded);
}

}  // namespace
}  // namespace doppler::diagnosis
