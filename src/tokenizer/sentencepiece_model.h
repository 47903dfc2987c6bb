// tokenizer.model: SentencePiece's ModelProto (protobuf, sentencepiece_model.proto) into a TokenizerSpec.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// BPE and unigram models. `what` names the source in messages ("The file tokenizer.model").
// Errors: kCorrupt (truncated or malformed messages, pieces given twice, no unknown piece), kUnsupported
// (word and character models, a denormalizer), kLimit (too many pieces).
Result<TokenizerSpec> parse_sentencepiece_model(std::span<const std::byte> bytes, std::string_view what);

}  // namespace doppler::tokenizer
