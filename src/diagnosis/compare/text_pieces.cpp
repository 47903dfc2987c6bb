// What comparisons of texts share: pieces as text, excerpts, and the list of what was found.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/unicode.h"
#include "diagnosis/compare/compare_texts_parts.h"
#include "tokenizer/byte_level.h"

namespace doppler::diagnosis {

bool is_byte_level(const tokenizer::TokenizerSpec& spec) {
  const auto holds = [](const auto& steps, auto kind) {
    return std::ranges::any_of(steps,
                               [](const auto& step) { return std::holds_alternative<decltype(kind)>(step); });
  };
  return holds(spec.pre_tokenizer, tokenizer::pre_tokenizers::ByteLevel{}) ||
         holds(spec.normalizer, tokenizer::normalizers::ByteLevel{}) ||
         (spec.decoder && holds(*spec.decoder, tokenizer::decoders::ByteLevel{}));
}

std::string surface_of(std::string_view piece, bool byte_level) {
  if (const auto byte = tokenizer::byte_of_piece(piece)) return std::string(1, static_cast<char>(*byte));
  std::string out;
  if (byte_level) {
    tokenizer::append_byte_level_decoded(out, piece);
    return out;
  }
  for (std::size_t at = 0; at < piece.size();) {
    if (piece.substr(at).starts_with(tokenizer::kSpaceMark)) {
      out += ' ';
      at += tokenizer::kSpaceMark.size();
    } else {
      out += piece[at++];
    }
  }
  return out;
}

void TextFindings::add(TextDifference difference) {
  for (TextDifference& other : out_) {
    if (other.cause != difference.cause || other.step != difference.step) continue;
    if (difference.step == "special tokens" && other.explanation != difference.explanation) continue;
    other.places += difference.places;
    return;
  }
  out_.push_back(std::move(difference));
}

bool TextFindings::has(std::string_view cause) const {
  return std::ranges::find(out_, cause, &TextDifference::cause) != out_.end();
}

MiddleParts differing_middle(std::string_view wanted, std::string_view found) {
  const std::size_t most = std::min(wanted.size(), found.size());
  std::size_t begin = 0, end = 0;
  while (begin < most && wanted[begin] == found[begin]) ++begin;
  const auto inside = [](std::string_view text, std::size_t at) {
    return at < text.size() && is_utf8_continuation(text[at]);
  };
  while (begin > 0 && (inside(wanted, begin) || inside(found, begin))) --begin;
  while (end < most - begin && wanted[wanted.size() - end - 1] == found[found.size() - end - 1]) ++end;
  while (end > 0 && inside(wanted, wanted.size() - end)) --end;
  return {begin, wanted.substr(begin, wanted.size() - begin - end),
          found.substr(begin, found.size() - begin - end)};
}

std::string excerpt(std::string_view text, std::string_view other) {
  constexpr std::size_t kBefore = 16, kShown = 60;
  const MiddleParts middle = differing_middle(text, other);
  std::size_t from = middle.begin > kBefore ? middle.begin - kBefore : 0;
  while (from < text.size() && is_utf8_continuation(text[from])) ++from;
  return fmt::format("\"{}{}\"", from > 0 ? "\u2026" : "", printable(text.substr(from), kShown));
}

}  // namespace doppler::diagnosis
