#include "tokenizer/added_tokens.h"

#include "base/text.h"
#include "base/unicode.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/model.h"

namespace doppler::tokenizer {
namespace {

// Whether a word character touches text[range].
bool inside_word(std::string_view text, Range range) {
  if (range.begin > 0 && is_word(last_code_point(text.substr(0, range.begin)).value)) return true;
  return range.end < text.size() && is_word(first_code_point(text.substr(range.end)).value);
}

std::size_t before_spaces(std::string_view text, std::size_t at, std::size_t not_before) {
  while (at > not_before) {
    const CodePoint c = last_code_point(text.substr(0, at));
    if (!is_white_space(c.value)) break;
    at -= c.length;
  }
  return at;
}

std::size_t behind_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = first_code_point(text.substr(at));
    if (!is_white_space(c.value)) break;
    at += c.length;
  }
  return at;
}

}  // namespace

Result<AddedTokens> AddedTokens::create(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  AddedTokens added;
  added.tokens_ = tokens;
  std::vector<std::string> spellings(tokens.size());
  std::vector<Trie::Key> plain, normalized;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].content.size() > kLongestPiece) {
      return fail(ErrorCode::kLimit,
                  "The added token {} is {} bytes long, more than the {} allowed. Check the tokenizer file.",
                  tokens[i].id, tokens[i].content.size(), kLongestPiece);
    }
    if (tokens[i].normalized) {
      DOPPLER_ASSIGN(spellings[i], normalizer.apply(tokens[i].content));
      normalized.push_back({spellings[i], static_cast<std::int32_t>(i)});
    } else {
      plain.push_back({tokens[i].content, static_cast<std::int32_t>(i)});
    }
  }
  added.plain_ = Trie(std::move(plain));
  added.normalized_ = Trie(std::move(normalized));
  return added;
}

std::vector<Section> AddedTokens::split(std::string_view text, bool normalized, bool parse_special) const {
  std::vector<Section> sections;
  const Trie& trie = normalized ? normalized_ : plain_;
  std::size_t done = 0;
  for (std::size_t at = 0; !trie.empty() && at < text.size();) {
    const Trie::Match match = trie.longest(text.substr(at));
    if (match.length == 0) {
      ++at;  // a token's first byte is never in the middle of a character
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.value)];
    Range range = {at, at + match.length};
    at = range.end;  // a match that is turned down below is still not searched again
    if (token.special && !parse_special) continue;
    if (token.single_word && inside_word(text, range)) continue;
    if (token.lstrip) range.begin = before_spaces(text, range.begin, done);
    if (token.rstrip) range.end = behind_spaces(text, range.end);
    if (range.begin < done) range.begin = done;  // spaces that the token before has taken
    if (done < range.begin) sections.push_back({{done, range.begin}, std::nullopt});
    sections.push_back({range, token.id});
    done = std::max(range.end, done);
  }
  if (done < text.size()) sections.push_back({{done, text.size()}, std::nullopt});
  return sections;
}

}  // namespace doppler::tokenizer
