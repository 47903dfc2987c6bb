// Regex: a tokenizer's pattern, compiled once, that finds all matches in a text within a bounded effort.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler::tokenizer {

struct Range {
  std::size_t begin = 0, end = 0;
};

class Regex {
 public:
  // A pattern in Oniguruma's Ruby syntax, as tokenizer.json holds them.
  // Errors: kCorrupt with PCRE2's message and the offset; kUnsupported for constructs that cannot be
  // translated.
  static Result<Regex> compile(std::string_view pattern);

  // The leftmost matches in `text` (valid UTF-8), one after the other, as Oniguruma's iterator gives them: an
  // empty match right behind another match is left out. Errors: kLimit when the pattern backtracks too much
  // on this text.
  Result<std::vector<Range>> find_all(std::string_view text) const;

  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::shared_ptr<const void> code_;  // pcre2_code
  bool fast_ = false;                 // compiled to machine code
};

}  // namespace doppler::tokenizer
