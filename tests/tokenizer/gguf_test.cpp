// Tokenizers of GGUF files: what the published fixtures leave out, and vocabularies that contradict
// themselves.
#include "formats/gguf.h"
#include "base/json.h"
#include "formats/gguf_stop_tokens.h"
#include "formats/gguf_writer.h"
#include "testing.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gguf_pre_tokenizers.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace doppler::tokenizer {
namespace {

using Strings = std::vector<std::string>;
using testing::TempDir;

// tokenizer.ggml.* of a file; a list that is empty is left out.
struct Vocab {
  std::string kind = "llama", pre, architecture = "llama";
  Strings tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::vector<std::pair<std::string, std::uint32_t>> ids;  // bos, eos, …
  std::vector<std::pair<std::string, bool>> flags;
  bool empty_merges = true;  // BPE kinds must have the list
};

// <unk> <s> </s>, the byte tokens, then `more` as normal tokens with falling scores.
Vocab sentencepiece(const Strings& more) {
  Vocab vocab;
  vocab.tokens = {"<unk>", "<s>", "</s>"};
  vocab.types = {2, 3, 3};
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocab.tokens.push_back(piece_of_byte(static_cast<unsigned char>(byte)));
    vocab.types.push_back(6);
  }
  for (const std::string& piece : more) vocab.tokens.push_back(piece), vocab.types.push_back(1);
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i) vocab.scores.push_back(-static_cast<float>(i));
  return vocab;
}

// The byte alphabet, then `more`, merged by `merges`.
Vocab byte_level(const std::string& pre, const Strings& more = {}, const Strings& merges = {}) {
  Vocab vocab;
  vocab.kind = "gpt2", vocab.pre = pre, vocab.merges = merges;
  for (unsigned byte = 0; byte < 256; ++byte)
    vocab.tokens.push_back(to_byte_level(std::string(1, static_cast<char>(byte))));
  for (const std::string& piece : more) vocab.tokens.push_back(piece);
  vocab.types.assign(vocab.tokens.size(), 1);
  return vocab;
}

std::string key(std::string_view name) {
  return "tokenizer.ggml." + std::string(name);
}

Result<GgufFile> write(const Vocab& vocab, const std::filesystem::path& path) {
  DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create(path));
  DOPPLER_TRY(writer.add<std::string_view>("general.architecture", vocab.architecture));
  DOPPLER_TRY(writer.add<std::string_view>(key("model"), vocab.kind));
  if (!vocab.pre.empty()) DOPPLER_TRY(writer.add<std::string_view>(key("pre"), vocab.pre));
  if (!vocab.tokens.empty())
    DOPPLER_TRY(writer.add_strings(key("tokens"), std::span<const std::string>(vocab.tokens)));
  if (!vocab.types.empty()) DOPPLER_TRY(writer.add_array<std::int32_t>(key("token_type"), vocab.types));
  if (!vocab.scores.empty()) DOPPLER_TRY(writer.add_array<float>(key("scores"), vocab.scores));
  const bool bpe = vocab.kind != "llama" && vocab.kind != "t5";
  if (!vocab.merges.empty() || (bpe && vocab.empty_merges))
    DOPPLER_TRY(writer.add_strings(key("merges"), std::span<const std::string>(vocab.merges)));
  for (const auto& [name, id] : vocab.ids)
    DOPPLER_TRY(writer.add<std::uint32_t>(key(name + "_token_id"), id));
  for (const auto& [name, flag] : vocab.flags) DOPPLER_TRY(writer.add<bool>(key(name), flag));
  DOPPLER_TRY(writer.write_header());
  DOPPLER_TRY(writer.finish());
  return open_gguf(path);
}

Result<Tokenizer> load(const Vocab& vocab) {
  const TempDir dir;
  DOPPLER_ASSIGN(const GgufFile file, write(vocab, dir / "vocab.gguf"));
  DOPPLER_ASSIGN(auto tokenizer, load_gguf_tokenizer(file.metadata, "The file x.gguf"));
  if (!tokenizer) return fail(ErrorCode::kNotFound, "There is no tokenizer.");
  return std::move(*tokenizer);
}

// Of all tokens that end an answer, in the order of ids.
std::vector<TokenId> stop_ids(const Vocab& vocab) {
  const TempDir dir;
  const auto file = write(vocab, dir / "vocab.gguf");
  EXPECT_TRUE(file.has_value());
  std::vector<TokenId> ids;
  const auto tokens = gguf_stop_tokens(file->metadata);
  EXPECT_TRUE(tokens.has_value());
  for (const GgufStopToken& token : *tokens) ids.push_back(static_cast<TokenId>(token.id));
  std::ranges::sort(ids);
  return ids;
}

Strings pieces_of(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  Strings pieces;
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.has_value()) << ids.error().message;
  for (const TokenId id : ids.value_or(std::vector<TokenId>())) pieces.push_back(*tokenizer.piece(id));
  return pieces;
}

TEST(GgufTokenizer, IsAbsentWhereTheFileSaysNone) {
  for (const char* kind : {"none", "no_vocab"}) {
    EXPECT_ERROR(load({.kind = kind}), "There is no tokenizer.");
  }
  EXPECT_ERROR(load({.kind = "rwkv"}), "x.gguf", "kind rwkv", "gpt2, llama, t5");
}

TEST(GgufTokenizer, RefusesListsThatContradictEachOther) {
  Vocab vocab = sentencepiece({"a"});
  vocab.scores.pop_back();
  EXPECT_ERROR(load(vocab), "260 tokens but 259 values in tokenizer.ggml.scores");
  vocab = sentencepiece({"a"});
  vocab.types.push_back(1);
  EXPECT_ERROR(load(vocab), "260 tokens but 261 values in tokenizer.ggml.token_type");
  vocab.types.back() = vocab.types[259] = 7;
  vocab.types.pop_back();
  EXPECT_ERROR(load(vocab), "the token 259 (a) the type 7");
  vocab = sentencepiece({"a"});
  vocab.types.clear();
  EXPECT_ERROR(load(vocab), "without tokenizer.ggml.token_type");
  vocab = sentencepiece({"a", "b", "a"});
  EXPECT_ERROR(load(vocab), "the token a twice, with the ids 259 and 261");
  vocab.tokens.clear();
  EXPECT_ERROR(load(vocab), "no tokenizer.ggml.tokens");
}

TEST(GgufTokenizer, RefusesBytesThatAreNotAllThere) {
  Vocab vocab = sentencepiece({"a"});
  vocab.tokens[3 + 0x41] = "<0x4g>";
  EXPECT_ERROR(load(vocab), "(<0x4g>) the type of a byte");
  vocab.types[3 + 0x41] = 1;
  EXPECT_ERROR(load(vocab), "255 byte tokens but none named <0x41>");
}

TEST(GgufTokenizer, RefusesSentencePieceWithoutAnUnknownToken) {
  Vocab vocab = sentencepiece({"a"});
  vocab.tokens[0] = "<pad>", vocab.types[0] = 3;
  EXPECT_ERROR(load(vocab), "no unknown token");
  vocab.ids = {{"unknown", 0}};
  EXPECT_TRUE(load(vocab).has_value());
  vocab.types[0] = vocab.types[1] = 2;
  EXPECT_TRUE(load(vocab).has_value());
  vocab.ids.clear();
  EXPECT_ERROR(load(vocab), "two unknown tokens, 0 and 1");
}

// Phi 3's published files: <unk> is a control token, and the fillers behind the last token are typed unknown.
TEST(GgufTokenizer, FillersThatAreTypedUnknownAreNotUsed) {
  for (const bool says_id : {true, false}) {
    Vocab vocab = sentencepiece({"a", "[PAD260]", "[PAD261]"});
    vocab.tokens[0] = "<unk>", vocab.types[0] = 3;
    vocab.types[260] = vocab.types[261] = 2;
    if (says_id) vocab.ids = {{"unknown", 0}};
    ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(vocab));
    ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> ids, tokenizer.encode("[PAD260] a"));
    for (const TokenId id : ids) EXPECT_LT(id, 260);
  }
}

// From each family's own tokenizer: transformers' Qwen2Tokenizer and Qwen3_5Tokenizer compose, the
// tokenizer.json of GPT-2, Llama 3, DeepSeek V3 and gpt-oss (o200k) have no normalizer.
TEST(GgufTokenizer, ComposesWhereTheFamilysTokenizerDoes) {
  const auto ids = [](const char* pre, const char* text) {
    const auto tokenizer = load(byte_level(pre, {"Ã©"}, {"Ã ©"}));
    EXPECT_TRUE(tokenizer.has_value()) << pre;
    return tokenizer ? tokenizer->encode(text, {.add_special = false}).value_or(std::vector<TokenId>())
                     : std::vector<TokenId>();
  };
  const char *composed = "\xc3\xa9", *decomposed = "e\xcc\x81";
  for (const char* pre : {"qwen2", "qwen35"}) {
    EXPECT_EQ(ids(pre, composed), std::vector<TokenId>{256}) << pre;
    EXPECT_EQ(ids(pre, decomposed), std::vector<TokenId>{256}) << pre;
  }
  for (const char* pre : {"gpt-2", "llama-bpe", "deepseek-v3", "gpt-4o"}) {
    EXPECT_EQ(ids(pre, composed), std::vector<TokenId>{256}) << pre;
    EXPECT_EQ(ids(pre, decomposed), (std::vector<TokenId>{'e', 0xcc, 0x81})) << pre;
  }
}

TEST(GgufTokenizer, RefusesIdsOutsideOfTheVocabulary) {
  for (const char* role : {"bos", "eos", "unknown", "padding"}) {
    Vocab vocab = sentencepiece({"a"});
    vocab.ids = {{role, 260}};
    EXPECT_ERROR(load(vocab), role, "= 260 but has 260 tokens");
    vocab.ids = {{role, UINT32_MAX}};  // none
    EXPECT_TRUE(load(vocab).has_value());
  }
}

TEST(GgufTokenizer, RefusesMergesOfUnknownPieces) {
  EXPECT_ERROR(load(byte_level("gpt-2", {"ab"}, {"a b", "ab c"})), "merge 1 (ab c) but no token abc");
  EXPECT_ERROR(load(byte_level("gpt-2", {"ab"}, {"a bb"})), "merge 0 (a bb) but no token bb");
  EXPECT_ERROR(load(byte_level("gpt-2", {"ab"}, {"ab"})), "merge 0 (ab), which is not two pieces");
  EXPECT_ERROR(load(byte_level("gpt-2", {"ab"}, {"a "})), "which is not two pieces");
  EXPECT_ERROR(load(byte_level("gpt-2", {"ab"}, {""})), "which is not two pieces");
  Vocab none = byte_level("gpt-2");
  none.empty_merges = false;
  EXPECT_ERROR(load(none), "without tokenizer.ggml.merges");
}

TEST(GgufTokenizer, RefusesListsOfOtherTypes) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(dir / "x.gguf"));
  ASSERT_OK(writer.add<std::string_view>(key("model"), "llama"));
  ASSERT_OK(writer.add_array<float>(key("tokens"), std::vector<float>{1, 2}));
  ASSERT_OK(writer.write_header());
  ASSERT_OK(writer.finish());
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(dir / "x.gguf"));
  EXPECT_ERROR(load_gguf_tokenizer(file.metadata, "The file"), "tokenizer.ggml.tokens", "string");
}

TEST(GgufTokenizer, NamesThePreTokenizersItKnows) {
  EXPECT_ERROR(load(byte_level("gpt-9")), "tokenizer.ggml.pre = gpt-9", "llama-bpe", "qwen2", "tekken");
}

TEST(GgufTokenizer, LeavesEmptyTokensAsGaps) {
  Vocab vocab = sentencepiece({"a", "", ""});
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(vocab));
  EXPECT_EQ(tokenizer.vocab_size(), 260u);
  ASSERT_OK_AND_ASSIGN(const Tokenizer bpe, load(byte_level("gpt-2", {"", "", "ab"}, {"a b"})));
  EXPECT_EQ(pieces_of(bpe, "ab"), Strings{"ab"});
}

TEST(GgufTokenizer, AddsBosWhereTheFileOrItsKindSaysSo) {
  Vocab vocab = byte_level("llama-bpe", {"<B>", "<E>"});
  vocab.ids = {{"bos", 256}, {"eos", 257}};
  ASSERT_OK_AND_ASSIGN(const Tokenizer usual, load(vocab));
  EXPECT_EQ(pieces_of(usual, "a"), (Strings{"<B>", "a"}));
  EXPECT_EQ(usual.bos().text, "<B>");
  vocab.flags = {{"add_bos_token", false}, {"add_eos_token", true}};
  ASSERT_OK_AND_ASSIGN(const Tokenizer ends, load(vocab));
  EXPECT_EQ(pieces_of(ends, "a"), (Strings{"a", "<E>"}));
  vocab.ids.clear();
  ASSERT_OK_AND_ASSIGN(const Tokenizer without, load(vocab));
  EXPECT_EQ(pieces_of(without, "a"), Strings{"a"});
}

TEST(GgufTokenizer, TakesSpecialTokensFromTextOnlyWhenAsked) {
  Vocab vocab = byte_level("gpt-2", {"<end>", "<tool>"});
  vocab.types[256] = 3, vocab.types[257] = 4;
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(vocab));
  EXPECT_EQ(pieces_of(tokenizer, "a<end><tool>"), (Strings{"a", "<end>", "<tool>"}));
  EXPECT_EQ(pieces_of(tokenizer, "<end><tool>", {.parse_special = false}),
            (Strings{"<", "e", "n", "d", ">", "<tool>"}));
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_FALSE(tokenizer.is_special(257));
}

TEST(GgufTokenizer, DecodesTheMarkupOfChatsAsText) {
  Vocab vocab = sentencepiece({"<turn>", "\xe2\x96\x81", "a"});
  vocab.types[259] = 3;
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(vocab));
  ASSERT_OK_AND_ASSIGN(const auto ids, tokenizer.encode("<turn>a"));
  EXPECT_EQ(ids.front(), 1);
  ASSERT_OK_AND_ASSIGN(const std::string text, tokenizer.decode(ids));
  EXPECT_EQ(text, "<turn> a");  // the prefix of what follows a special token is a space
  ASSERT_OK_AND_ASSIGN(const std::string plain, tokenizer.decode(ids, /*skip_special=*/true));
  EXPECT_EQ(plain, "a");
}

TEST(GgufTokenizer, MarksTheSpacesOfUserDefinedPieces) {
  Vocab vocab = sentencepiece({"  ", "a", "\xe2\x96\x81"});
  vocab.types[259] = 4;
  vocab.flags = {{"add_space_prefix", false}};
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(vocab));
  EXPECT_EQ(pieces_of(tokenizer, "a  a", {.add_special = false}),
            (Strings{"a", "\xe2\x96\x81\xe2\x96\x81", "a"}));
}

TEST(GgufTokenizer, StripsWhiteSpaceBehindPhi3sTokens) {
  Vocab vocab = sentencepiece({"<|user|>", "<|endoftext|>", "a", "\xe2\x96\x81",
                               "\xe2\x96\x81"
                               "a"});
  vocab.types[259] = vocab.types[260] = 3;
  ASSERT_OK_AND_ASSIGN(const Tokenizer llama, load(vocab));
  EXPECT_EQ(pieces_of(llama, "<|user|>\na", {.add_special = false}),
            (Strings{"<|user|>", "\xe2\x96\x81", "<0x0A>", "a"}));
  vocab.architecture = "phi3";
  ASSERT_OK_AND_ASSIGN(const Tokenizer phi3, load(vocab));
  EXPECT_EQ(pieces_of(phi3, "<|user|>\na", {.add_special = false}), (Strings{"<|user|>",
                                                                             "\xe2\x96\x81"
                                                                             "a"}));
  EXPECT_EQ(pieces_of(phi3, "<|endoftext|>\na", {.add_special = false}),
            (Strings{"<|endoftext|>", "\xe2\x96\x81", "<0x0A>", "a"}));
}

TEST(GgufTokenizer, KnowsWhatEndsAnAnswer) {
  Vocab vocab = byte_level("gpt-4o", {"<|end|>", "<|endoftext|>", "<turn-over>"});
  vocab.types[256] = vocab.types[257] = vocab.types[258] = 3;
  vocab.ids = {{"eot", 258}};
  EXPECT_EQ(stop_ids(vocab), (std::vector<TokenId>{256, 257, 258}));
  vocab.tokens[257] = "<|return|>";  // in this format <|end|> only ends a message
  EXPECT_EQ(stop_ids(vocab), (std::vector<TokenId>{257, 258}));
  vocab.types[257] = 1;  // text that only looks like it
  EXPECT_EQ(stop_ids(vocab), std::vector<TokenId>{258});
}

TEST(GgufTokenizer, FallsBackToBytesInGemma4) {
  Vocab vocab = sentencepiece({"\xe2\x96\x81", "a", "aa", "\n", "\n\n"});
  vocab.kind = "gemma4", vocab.merges = {"a a", "\n \n"}, vocab.ids = {{"bos", 1}};
  vocab.flags = {{"add_bos_token", false}};
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(vocab));
  EXPECT_EQ(pieces_of(tokenizer, "aa \n\n\xc3\xa9"),
            (Strings{"aa", "\xe2\x96\x81", "\n\n", "<0xC3>", "<0xA9>"}));
}

// One text with a bit of everything, as each row of the table cuts it.
constexpr std::string_view kMixed =
    "I'LL pay  12345\xe2\x82\xac, \xc3\x84"
    "B\xc3\xa4h!?\n\n  x\xe4\xb8\xad\xe6\x96\x87";

Strings cut(const GgufPreTokenizer& row, std::string_view text) {
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view pattern : row.patterns) {
    if (!pattern.empty()) steps.emplace_back(pre_tokenizers::Split{{std::string(pattern), true}});
  }
  const auto pre_tokenizer = PreTokenizer::create(steps);
  EXPECT_TRUE(pre_tokenizer.has_value()) << row.name << ": " << pre_tokenizer.error().message;
  if (!pre_tokenizer) return {};
  Pieces pieces;
  pieces.text = text;
  pieces.ranges = {{0, text.size()}};
  EXPECT_TRUE(pre_tokenizer->apply(pieces).has_value()) << row.name;
  Strings out;
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) out.emplace_back(pieces[i]);
  return out;
}

TEST(GgufPreTokenizers, AllCompileAndLoseNothing) {
  for (const GgufPreTokenizer& row : gguf_pre_tokenizers()) {
    const Strings pieces = cut(row, kMixed);
    std::string joined;
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_EQ(joined, kMixed) << row.name;
    EXPECT_GT(pieces.size(), 2u) << row.name;
    ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(byte_level(std::string(row.name))));
    ASSERT_OK_AND_ASSIGN(const auto ids, tokenizer.encode(kMixed));
    ASSERT_OK_AND_ASSIGN(const std::string text, tokenizer.decode(ids));
    EXPECT_EQ(text, kMixed) << row.name;
  }
}

TEST(GgufPreTokenizers, CutWhereTheirTokenizersDo) {
  const std::pair<const char*, Strings> expected[] = {
      {"gpt-2", {"I", "'", "LL", " pay", " ", " 12345", "€,", " ÄBäh", "!?", "\n\n ", " x中文"}},
      {"llama-bpe", {"I", "'LL", " pay", " ", " ", "123", "45", "€,", " ÄBäh", "!?\n\n", " ", " x中文"}},
      {"qwen2",
       {"I", "'LL", " pay", " ", " ", "1", "2", "3", "4", "5", "€,", " ÄBäh", "!?\n\n", " ", " x中文"}},
      {"starcoder",
       {"I", "'", "LL", " pay", "  ", "1", "2", "3", "4", "5", "€,", " ÄBäh", "!?", "\n\n ", " x中文"}},
      {"falcon", {"I", "'", "LL", " pay", " ", " ", "123", "45", "€", ",", " ÄBäh", "!?", "\n\n ", " x中文"}},
      // Its marks, ":-~", hold the ASCII letters too, so other letters are cut from those.
      {"deepseek-llm",
       {"I", "'", "LL", " pay", "  ", "12345", "€", ",", " Ä", "B", "ä", "h", "!?", "\n", "\n", " ", " x",
        "中文"}},
      {"deepseek-v3", {"I", "'LL", " pay", "  ", "123", "45", "€,", " ÄBäh", "!?\n\n", " ", " x", "中文"}},
      {"tekken",
       {"I", "'LL", " pay", " ", " ", "1", "2", "3", "4", "5", "€,", " ÄBäh", "!?\n\n", " ", " x中文"}},
      {"bloom", {"I'LL", " pay", " ", " 12345€", ",", " ÄBäh", "!?\n\n ", " x中文"}},
      {"superbpe", {"I'LL pay  ", "12", "345", "€, ÄBäh!?\n\n  x中文"}},
  };
  for (const auto& [name, pieces] : expected) {
    ASSERT_OK_AND_ASSIGN(const GgufPreTokenizer* row, find_gguf_pre_tokenizer(name));
    EXPECT_EQ(cut(*row, kMixed), pieces) << name;
  }
}

// An é of two code points stays two where its tokenizer was not seen to compose it.
TEST(GgufPreTokenizers, ComposeOnlyWhereTheirTokenizersWereSeenTo) {
  const std::string decomposed = "e\xcc\x81", composed = "\xc3\xa9";
  for (const GgufPreTokenizer& row : gguf_pre_tokenizers()) {
    EXPECT_TRUE(!row.form.nfc || !row.form.where.empty()) << row.name;
    ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer, load(byte_level(std::string(row.name))));
    ASSERT_OK_AND_ASSIGN(const auto ids, tokenizer.encode(decomposed));
    ASSERT_OK_AND_ASSIGN(const std::string text, tokenizer.decode(ids));
    EXPECT_EQ(text, row.form.nfc ? composed : decomposed) << row.name << ": " << row.form.where;
  }
  ASSERT_OK_AND_ASSIGN(const GgufPreTokenizer* hunyuan, find_gguf_pre_tokenizer("hunyuan"));
  EXPECT_TRUE(hunyuan->form.nfc);  // seen in its code, where its pattern says nothing
}

}  // namespace
}  // namespace doppler::tokenizer
