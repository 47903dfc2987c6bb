// What may be wrong with a tokenizer's description, one change each, to be tried until texts agree.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unicode.h"
#include "tokenizer/spec.h"

namespace doppler::diagnosis {

struct TextRepair {
  std::string cause, step;
  std::string when;    // "the text is put into NFC": texts agree when ...
  std::string repair;  // what to do
  std::function<void(tokenizer::TokenizerSpec& spec)> change;
  // Where the kind of tokenizer has no step for it: done to the text before.
  std::optional<UnicodeForm> before = std::nullopt;
};

// Changes of the text before it is cut; of how it is cut (`catalogue`: also every published pattern); of how
// pieces are joined; of how pieces become text.
std::vector<TextRepair> normalizer_repairs(const tokenizer::TokenizerSpec& spec, bool gguf);
std::vector<TextRepair> pre_tokenizer_repairs(const tokenizer::TokenizerSpec& spec, bool gguf,
                                              bool catalogue);
std::vector<TextRepair> model_repairs(const tokenizer::TokenizerSpec& spec);
std::vector<TextRepair> decoder_repairs(const tokenizer::TokenizerSpec& spec);
// Flags of one added token.
std::vector<TextRepair> flag_repairs(const tokenizer::TokenizerSpec& spec, TokenId id);

}  // namespace doppler::diagnosis
