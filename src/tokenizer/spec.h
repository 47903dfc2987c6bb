// TokenizerSpec: the content of a tokenizer file as plain data. tokenizer.json, tokenizer.model and GGUF
// metadata all end in this one description. Names and meanings follow Hugging Face `tokenizers` and
// SentencePiece.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/unicode.h"
#include "tokenizer/vocabulary.h"

namespace doppler::tokenizer {

// SentencePiece writes it where a space was: U+2581.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// A string to find, or a regular expression in Oniguruma's Ruby syntax.
struct Pattern {
  std::string text;
  bool is_regex = false;
};

// ---- Normalizers: text to text, in order.
namespace normalizers {
struct Form {
  UnicodeForm form = UnicodeForm::kNfc;
};
struct Lowercase {};
struct StripAccents {};
struct Nmt {};
struct ByteLevel {};
struct Replace {
  Pattern pattern;
  std::string content;
};
struct Prepend {
  std::string content;
};
struct Strip {
  bool left = true, right = true;
};
struct Precompiled {
  std::string charsmap;  // SentencePiece's precompiled_charsmap, see charsmap.h
};
struct Bert {
  bool clean_text = true, chinese_chars = true, strip_accents = true, lowercase = true;
};
}  // namespace normalizers
using NormalizerStep =
    std::variant<normalizers::Form, normalizers::Lowercase, normalizers::StripAccents, normalizers::Nmt,
                 normalizers::ByteLevel, normalizers::Replace, normalizers::Prepend, normalizers::Strip,
                 normalizers::Precompiled, normalizers::Bert>;

// ---- Pre-tokenizers: cut the normalised text into pieces that the model sees one by one.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

namespace pre_tokenizers {
struct Split {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct ByteLevel {
  bool add_prefix_space = true, use_regex = true;
};
struct Metaspace {
  std::string replacement = "\xe2\x96\x81";  // U+2581
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};
struct Whitespace {};
struct WhitespaceSplit {};
struct Digits {
  bool individual = false;
};
struct Punctuation {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct Bert {};
struct CharDelimiter {
  char32_t delimiter = U' ';
};
}  // namespace pre_tokenizers
using PreTokenizerStep =
    std::variant<pre_tokenizers::Split, pre_tokenizers::ByteLevel, pre_tokenizers::Metaspace,
                 pre_tokenizers::Whitespace, pre_tokenizers::WhitespaceSplit, pre_tokenizers::Digits,
                 pre_tokenizers::Punctuation, pre_tokenizers::Bert, pre_tokenizers::CharDelimiter>;

// ---- Post-processors: the tokens put around a single sequence; nullopt stands for the sequence itself.
using TemplateItem = std::optional<TokenId>;
using PostProcessorStep = std::vector<TemplateItem>;

// ---- Decoders: pieces to text, in order. Each sees a list of strings and hands on a list.
namespace decoders {
struct ByteLevel {};
struct ByteFallback {};
struct Fuse {};
struct Replace {
  Pattern pattern;
  std::string content;
};
struct Strip {
  char32_t content = U' ';
  std::size_t start = 0, stop = 0;
};
struct Metaspace {
  std::string replacement = "\xe2\x96\x81";
  bool strip_first = true;  // of the first piece (prepend_scheme is not "never")
};
struct WordPiece {
  std::string prefix = "##";
  bool cleanup = true;
};
struct Bpe {
  std::string suffix = "</w>";
};
}  // namespace decoders
using DecoderStep =
    std::variant<decoders::ByteLevel, decoders::ByteFallback, decoders::Fuse, decoders::Replace,
                 decoders::Strip, decoders::Metaspace, decoders::WordPiece, decoders::Bpe>;

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // found in the normalised text instead of the text as given
  bool special = false;      // left out by decode(skip_special)
};

enum class ModelKind {
  kBpe,                   // merges by rank
  kUnigram,               // best sum of scores, as tokenizers computes it
  kWordLevel,             // whole pieces
  kWordPiece,             // longest match first
  kSentencePieceBpe,      // merges by the score of the merged piece
  kSentencePieceUnigram,  // best sum of scores, with SentencePiece's float arithmetic
};

// SentencePiece's types, as model files and GGUF store them.
enum class PieceType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Merge {
  TokenId left = 0, right = 0, result = 0;
};

// SentencePiece's normaliser and surface rules; only for the two SentencePiece kinds.
struct SentencePieceRules {
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  std::string charsmap, denormalizer_charsmap;  // precompiled, see charsmap.h; empty: identity
  std::string unknown_surface = " \xe2\x81\x87 ";
  // A piece of text behind an added token gets the dummy prefix too, as old Llama tokenizers do.
  bool prefix_after_special = true;
};

// A special token's role: its id if it is in the vocabulary, and its text, which chat templates name.
struct SpecialToken {
  std::optional<TokenId> id;
  std::string text;
};

struct TokenizerSpec {
  ModelKind kind = ModelKind::kBpe;
  Vocabulary vocabulary;             // the pieces that the model knows
  Vocabulary extra;                  // added tokens that the model does not know, with their own ids
  std::vector<Merge> merges;         // kBpe, by rank
  std::vector<double> scores;        // by id; unigram and SentencePiece kinds
  std::vector<PieceType> types;      // by id; SentencePiece kinds
  std::optional<TokenId> unknown;    // the token for text that the vocabulary lacks
  bool fuse_unknown = false;         // one for a run of such text
  bool byte_fallback = false;        // its bytes as <0xNN> before that
  bool ignore_merges = false;        // a pre-token that is a piece is taken whole
  std::string subword_prefix;        // continuing_subword_prefix
  std::string word_suffix;           // end_of_word_suffix
  std::size_t max_word_chars = 100;  // kWordPiece

  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<PostProcessorStep> post_processor;
  std::optional<std::vector<DecoderStep>> decoder;  // absent: pieces joined by spaces
  SentencePieceRules sentencepiece;

  SpecialToken bos, eos, unk, pad;
};

}  // namespace doppler::tokenizer
