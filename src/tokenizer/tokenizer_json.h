// tokenizer.json, as Hugging Face `tokenizers` writes it, into a TokenizerSpec.
#pragma once

#include <string_view>

#include "base/result.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// The largest published file has 35 MB.
inline constexpr std::uint64_t kMaxTokenizerJsonBytes = 256u << 20;

// `what` names the source in messages ("The file tokenizer.json").
// Errors: kCorrupt (not JSON, members of wrong types, ids or pieces given twice, merges of unknown pieces),
// kUnsupported (types of models or steps that Doppler lacks), kLimit (absurd ids, nesting, sizes).
Result<TokenizerSpec> parse_tokenizer_json(std::string_view text, std::string_view what);

}  // namespace doppler::tokenizer
