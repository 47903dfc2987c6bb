// SentencePiece's changes to a text before its model sees it, and to the pieces on the way back.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/decoder.h"
#include "tokenizer/spec.h"
#include "tokenizer/trie.h"

namespace doppler::tokenizer {

class SentencePieceNormalizer {
 public:
  SentencePieceNormalizer() = default;
  // Errors: a charsmap that contradicts itself.
  static Result<SentencePieceNormalizer> create(const TokenizerSpec& spec);

  // Maps characters by the charsmap, folds spaces, marks them as U+2581 and adds the dummy prefix, as the
  // spec's rules say. Invalid bytes become U+FFFD each. Errors: kLimit when a hostile charsmap inflates the
  // text.
  Result<std::string> apply(std::string_view text, bool add_prefix) const;

 private:
  struct Mapped {
    std::size_t length = 0;
    std::string_view text;
  };
  Mapped map_prefix(std::string_view text) const;

  SentencePieceRules rules_;
  Charsmap charsmap_;
  Trie user_defined_;
};

// Pieces to text as SentencePieceProcessor::Decode does it: U+2581 are spaces, the dummy prefix goes, runs of
// byte pieces are text, control pieces are nothing.
class SentencePieceDecoder {
 public:
  SentencePieceDecoder(const TokenizerSpec& spec, DecodeStage& next) : spec_(spec), next_(next) {}
  Status push(TokenId id, std::string_view piece);
  // Text of its own, such as an added token that the model does not know.
  Status push_text(std::string_view text);
  Status finish();

 private:
  Status put(std::string_view text);
  Status end_bytes();

  const TokenizerSpec& spec_;
  DecodeStage& next_;
  LossyUtf8 bytes_{LossyUtf8::Replace::kByte};
  bool at_start_ = true;  // a leading U+2581 is the dummy prefix
  bool prefix_seen_ = false;
  bool any_text_ = false;
};

}  // namespace doppler::tokenizer
