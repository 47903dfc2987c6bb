// The tokens that end an answer, according to GGUF metadata: for the description of the model and for its
// tokenizer, so that both agree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf_metadata.h"

namespace doppler {

struct GgufStopToken {
  std::uint64_t id;
  std::string source;  // "tokenizer.ggml.eot_token_id", "text <|im_end|>"
};

// The tokens that the keys name (end of text, of turn, of message), then the control and user-defined tokens
// whose text ends an answer in published chat models: files name only some of them by key. Each once. Errors:
// kCorrupt for keys of the wrong type.
Result<std::vector<GgufStopToken>> gguf_stop_tokens(const GgufMetadata& metadata);

// The id that llama.cpp takes for a SentencePiece vocabulary (tokenizer.ggml.model = llama) without the key
// for BOS or EOS, if that is a control token; nothing in any other case.
std::optional<std::uint64_t> usual_gguf_token(const GgufMetadata& metadata, std::string_view key);

}  // namespace doppler
