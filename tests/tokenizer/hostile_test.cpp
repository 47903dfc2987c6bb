// Tokenizer files that lie, and texts that are no texts: every one ends in a sentence or in ids, never in a
// crash.
#include "testing.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"

namespace doppler::tokenizer {
namespace {

using testing::data_path;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

std::string with_model(const std::string& model, const std::string& rest = "") {
  return R"({"model":{"type":"BPE",)" + model + "}" + rest + "}";
}

TEST(HostileTokenizerJson, ErrorsNameTheThing) {
  const auto error_of = [](const std::string& json) { return Tokenizer::from_json(json, "The file t.json"); };
  EXPECT_ERROR(error_of("{\"model\":\n {\"type\""), "not valid JSON", "line 2");
  EXPECT_ERROR(error_of("[]"), "no JSON object");
  EXPECT_ERROR(error_of("{}"), "has no model");
  EXPECT_ERROR(error_of(R"({"model":{"type":"Magic","vocab":{}}})"), "Magic", "BPE, Unigram");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0,"b":0})")), "id 0", "a and b");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0,"a":1})")), "piece a twice");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":4000000000})")), "id 4000000000");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":-1})")), "id -1");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0},"merges":["a c"])")), "merge 0 (a c)", "lacks c");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0},"merges":[["a","a"]])")), "lacks aa");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0},"merges":["a"])")), "merge 0 (a)");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0},"merges":[["a"]])")), "merges");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":[0]})")), "vocab");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0},"unk_token":"<unk>")")), "<unk>");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0})", R"(,"normalizer":{"type":"Magic"})")), "Magic",
               "NFKC");
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0})", R"(,"added_tokens":[{"id":0,"content":"b"}])")),
               "a and b");
  EXPECT_ERROR(error_of(std::string(100000, '[')), "nests deeper");
  const std::string split =
      R"(,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a(b"}})";
  EXPECT_ERROR(error_of(with_model(R"("vocab":{"a":0})", split)), "a(b", "missing closing parenthesis",
               "offset 3");
}

TEST(HostileTokenizerJson, GapsBetweenIdsAreNoText) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::from_json(with_model(R"("vocab":{"a":0,"b":7})"), "t"));
  EXPECT_EQ(tokenizer.vocab_size(), 8u);
  const std::vector<TokenId> ids = {0, 3, 7};
  ASSERT_OK_AND_ASSIGN(const auto text, tokenizer.decode(ids));
  EXPECT_EQ(text, "a b");
  const std::vector<TokenId> beyond = {8}, negative = {-1};
  EXPECT_ERROR(tokenizer.decode(beyond), "token id 8", "8 ids");
  EXPECT_ERROR(tokenizer.decode(negative), "token id -1");
  EXPECT_ERROR(tokenizer.piece(3), "token id 3");
}

TEST(HostileTokenizerJson, EveryCutOfAFileIsAnError) {
  const std::string json = read_file(data_path("tokenizers/llama2_json/tokenizer.json"));
  const std::size_t end = json.find_last_of('}');
  for (std::size_t cut = 0; cut < end; cut += 997) {
    EXPECT_FALSE(Tokenizer::from_json(json.substr(0, cut), "t").has_value()) << cut;
  }
}

TEST(HostileSentencePiece, CutsAndFlipsNeverCrash) {
  const std::string model = read_file(data_path("tokenizers/spm_llama/tokenizer.model"));
  const auto bytes_of = [](const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); };
  for (std::size_t cut = 0; cut < model.size(); cut += 211) {
    (void)Tokenizer::from_sentencepiece(bytes_of(model.substr(0, cut)), "t");
  }
  for (std::size_t at = 0; at < model.size(); at += 97) {
    std::string flipped = model;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
    const auto tokenizer = Tokenizer::from_sentencepiece(bytes_of(flipped), "t");
    if (tokenizer) (void)tokenizer->encode("Hello wörld");
  }
  EXPECT_ERROR(Tokenizer::from_sentencepiece(bytes_of(model.substr(0, 9)), "The file m"), "The file m");
  EXPECT_ERROR(Tokenizer::from_sentencepiece(bytes_of("{}"), "The file m"), "no SentencePiece model");
}

TEST(HostileText, InvalidBytesBecomeReplacementCharacters) {
  for (const char* name : {"gpt2", "gemma_json", "spm_llama"}) {
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::load(data_path("tokenizers") / name));
    ASSERT_OK_AND_ASSIGN(const auto ids, tokenizer.encode("a\xff\xe2\x96z", {.add_special = false}));
    ASSERT_OK_AND_ASSIGN(const auto text, tokenizer.decode(ids));
    // SentencePiece counts bytes, Unicode's recommendation counts maximal invalid parts.
    const bool by_byte = std::string(name) == "spm_llama";
    EXPECT_EQ(text, by_byte ? "a\ufffd\ufffd\ufffdz" : "a\ufffd\ufffdz") << name;
  }
}

TEST(HostilePattern, GivesUpInsteadOfHanging) {
  ASSERT_OK_AND_ASSIGN(const auto regex, Regex::compile("(x+x+)+y"));
  EXPECT_ERROR(regex.find_all(std::string(100'000, 'x')), "(x+x+)+y", "too many steps");
  ASSERT_OK_AND_ASSIGN(const auto found, regex.find_all("xxy xxxy"));
  EXPECT_EQ(found.size(), 2u);
}

TEST(TokenizerFolder, NamesWhatIsMissing) {
  TempDir folder;
  EXPECT_ERROR(Tokenizer::load(folder.path()), "tokenizer.json", "tokenizer.model");
  EXPECT_ERROR(Tokenizer::load(folder / "none.json"), "none.json");
}

// Llama and Gemma start texts with BOS, and their config may say otherwise.
TEST(TokenizerFolder, ConfigDecidesAboutBosOfSentencePiece) {
  TempDir folder;
  write_file(folder / "tokenizer.model", read_file(data_path("tokenizers/spm_llama/tokenizer.model")));
  const auto ids_of = [&](const std::string& config) {
    write_file(folder / "tokenizer_config.json", config);
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_TRUE(tokenizer.has_value());
    return tokenizer ? tokenizer->encode("a").value_or(std::vector<TokenId>()) : std::vector<TokenId>();
  };
  const std::vector<TokenId> plain = ids_of(R"({"add_bos_token":false})");
  ASSERT_FALSE(plain.empty());
  std::vector<TokenId> wrapped = plain;
  wrapped.insert(wrapped.begin(), 1);
  EXPECT_EQ(ids_of("{}"), wrapped);
  wrapped.push_back(2);
  EXPECT_EQ(ids_of(R"({"add_bos_token":true,"add_eos_token":true})"), wrapped);
}

TEST(TokenizerFolder, ConfigNamesTheRoles) {
  TempDir folder;
  write_file(folder / "tokenizer.json", with_model(R"("vocab":{"a":0,"<s>":1,"</s>":2})"));
  write_file(folder / "tokenizer_config.json",
             R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","pad_token":null,"add_bos_token":true})");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::load(folder.path()));
  EXPECT_EQ(tokenizer.bos().text, "<s>");
  EXPECT_EQ(tokenizer.eos().id, 2);
  EXPECT_FALSE(tokenizer.pad().id.has_value());
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.encode("a</s>").value(), (std::vector<TokenId>{1, 0, 2}));
  EXPECT_EQ(tokenizer.encode("a</s>", {.add_special = false, .parse_special = false}).value(),
            (std::vector<TokenId>{0}));
}

}  // namespace
}  // namespace doppler::tokenizer
