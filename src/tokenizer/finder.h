// Finder: a spec's Pattern made ready to search with, a plain string or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

class Finder {
 public:
  // Errors: those of Regex::compile; kCorrupt for an empty string, kLimit for one beyond any real
  // tokenizer's.
  static Result<Finder> create(const Pattern& pattern);

  // All matches in `text`, left to right, not overlapping.
  Result<std::vector<Range>> find_all(std::string_view text) const;

  const std::string& text() const { return text_; }
  bool is_regex() const { return regex_.has_value(); }

 private:
  std::string text_;
  std::optional<Regex> regex_;
};

}  // namespace doppler::tokenizer
