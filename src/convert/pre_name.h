// The name of a tokenizer's pre-tokenizer in GGUF files, found by comparing its patterns.
#pragma once

#include "base/result.h"
#include "tokenizer/gguf_pre_tokenizers.h"
#include "tokenizer/spec.h"

namespace doppler::convert {

// The row of gguf_pre_tokenizers.h whose steps a byte-level tokenizer has. If several names stand for the
// same steps, the best known one is taken. A row that differs only in normalising (NFC) is accepted: see
// `nfc` of the row. Errors: kUnsupported, naming the step or pattern that no name stands for.
Result<const tokenizer::GgufPreTokenizer*> name_pre_tokenizer(const tokenizer::TokenizerSpec& spec);

// True if the tokenizer normalises its text to NFC and does nothing else to it.
bool normalises_to_nfc(const tokenizer::TokenizerSpec& spec);

}  // namespace doppler::convert
