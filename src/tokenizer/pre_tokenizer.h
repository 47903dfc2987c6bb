// PreTokenizer: cuts a normalised text into the pieces that the model sees one by one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/finder.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

// The pattern that ByteLevel brings along: GPT-2's.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One text and the pieces of it, in order, none empty.
struct Pieces {
  std::string text;
  std::vector<Range> ranges;
  // The byte at offset 0 of `text` is where the user's text began (Metaspace's prepend_scheme "first" asks).
  bool at_start = false;

  std::string_view operator[](std::size_t i) const {
    return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }
};

class PreTokenizer {
 public:
  // Errors: patterns that do not compile.
  static Result<PreTokenizer> create(const std::vector<PreTokenizerStep>& steps);

  // Errors: kLimit when a pattern backtracks too much.
  Status apply(Pieces& pieces) const;

 private:
  struct Split {
    Finder finder;
    SplitBehavior behavior;
    bool invert;
  };
  struct ByteLevel {
    std::optional<Regex> regex;
    bool add_prefix_space;
  };
  // Cuts where a property of the characters says so.
  struct ByClass {
    bool (*matches)(char32_t);
    SplitBehavior behavior;
  };
  struct Delimiter {
    char32_t delimiter;
  };
  // Runs of word characters and runs of other visible characters.
  struct Words {};
  using Step = std::variant<Split, ByteLevel, pre_tokenizers::Metaspace, ByClass, Delimiter, Words>;

  static Status run(const Split& step, Pieces& pieces);
  static Status run(const ByteLevel& step, Pieces& pieces);
  static Status run(const pre_tokenizers::Metaspace& step, Pieces& pieces);
  static Status run(const ByClass& step, Pieces& pieces);
  static Status run(const Delimiter& step, Pieces& pieces);
  static Status run(const Words& step, Pieces& pieces);
  static Status add_step(const PreTokenizerStep& step, std::vector<Step>& out);

  std::vector<Step> steps_;
};

}  // namespace doppler::tokenizer
