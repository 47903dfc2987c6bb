// The tokenizer that GGUF metadata holds (tokenizer.ggml.*), as llama.cpp's converter writes it.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "formats/gguf_metadata.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace doppler::tokenizer {

// The spec, or nothing for a file without a tokenizer (tokenizer.ggml.model absent, "none" or "no_vocab").
// Kinds: "llama" (SentencePiece BPE), "t5" (SentencePiece unigram), "gpt2" (byte-level BPE with a
// pre-tokenizer of gguf_pre_tokenizers.h), "gemma4" (BPE over characters with byte fallback).
//
// Properties that GGUF does not store follow the models' own tokenizer files: NFC where the pre-tokenizer's
// table says so, white space behind Phi 3's special tokens, no clean-up of decoded text.
//
// `what` names the file in messages ("The file x.gguf"). Errors: kUnsupported (other kinds and
// pre-tokenizers), kCorrupt (lists of different lengths, pieces given twice, merges of unknown pieces, ids
// out of range, wrong types), kLimit.
Result<std::optional<TokenizerSpec>> read_gguf_tokenizer(const GgufMetadata& metadata, std::string_view what);

// Whether the file holds a tokenizer at all, of whatever kind.
bool has_gguf_tokenizer(const GgufMetadata& metadata);

// The same as read_gguf_tokenizer, ready to use.
Result<std::optional<Tokenizer>> load_gguf_tokenizer(const GgufMetadata& metadata, std::string_view what);

}  // namespace doppler::tokenizer
