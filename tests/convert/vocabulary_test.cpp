// Tokenizers survive the way through GGUF metadata: the same ids for every text.
#include "convert/gguf_vocabulary.h"

#include <nlohmann/json.hpp>

#include "convert/pre_name.h"
#include "formats/gguf.h"
#include "testing.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace doppler::convert {
namespace {

using nlohmann::json;
using testing::data_path;
using testing::read_file;
using testing::TempDir;

tokenizer::TokenizerSpec folder_tokenizer(const std::filesystem::path& folder) {
  const auto spec = read_folder_tokenizer(folder);
  EXPECT_TRUE(spec.has_value() && spec->has_value()) << folder;
  return spec && *spec ? **spec : tokenizer::TokenizerSpec();
}

tokenizer::TokenizerSpec published(const std::string& name) {
  return folder_tokenizer(data_path("tokenizers/" + name));
}

const MetadataEntry* find(const GgufVocabulary& vocabulary, std::string_view key) {
  const auto found = std::ranges::find(vocabulary.entries, key, &MetadataEntry::key);
  return found == vocabulary.entries.end() ? nullptr : &*found;
}

std::string text_of(const GgufVocabulary& vocabulary, std::string_view key) {
  const MetadataEntry* entry = find(vocabulary, key);
  return entry == nullptr ? "absent" : std::get<std::string>(entry->value);
}

// Writes the vocabulary and reads it back.
Result<tokenizer::Tokenizer> through_gguf(const GgufVocabulary& vocabulary) {
  const TempDir dir;
  DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "vocab.gguf"));
  DOPPLER_TRY(writer.add<std::string_view>("general.architecture", "llama"));
  for (const MetadataEntry& entry : vocabulary.entries) DOPPLER_TRY(add_entry(writer, entry));
  DOPPLER_TRY(writer.write_header());
  DOPPLER_TRY(writer.finish());
  DOPPLER_ASSIGN(const GgufFile file, open_gguf(dir / "vocab.gguf"));
  DOPPLER_ASSIGN(auto tokenizer, tokenizer::load_gguf_tokenizer(file.metadata, "The file vocab.gguf"));
  if (!tokenizer) return fail(ErrorCode::kNotFound, "There is no tokenizer.");
  return std::move(*tokenizer);
}

struct Published {
  const char* name;
  const char* kind;
  const char* pre;
};

class RoundTrip : public ::testing::TestWithParam<Published> {};

TEST_P(RoundTrip, GivesTheSameIds) {
  const Published& tokenizer = GetParam();
  ASSERT_OK_AND_ASSIGN(const GgufVocabulary vocabulary, gguf_vocabulary(published(tokenizer.name), {}));
  EXPECT_EQ(text_of(vocabulary, "tokenizer.ggml.model"), tokenizer.kind);
  EXPECT_EQ(text_of(vocabulary, "tokenizer.ggml.pre"), tokenizer.pre);
  ASSERT_OK_AND_ASSIGN(const tokenizer::Tokenizer read, through_gguf(vocabulary));
  const json cases = json::parse(read_file(data_path("tokenizers") / tokenizer.name / "cases.json"));
  ASSERT_GT(cases.size(), 20u);
  for (const json& c : cases) {
    const auto text = c["text"].get<std::string>();
    ASSERT_OK_AND_ASSIGN(const auto ids, read.encode(text, {.add_special = false}));
    EXPECT_EQ(ids, c["ids"].get<std::vector<TokenId>>()) << text;
    if (!c.contains("ids_special")) continue;
    ASSERT_OK_AND_ASSIGN(const auto special, read.encode(text));
    EXPECT_EQ(special, c["ids_special"].get<std::vector<TokenId>>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Published, RoundTrip,
    ::testing::Values(Published{"gpt2", "gpt2", "gpt-2"}, Published{"llama3", "gpt2", "llama-bpe"},
                      Published{"qwen2", "gpt2", "qwen2"}, Published{"o200k", "gpt2", "gpt-4o"},
                      Published{"gemma_json", "gemma4", "absent"}, Published{"spm_gemma", "llama", "default"},
                      Published{"spm_llama", "llama", "default"},
                      Published{"spm_bpe_nfkc", "llama", "default"},
                      Published{"spm_unigram", "t5", "default"}),
    [](const auto& one) { return std::string(one.param.name); });

// llama.cpp's own writing of the same tokenizers: pieces and merges to the letter, roles and flags.
TEST(GgufVocabularies, IsWhatLlamaCppWrites) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "o200k", "gemma_json", "spm_gemma", "spm_llama"}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const GgufVocabulary ours, gguf_vocabulary(published(name), {}));
    ASSERT_OK_AND_ASSIGN(const GgufFile file,
                         open_gguf(data_path(fmt::format("tokenizers_gguf/vocab_{}.gguf", name))));
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
      ASSERT_OK_AND_ASSIGN(const auto array, file.metadata.get_array(key));
      const MetadataEntry* entry = find(ours, key);
      ASSERT_EQ(array.has_value(), entry != nullptr) << key;
      if (!array) continue;
      ASSERT_OK_AND_ASSIGN(const auto strings, array->strings());
      const auto& own = std::get<std::vector<std::string>>(entry->value);
      ASSERT_EQ(own.size(), strings.size()) << key;
      for (std::size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], strings[i]) << key << " " << i;
    }
    EXPECT_EQ(text_of(ours, "tokenizer.ggml.model"),
              *file.metadata.get_string("tokenizer.ggml.model").value());
    const auto add_bos = file.metadata.get_bool("tokenizer.ggml.add_bos_token");
    if (*add_bos) {
      EXPECT_EQ(std::get<bool>(find(ours, "tokenizer.ggml.add_bos_token")->value), **add_bos);
    }
  }
}

// A vocabulary whose merges are all there, in the order of their results' scores: SentencePiece's scores say
// the same.
TEST(GgufVocabularies, TranslatedSentencePieceModelsGetTheirScoresBack) {
  ASSERT_OK_AND_ASSIGN(const GgufVocabulary vocabulary, gguf_vocabulary(published("llama2_json"), {}));
  ASSERT_OK_AND_ASSIGN(const tokenizer::Tokenizer read, through_gguf(vocabulary));
  ASSERT_OK_AND_ASSIGN(const tokenizer::Tokenizer original,
                       tokenizer::Tokenizer::load(data_path("tokenizers/llama2_json")));
  for (const char* text : {"Hello world", "  two  spaces", "naïve café — 12,345.67 €", "a\nb", ""}) {
    ASSERT_OK_AND_ASSIGN(const auto ids, read.encode(text));
    ASSERT_OK_AND_ASSIGN(const auto expected, original.encode(text));
    EXPECT_EQ(ids, expected) << text << " as " << text_of(vocabulary, "tokenizer.ggml.model");
  }
}

TEST(GgufVocabularies, PadsToTheEmbeddingAndLeavesOutWhatIsBeyondIt) {
  const tokenizer::TokenizerSpec spec = published("llama3");  // 1505 tokens
  ASSERT_OK_AND_ASSIGN(const GgufVocabulary longer, gguf_vocabulary(spec, {.vocab_size = 1600}));
  const auto& tokens = std::get<std::vector<std::string>>(find(longer, "tokenizer.ggml.tokens")->value);
  ASSERT_EQ(tokens.size(), 1600u);
  EXPECT_EQ(tokens[1599], "[PAD1599]");
  EXPECT_TRUE(longer.warnings.empty());
  ASSERT_OK_AND_ASSIGN(const GgufVocabulary shorter, gguf_vocabulary(spec, {.vocab_size = 1504}));
  ASSERT_EQ(shorter.warnings.size(), 1u);
  EXPECT_NE(shorter.warnings[0].find("1505 tokens but the embedding 1504 rows"), std::string::npos);
}

TEST(GgufVocabularies, NamesTheIdsThatEndAnswers) {
  ASSERT_OK_AND_ASSIGN(const GgufVocabulary vocabulary,
                       gguf_vocabulary(published("spm_llama"), {.eos_ids = {2, 300, 301, 302}}));
  const auto id = [&](const char* key) { return std::get<std::uint32_t>(find(vocabulary, key)->value); };
  EXPECT_EQ(id("tokenizer.ggml.eos_token_id"), 2u);
  EXPECT_EQ(id("tokenizer.ggml.eot_token_id"), 300u);
  EXPECT_EQ(id("tokenizer.ggml.eom_token_id"), 301u);
  ASSERT_EQ(vocabulary.warnings.size(), 1u);
  EXPECT_NE(vocabulary.warnings[0].find("302"), std::string::npos);
}

TEST(GgufVocabularies, KeepsTheRolesThatTheTokenizerNames) {
  ASSERT_OK_AND_ASSIGN(const GgufVocabulary vocabulary,
                       gguf_vocabulary(folder_tokenizer(testing::source_path("demo")), {}));
  for (const auto& [key, id] : {std::pair{"bos", 2u}, {"eos", 1u}, {"unknown", 3u}, {"padding", 0u}}) {
    const MetadataEntry* entry = find(vocabulary, fmt::format("tokenizer.ggml.{}_token_id", key));
    ASSERT_NE(entry, nullptr) << key;
    EXPECT_EQ(std::get<std::uint32_t>(entry->value), id) << key;
  }
}

TEST(PreName, OfUnknownStepsIsAnErrorThatSaysHowToGoOn) {
  tokenizer::TokenizerSpec spec = published("llama3");
  for (tokenizer::PreTokenizerStep& step : spec.pre_tokenizer) {
    if (auto* split = std::get_if<tokenizer::pre_tokenizers::Split>(&step)) split->pattern.text = "[a-z]+";
  }
  EXPECT_ERROR(gguf_vocabulary(spec, {}), "No GGUF pre-tokenizer", "[a-z]+", "--no-tokenizer");
  spec = published("gpt2");
  spec.pre_tokenizer.emplace_back(tokenizer::pre_tokenizers::Bert{});
  EXPECT_ERROR(gguf_vocabulary(spec, {}), "Step 3", "--no-tokenizer");
  EXPECT_ERROR(gguf_vocabulary(published("bert_json"), {}), "GGUF has no words for", "--no-tokenizer");
}

// Each row of the table is found again, or another that cuts and merges the same way.
TEST(PreName, FindsEveryRowOfTheTable) {
  for (const tokenizer::GgufPreTokenizer& row : tokenizer::gguf_pre_tokenizers()) {
    tokenizer::TokenizerSpec spec;
    spec.ignore_merges = row.ignore_merges;
    if (row.form.nfc) spec.normalizer.emplace_back(tokenizer::normalizers::Form{UnicodeForm::kNfc});
    for (const std::string_view pattern : row.patterns) {
      if (!pattern.empty())
        spec.pre_tokenizer.emplace_back(tokenizer::pre_tokenizers::Split{{std::string(pattern), true}});
    }
    ASSERT_OK_AND_ASSIGN(const tokenizer::GgufPreTokenizer* found, name_pre_tokenizer(spec));
    EXPECT_EQ(found->patterns, row.patterns) << row.name << " " << found->name;
    EXPECT_EQ(found->ignore_merges, row.ignore_merges) << row.name;
    EXPECT_EQ(found->form.nfc, row.form.nfc) << row.name << " " << found->name;
  }
}

}  // namespace
}  // namespace doppler::convert
