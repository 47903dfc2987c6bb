// Tokenizer: text to token ids and back, as the model's own tokenizer files say.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

struct EncodeOptions {
  bool add_special = true;    // adds the tokens that the post-processor puts around a text: BOS, EOS
  bool parse_special = true;  // special tokens written in the text are those tokens, not text
};

// Immutable and cheap to copy; all members may be called from several threads.
class Tokenizer {
 public:
  // A folder (tokenizer.json, else tokenizer.model; tokenizer_config.json and special_tokens_map.json refine
  // either) or one of the two files with its folder. Errors: kNotFound, kIo, and those of the readers.
  static Result<Tokenizer> load(const std::filesystem::path& folder_or_file);
  // `what` names the source in messages.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view what);
  static Result<Tokenizer> from_sentencepiece(std::span<const std::byte> model, std::string_view what);
  // Any other source, such as GGUF metadata. Errors: kCorrupt where the parts contradict each other, and
  // patterns.
  static Result<Tokenizer> from_spec(TokenizerSpec spec);

  // Invalid UTF-8 in `text` reads as U+FFFD, one per maximal invalid part, as Python's errors="replace" has
  // it (SentencePiece kinds: one per byte, as that library does). Errors: kLimit (a text beyond 1 GiB, a
  // pattern that backtracks too much), kCorrupt (no unknown token, but needed).
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // With skip_special, special tokens are left out. An id in a gap of the vocabulary decodes to no text.
  // Errors: kMismatch for ids outside of [0, vocab_size()).
  Result<std::string> decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The largest id + 1.
  std::size_t vocab_size() const;
  // The vocabulary's spelling of a token. Errors: kMismatch for ids out of range and in gaps.
  Result<std::string> piece(TokenId id) const;
  std::optional<TokenId> find(std::string_view piece) const;
  // Left out by decode(skip_special): special added tokens; control and unknown pieces of SentencePiece.
  bool is_special(TokenId id) const;

  // The roles that tokenizer_config.json, special_tokens_map.json or the SentencePiece model give; chat
  // templates name their texts.
  const SpecialToken& bos() const;
  const SpecialToken& eos() const;
  const SpecialToken& unk() const;
  const SpecialToken& pad() const;

  const TokenizerSpec& spec() const;

  struct Parts;  // internal

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// Decodes ids as they come. What push() returns is final: never half a character, and all returned texts
// together are what decode() of all ids gives.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // The text that has become certain. Errors: those of decode().
  Result<std::string> push(TokenId id);
  // The rest, once no more ids come.
  Result<std::string> flush();

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace doppler::tokenizer
