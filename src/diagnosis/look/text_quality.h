// The quality of a text without a reference: repetition, replacement and control characters, mixed scripts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace doppler::diagnosis {

struct TextQuality {
  std::size_t tokens = 0, unique = 0;
  double unique_ratio = 1, most_frequent_ratio = 0;
  std::int32_t most_frequent = -1;
  std::size_t period = 0;  // length of the cycle of tokens that the text ends in; 0: none
  std::size_t replacement_chars = 0, control_chars = 0;
  std::size_t scripts = 0;  // of its letters: Latin, Cyrillic, Han, ...
  // no_tokens, empty_text, replacement_chars, control_chars, repetition, many_scripts.
  std::vector<std::string> reasons;
  std::vector<std::string> warnings;  // low_unique_ratio
  bool ok() const { return reasons.empty(); }
};

// `has_text` is false where there is no tokenizer: then only the tokens are judged.
TextQuality judge_text(std::span<const std::int32_t> ids, std::string_view text, bool has_text);

}  // namespace doppler::diagnosis
