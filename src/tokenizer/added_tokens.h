// AddedTokens: the tokens that are found in a text before anything else looks at it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/spec.h"
#include "tokenizer/trie.h"

namespace doppler::tokenizer {

// A stretch of text: an added token, or text between them.
struct Section {
  Range range;
  std::optional<TokenId> token;
};

class AddedTokens {
 public:
  // Tokens with normalized = true are looked for in normalised text, by their own normalised spelling.
  // Errors: those of the normalizer; kLimit for a token longer than kLongestPiece.
  static Result<AddedTokens> create(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);

  // Cuts `text` at the leftmost, longest tokens of one of the two kinds. Without `parse_special`, special
  // tokens are text like any other. Sections are in order; none is empty unless a token's content normalises
  // to nothing.
  std::vector<Section> split(std::string_view text, bool normalized, bool parse_special) const;

  bool has_normalized() const { return !normalized_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  Trie plain_, normalized_;  // values are indices into tokens_
};

}  // namespace doppler::tokenizer
