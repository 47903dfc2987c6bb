// The tokenizers of published models, and what their own libraries make of a hundred texts.
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "testing.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace doppler::tokenizer {
namespace {

using nlohmann::json;
using testing::data_path;
using testing::read_file;

std::string shown(const std::vector<TokenId>& ids) {
  return json(ids).dump();
}

// "gguf_NAME" is the same vocabulary in tokenizers_gguf/vocab_NAME.gguf, as llama.cpp's converter writes it.
Result<Tokenizer> load_fixture(const std::string& name) {
  if (!name.starts_with("gguf_")) return Tokenizer::load(data_path("tokenizers") / name);
  DOPPLER_ASSIGN(const GgufFile file,
                 open_gguf(data_path(fmt::format("tokenizers_gguf/vocab_{}.gguf", name.substr(5)))));
  DOPPLER_ASSIGN(auto tokenizer, load_gguf_tokenizer(file.metadata, "The file"));
  if (!tokenizer) return fail(ErrorCode::kNotFound, "The file has no tokenizer.");
  return std::move(*tokenizer);
}

class Fixture : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const std::string folder = name.starts_with("gguf_") ? name.substr(5) : name;
    cases_ = json::parse(read_file(data_path("tokenizers") / folder / "cases.json"));
    auto loaded = load_fixture(name);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    tokenizer_.emplace(std::move(*loaded));
    ASSERT_GT(cases_.size(), 20u);
  }
  json cases_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(Fixture, EncodesAsTheOriginalDoes) {
  for (const json& c : cases_) {
    const auto text = c["text"].get<std::string>();
    ASSERT_OK_AND_ASSIGN(const auto ids, tokenizer_->encode(text, {.add_special = false}));
    EXPECT_EQ(shown(ids), c["ids"].dump()) << text;
    if (!c.contains("ids_special")) continue;
    ASSERT_OK_AND_ASSIGN(const auto with_special, tokenizer_->encode(text));
    EXPECT_EQ(shown(with_special), c["ids_special"].dump()) << text;
  }
}

TEST_P(Fixture, DecodesAsTheOriginalDoes) {
  for (const json& c : cases_) {
    ASSERT_OK_AND_ASSIGN(const auto text, tokenizer_->decode(c["ids"].get<std::vector<TokenId>>()));
    EXPECT_EQ(text, c["decoded"].get<std::string>());
    if (!c.contains("decoded_skip")) continue;
    ASSERT_OK_AND_ASSIGN(const auto skipped,
                         tokenizer_->decode(c["ids_special"].get<std::vector<TokenId>>(), true));
    EXPECT_EQ(skipped, c["decoded_skip"].get<std::string>());
  }
}

TEST_P(Fixture, StreamsTheSameTextInWholeCharacters) {
  for (const json& c : cases_) {
    StreamDecoder decoder(*tokenizer_, /*skip_special=*/false);
    std::string text;
    for (const TokenId id : c["ids"].get<std::vector<TokenId>>()) {
      ASSERT_OK_AND_ASSIGN(const std::string part, decoder.push(id));
      EXPECT_TRUE(is_valid_utf8(part)) << c["text"];
      text += part;
    }
    ASSERT_OK_AND_ASSIGN(const std::string rest, decoder.flush());
    EXPECT_EQ(text + rest, c["decoded"].get<std::string>());
  }
}

const auto kParamName = [](const auto& param_info) { return std::string(param_info.param); };

INSTANTIATE_TEST_SUITE_P(Published, Fixture,
                         ::testing::Values("gpt2", "llama3", "qwen2", "o200k", "gemma_json", "spm_llama",
                                           "spm_gemma"),
                         kParamName);

INSTANTIATE_TEST_SUITE_P(Gguf, Fixture,
                         ::testing::Values("gguf_gpt2", "gguf_llama3", "gguf_qwen2", "gguf_o200k",
                                           "gguf_gemma_json", "gguf_spm_llama", "gguf_spm_gemma"),
                         kParamName);

// What the published kinds above leave out; tests/data/tokenizers/make_extra.py makes them.
INSTANTIATE_TEST_SUITE_P(Extra, Fixture,
                         ::testing::Values("llama2_json", "unigram_json", "precompiled_json", "bert_json",
                                           "clip_json", "roberta_json", "splits_json", "spm_unigram",
                                           "spm_unigram_bytes", "spm_bpe_nfkc", "spm_suffix"),
                         kParamName);

}  // namespace
}  // namespace doppler::tokenizer
