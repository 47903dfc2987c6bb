// Decoding: ids back to text, one at a time. Whole and streaming decoding are the same code, so they cannot
// disagree: a stage holds text back only while a later piece could still change it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/finder.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// Bytes to text as they come: never half a character, U+FFFD for what is invalid.
class LossyUtf8 {
 public:
  // kPart: one U+FFFD per maximal invalid part, as Unicode recommends. kByte: one per byte, as SentencePiece
  // does.
  enum class Replace { kPart, kByte };
  explicit LossyUtf8(Replace replace) : replace_(replace) {}

  // The text that is certain now; up to three bytes of an unfinished character stay behind.
  std::string push(std::string_view bytes);
  // The bytes that stayed behind, as invalid ones.
  std::string finish();

 private:
  std::string convert(std::string_view bytes) const;
  Replace replace_;
  std::string pending_;
};

// A stage of the chain. It receives items (strings) in parts, put() ... put() end_item(), and hands items on
// the same way; finish() says that no more come. Errors: kLimit when the text grows absurdly long; those of
// patterns.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual Status put(std::string_view part) = 0;
  virtual Status end_item() = 0;
  virtual Status finish() = 0;
};

// Where every chain ends: the text.
class TextSink : public DecodeStage {
 public:
  Status put(std::string_view part) override;
  Status end_item() override { return {}; }
  Status finish() override;
  // The text that has become certain since the last call.
  std::string take() { return std::exchange(text_, {}); }

 private:
  LossyUtf8 utf8_{LossyUtf8::Replace::kPart};  // pieces need not be valid UTF-8
  std::string text_;
  std::size_t total_ = 0;
};

// The decoder steps of a spec made ready: patterns compiled once.
class DecodePlan {
 public:
  // Errors: patterns that do not compile.
  static Result<DecodePlan> create(const TokenizerSpec& spec);

  // The stages of one run, first to last, ending in `sink`; plan and sink must outlive them.
  std::vector<std::unique_ptr<DecodeStage>> start(DecodeStage& sink) const;

 private:
  struct Replace {
    Finder finder;
    std::string content;
  };
  struct JoinBySpaces {};
  using Step =
      std::variant<decoders::ByteLevel, decoders::ByteFallback, decoders::Fuse, Replace, decoders::Strip,
                   decoders::Metaspace, decoders::WordPiece, decoders::Bpe, JoinBySpaces>;
  static std::unique_ptr<DecodeStage> make_stage(const Step& step, DecodeStage& next);

  std::vector<Step> steps_;
};

}  // namespace doppler::tokenizer
