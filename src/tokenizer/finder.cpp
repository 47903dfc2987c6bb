#include "tokenizer/finder.h"

namespace doppler::tokenizer {
namespace {

// The longest published pattern has some 500 bytes. The bound keeps string search linear in the text.
constexpr std::size_t kLongestPattern = 16 * 1024;

}  // namespace

Result<Finder> Finder::create(const Pattern& pattern) {
  if (pattern.text.empty()) {
    return fail(ErrorCode::kCorrupt,
                "The tokenizer searches for an empty pattern. Correct the tokenizer file.");
  }
  if (pattern.text.size() > kLongestPattern) {
    return fail(
        ErrorCode::kLimit,
        "A pattern of the tokenizer is {} bytes long, more than the {} allowed. Check the tokenizer file.",
        pattern.text.size(), kLongestPattern);
  }
  Finder finder;
  finder.text_ = pattern.text;
  if (pattern.is_regex) {
    DOPPLER_ASSIGN(finder.regex_, Regex::compile(pattern.text));
  }
  return finder;
}

Result<std::vector<Range>> Finder::find_all(std::string_view text) const {
  if (regex_) return regex_->find_all(text);
  std::vector<Range> matches;
  for (std::size_t at = text.find(text_); at != std::string_view::npos;
       at = text.find(text_, at + text_.size())) {
    matches.push_back({at, at + text_.size()});
  }
  return matches;
}

}  // namespace doppler::tokenizer
