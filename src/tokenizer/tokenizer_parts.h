// The parts of a Tokenizer; for tokenizer.cpp and stream_decoder.cpp.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/sentencepiece_text.h"
#include "tokenizer/tokenizer.h"

namespace doppler::tokenizer {

struct Tokenizer::Parts {
  TokenizerSpec spec;
  Normalizer normalizer;
  SentencePieceNormalizer sentencepiece;
  PreTokenizer pre_tokenizer;
  AddedTokens added;
  std::unique_ptr<Model> model;  // refers to spec
  DecodePlan decode_plan;
  std::vector<bool> special;   // by id
  std::vector<bool> is_added;  // by id

  // The text of an added token that is found in normalised text: its normalised spelling, as tokenizers 0.23
  // decodes it. Only where the two differ.
  std::unordered_map<TokenId, std::string> normalized_spellings;

  std::optional<std::string_view> decoded_piece(TokenId id) const {
    const auto it = normalized_spellings.find(id);
    return it != normalized_spellings.end() ? std::string_view(it->second) : piece(id);
  }
  std::optional<std::string_view> piece(TokenId id) const {
    const auto own = spec.vocabulary.piece(id);
    return own ? own : spec.extra.piece(id);
  }
  std::size_t vocab_size() const { return std::max(spec.vocabulary.size(), spec.extra.size()); }
  bool is_sentencepiece() const {
    return spec.kind == ModelKind::kSentencePieceBpe || spec.kind == ModelKind::kSentencePieceUnigram;
  }
  Status encode_text(std::string_view text, bool at_start, bool parse_special,
                     std::vector<TokenId>& out) const;
  Status encode_normalized(std::string text, bool at_start, std::vector<TokenId>& out) const;
};

// One run of decoding.
class DecodeRun {
 public:
  DecodeRun(const Tokenizer::Parts& parts, bool skip_special);
  Status push(TokenId id);
  Status finish();
  std::string take() { return sink_.take(); }

 private:
  const Tokenizer::Parts& parts_;
  bool skip_special_;
  TextSink sink_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
  DecodeStage* first_ = nullptr;
  std::optional<SentencePieceDecoder> sentencepiece_;
};

}  // namespace doppler::tokenizer
