#include "formats/gguf_stop_tokens.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace doppler {
namespace {

constexpr std::string_view kEosKey = "tokenizer.ggml.eos_token_id";
constexpr std::array<std::string_view, 3> kKeys = {kEosKey, "tokenizer.ggml.eot_token_id",
                                                   "tokenizer.ggml.eom_token_id"};

constexpr std::array<std::string_view, 13> kTexts = {
    "<|eot_id|>",           "<|eom_id|>", "<|im_end|>",    "<|end|>", "<|endoftext|>",      "<|end_of_text|>",
    "<|return|>",           "<|call|>",   "<end_of_turn>", "<turn|>", "<end_of_utterance>", "<EOT>",
    "<｜end▁of▁sentence｜>"};
// In the harmony format <|end|> ends a message, not the answer; <|return|> tells the format.
constexpr std::string_view kHarmonyReturn = "<|return|>", kMessageEnd = "<|end|>";

constexpr std::int64_t kControl = 3, kUserDefined = 4;  // tokenizer.ggml.token_type

// The list of types, or an empty one where none can be read; the tokenizer reports that.
std::vector<std::int64_t> token_types(const GgufMetadata& metadata) {
  const auto types = metadata.get_array("tokenizer.ggml.token_type");
  if (!types || !*types) return {};
  return (*types)->ints().value_or(std::vector<std::int64_t>());
}

// Files without such a token may say -1, as an unsigned number, too.
Result<std::optional<std::uint64_t>> read_id(const GgufMetadata& metadata, std::string_view key) {
  DOPPLER_ASSIGN(const auto id, metadata.get_int(key));
  if (!id || *id == -1 || *id == UINT32_MAX) return std::nullopt;
  return metadata.get_uint(key);
}

void add(std::vector<GgufStopToken>& tokens, std::uint64_t id, std::string source) {
  if (std::ranges::find(tokens, id, &GgufStopToken::id) == tokens.end())
    tokens.push_back({id, std::move(source)});
}

}  // namespace

std::optional<std::uint64_t> usual_gguf_token(const GgufMetadata& metadata, std::string_view key) {
  const std::uint64_t id = key == kEosKey ? 2 : key == "tokenizer.ggml.bos_token_id" ? 1 : 0;
  const auto kind = metadata.get_string("tokenizer.ggml.model");
  if (id == 0 || !kind || *kind != "llama" || metadata.has(key)) return std::nullopt;
  const std::vector<std::int64_t> types = token_types(metadata);
  if (id >= types.size() || types[id] != kControl) return std::nullopt;
  return id;
}

Result<std::vector<GgufStopToken>> gguf_stop_tokens(const GgufMetadata& metadata) {
  std::vector<GgufStopToken> tokens;
  for (const std::string_view key : kKeys) {
    DOPPLER_ASSIGN(const auto id, read_id(metadata, key));
    if (id) add(tokens, *id, std::string(key));
  }
  if (const auto usual = usual_gguf_token(metadata, kEosKey))
    add(tokens, *usual, fmt::format("no {}, so the usual {}", kEosKey, *usual));
  DOPPLER_ASSIGN(const auto list, metadata.get_array("tokenizer.ggml.tokens"));
  if (!list) return tokens;
  DOPPLER_ASSIGN(const auto texts, list->strings());
  const std::vector<std::int64_t> types = token_types(metadata);
  if (types.size() != texts.size()) return tokens;
  const bool harmony = std::ranges::find(texts, kHarmonyReturn) != texts.end();
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (types[id] != kControl && types[id] != kUserDefined) continue;
    if (std::ranges::find(kTexts, texts[id]) == kTexts.end() || (harmony && texts[id] == kMessageEnd))
      continue;
    add(tokens, id, fmt::format("text {}", texts[id]));
  }
  return tokens;
}

}  // namespace doppler
