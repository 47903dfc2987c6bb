// Model: the part of a tokenizer that turns pieces of text into ids.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// How much work encoding was, so that tests can tell linear from quadratic without a clock.
struct EncodeWork {
  std::uint64_t steps = 0;  // merges tried, nodes visited
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of all pieces (valid UTF-8). Safe to call from several threads.
  // Errors: kCorrupt when the text needs an unknown token and the vocabulary names none.
  virtual Status encode(const Pieces& pieces, std::vector<TokenId>& out, EncodeWork& work) const = 0;
};

// The model that `spec` describes; it keeps a reference to `spec`, which must outlive it.
// Errors: kCorrupt for scores, types or merges that contradict the vocabulary.
Result<std::unique_ptr<Model>> make_model(const TokenizerSpec& spec);

Result<std::unique_ptr<Model>> make_bpe(const TokenizerSpec& spec);
Result<std::unique_ptr<Model>> make_sentencepiece_bpe(const TokenizerSpec& spec);
Result<std::unique_ptr<Model>> make_unigram(const TokenizerSpec& spec);
Result<std::unique_ptr<Model>> make_word_model(const TokenizerSpec& spec);

// The ids of <0x00> to <0xFF>, and whether all are there.
struct ByteIds {
  explicit ByteIds(const Vocabulary& vocabulary);
  // Appends the ids of all `bytes`, or nothing if one is missing.
  bool append(std::string_view bytes, std::vector<TokenId>& out) const;
  TokenId ids[256];
};

// Pieces of unigram and SentencePiece vocabularies are looked up at every position of a text, so their length
// bounds the work per character. The longest published ones have some 100 bytes.
inline constexpr std::size_t kLongestPiece = 1024;
Status check_piece_lengths(const TokenizerSpec& spec);

// SentencePiece kinds need a score and a type for every id, and an unknown piece.
Status check_sentencepiece_tables(const TokenizerSpec& spec);

std::unexpected<Error> missing_unknown_token(std::string_view text);

}  // namespace doppler::tokenizer
