// The pre-tokenizers that tokenizer.ggml.pre names: GGUF files hold such a name instead of the patterns.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace doppler::tokenizer {

// Whether the models' own tokenizers normalise to NFC, which GGUF does not store, and where that was seen.
// Empty: nowhere; then the text is left as it is.
struct SeenForm {
  bool nfc = false;
  std::string_view where = {};
};

struct GgufPreTokenizer {
  std::string_view name;
  // Applied one after the other, each within the pieces of those before it; every match and every gap between
  // matches is a piece. Empty ones count as absent.
  std::array<std::string_view, 6> patterns;
  bool ignore_merges = false;  // a pre-token that is in the vocabulary is taken whole
  bool add_bos = false;        // where the file has no add_bos_token
  SeenForm form = {};
};

// One row per name, sorted.
std::span<const GgufPreTokenizer> gguf_pre_tokenizers();

// Errors: kUnsupported for a name that the table lacks; the message lists those it has.
Result<const GgufPreTokenizer*> find_gguf_pre_tokenizer(std::string_view name);

}  // namespace doppler::tokenizer
