// The stages that decoders are made of; see decoder.h for what a stage is.
#pragma once

#include <string>
#include <string_view>

#include "base/unicode.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/decoder.h"

namespace doppler::tokenizer {

// kLimit beyond the longest text that decoding may give: a file may replace each character by a huge string.
Status check_text_length(std::size_t bytes);

class ChainedStage : public DecodeStage {
 public:
  explicit ChainedStage(DecodeStage& next) : next_(next) {}
  Status end_item() override { return next_.end_item(); }
  Status finish() override { return next_.finish(); }

 protected:
  Status send(std::string_view item) {
    DOPPLER_TRY(next_.put(item));
    return next_.end_item();
  }
  DecodeStage& next_;
};

// A stage that needs each item as a whole.
class WholeItemStage : public ChainedStage {
 public:
  using ChainedStage::ChainedStage;
  Status put(std::string_view part) final {
    DOPPLER_TRY(check_text_length(item_.size() + part.size()));
    return item_ += part, Status();
  }
  Status end_item() final { return take_item(std::exchange(item_, {})); }

 protected:
  virtual Status take_item(std::string&& item) = 0;

 private:
  std::string item_;
};

// All items' bytes as one item of text.
class ByteLevelStage : public WholeItemStage {
 public:
  using WholeItemStage::WholeItemStage;
  Status finish() override {
    DOPPLER_TRY(send(utf8_.finish()));
    return next_.finish();
  }

 protected:
  Status take_item(std::string&& item) override {
    std::string bytes;
    append_byte_level_decoded(bytes, item);
    return next_.put(utf8_.push(bytes));
  }

 private:
  LossyUtf8 utf8_{LossyUtf8::Replace::kPart};
};

// A run of <0xNN> becomes its text, or as many U+FFFD as it has bytes if it is not all valid; so a run is
// only certain at its end.
class ByteFallbackStage : public WholeItemStage {
 public:
  using WholeItemStage::WholeItemStage;
  Status finish() override {
    DOPPLER_TRY(end_run());
    return next_.finish();
  }

 protected:
  Status take_item(std::string&& item) override {
    if (const auto byte = byte_of_piece(item)) return run_.push_back(static_cast<char>(*byte)), Status();
    DOPPLER_TRY(end_run());
    return send(item);
  }

 private:
  Status end_run() {
    const std::string run = std::exchange(run_, {});
    if (run.empty()) return {};
    if (is_valid_utf8(run)) return send(run);
    for (std::size_t i = 0; i < run.size(); ++i) DOPPLER_TRY(send("\xef\xbf\xbd"));
    return {};
  }
  std::string run_;
};

class FuseStage : public ChainedStage {
 public:
  using ChainedStage::ChainedStage;
  Status put(std::string_view part) override { return next_.put(part); }
  Status end_item() override { return {}; }
  Status finish() override {
    DOPPLER_TRY(next_.end_item());
    return next_.finish();
  }
};

// Replaces within an item; of an item that comes in parts it holds back what could begin a match.
class ReplaceStage : public ChainedStage {
 public:
  ReplaceStage(DecodeStage& next, const Finder& finder, std::string_view content)
      : ChainedStage(next), finder_(finder), content_(content) {}

  Status put(std::string_view part) override {
    DOPPLER_TRY(check_text_length(item_.size() + part.size()));
    item_ += part;
    // A pattern can look anywhere, so it sees whole items; a string can only begin in the last bytes.
    return finder_.is_regex() ? Status() : replace(finder_.text().size() - 1);
  }
  Status end_item() override {
    DOPPLER_TRY(replace(0));
    return next_.end_item();
  }

 private:
  // Hands on all but the last `keep` bytes, and a few more where those begin inside a character.
  Status replace(std::size_t keep) {
    DOPPLER_ASSIGN(const std::vector<Range> matches, finder_.find_all(item_));
    const std::string_view item = item_;
    std::size_t done = 0;
    for (const Range match : matches) {
      DOPPLER_TRY(next_.put(item.substr(done, match.begin - done)));
      DOPPLER_TRY(next_.put(content_));
      done = match.end;
    }
    std::size_t end = std::max(done, item.size() - std::min(keep, item.size()));
    while (end > done && end < item.size() && is_utf8_continuation(item[end])) --end;
    DOPPLER_TRY(next_.put(item.substr(done, end - done)));
    item_.erase(0, end);
    return {};
  }

  const Finder& finder_;
  std::string_view content_;
  std::string item_;
};

// Removes up to `start` and `stop` times a character at the ends of each item.
class StripStage : public ChainedStage {
 public:
  StripStage(DecodeStage& next, const decoders::Strip& step) : ChainedStage(next), step_(step) {
    append_utf8(content_, step.content);
  }

  Status put(std::string_view part) override {
    std::string out;
    for (std::size_t i = 0; i < part.size();) {
      const CodePoint c = first_code_point(part.substr(i));
      const std::string_view character = part.substr(i, c.length);
      i += c.length;
      if (at_start_ && stripped_ < step_.start && c.value == step_.content) {
        ++stripped_;
        continue;
      }
      at_start_ = false;
      if (c.value == step_.content && held_ < step_.stop) {
        ++held_;  // may turn out to be the end
      } else if (c.value == step_.content) {
        out += character;  // one more than could be stripped: the first of them is certain
      } else {
        for (; held_ > 0; --held_) out += content_;
        out += character;
      }
    }
    return next_.put(out);
  }
  Status end_item() override {
    at_start_ = true;
    stripped_ = held_ = 0;
    return next_.end_item();
  }

 private:
  const decoders::Strip& step_;
  std::string content_;
  bool at_start_ = true;
  std::size_t stripped_ = 0, held_ = 0;
};

// U+2581 to spaces; in the first item they are dropped.
class MetaspaceStage : public ChainedStage {
 public:
  MetaspaceStage(DecodeStage& next, const decoders::Metaspace& step) : ChainedStage(next), step_(step) {}

  Status put(std::string_view part) override {
    const char32_t mark = first_code_point(step_.replacement).value;
    std::string out;
    for (std::size_t i = 0; i < part.size();) {
      const CodePoint c = first_code_point(part.substr(i));
      if (c.value != mark)
        out += part.substr(i, c.length);
      else if (!first_ || !step_.strip_first)
        out += ' ';
      i += c.length;
    }
    return next_.put(out);
  }
  Status end_item() override {
    first_ = false;
    return next_.end_item();
  }

 private:
  const decoders::Metaspace& step_;
  bool first_ = true;
};

class WordPieceStage : public WholeItemStage {
 public:
  WordPieceStage(DecodeStage& next, const decoders::WordPiece& step) : WholeItemStage(next), step_(step) {}

 protected:
  Status take_item(std::string&& item) override;

 private:
  const decoders::WordPiece& step_;
  bool first_ = true;
};

// The end-of-word suffix becomes a space, but for the last item, which is known only at the end.
class BpeStage : public WholeItemStage {
 public:
  BpeStage(DecodeStage& next, const decoders::Bpe& step) : WholeItemStage(next), step_(step) {}
  Status finish() override {
    if (waits_) DOPPLER_TRY(send_replaced(""));
    return next_.finish();
  }

 protected:
  Status take_item(std::string&& item) override {
    if (waits_) DOPPLER_TRY(send_replaced(" "));
    waiting_ = std::move(item);
    waits_ = true;
    return {};
  }

 private:
  Status send_replaced(std::string_view replacement);
  const decoders::Bpe& step_;
  std::string waiting_;
  bool waits_ = false;
};

class JoinStage : public ChainedStage {
 public:
  using ChainedStage::ChainedStage;
  Status put(std::string_view part) override {
    if (std::exchange(space_, false)) DOPPLER_TRY(next_.put(" "));
    return next_.put(part);
  }
  Status end_item() override {
    space_ = true;
    return next_.end_item();
  }

 private:
  bool space_ = false;
};

}  // namespace doppler::tokenizer
