// A tokenizer as GGUF metadata (tokenizer.ggml.*), as llama.cpp's converter writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/metadata.h"
#include "tokenizer/spec.h"

namespace doppler::convert {

// Vocabulary facts from the model's own files, beside the tokenizer's.
struct VocabularyFacts {
  std::uint64_t vocab_size = 0;  // rows of the embedding; 0: as many as the tokenizer has tokens
  std::optional<std::int32_t> bos_id, pad_id;
  std::vector<std::int32_t> eos_ids;  // the first becomes EOS if the tokenizer names none
};

struct GgufVocabulary {
  std::vector<MetadataEntry> entries;
  std::vector<std::string> warnings;  // facts that GGUF cannot express, full sentences
};

// Kinds: "llama" (SentencePiece BPE, and merges that say the same), "t5" (SentencePiece unigram), "gpt2"
// (byte-level BPE), "gemma4" (BPE over characters with byte fallback). Ids without a token become [PADn].
// Errors: kUnsupported for tokenizers that GGUF cannot express; the message names --no-tokenizer.
Result<GgufVocabulary> gguf_vocabulary(const tokenizer::TokenizerSpec& spec, const VocabularyFacts& facts);

// The tokenizer of a model folder: tokenizer.json; but if that is converted from a SentencePiece model that
// is also in the folder, that model, because GGUF needs its scores, with the tokens that only tokenizer.json
// adds. Nothing if the folder has no tokenizer. Errors: those of Tokenizer::load.
Result<std::optional<tokenizer::TokenizerSpec>> read_folder_tokenizer(const std::filesystem::path& folder);

}  // namespace doppler::convert
