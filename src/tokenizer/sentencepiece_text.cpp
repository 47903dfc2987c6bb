#include "tokenizer/sentencepiece_text.h"

#include "base/unicode.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

Result<SentencePieceNormalizer> SentencePieceNormalizer::create(const TokenizerSpec& spec) {
  SentencePieceNormalizer made;
  made.rules_ = spec.sentencepiece;
  DOPPLER_ASSIGN(made.charsmap_, Charsmap::parse(spec.sentencepiece.charsmap));
  std::vector<Trie::Key> keys;
  for (std::size_t id = 0; id < spec.types.size(); ++id) {
    const auto piece = spec.vocabulary.piece(static_cast<TokenId>(id));
    if (piece && spec.types[id] == PieceType::kUserDefined)
      keys.push_back({*piece, static_cast<std::int32_t>(id)});
  }
  made.user_defined_ = Trie(std::move(keys));
  return made;
}

// The next stretch of text and what it becomes: a user-defined piece is itself, then the charsmap, then a
// character.
SentencePieceNormalizer::Mapped SentencePieceNormalizer::map_prefix(std::string_view text) const {
  if (const Trie::Match user = user_defined_.longest(text); user.length > 0) {
    return {user.length, text.substr(0, user.length)};
  }
  if (const auto match = charsmap_.longest(text)) return {match->length, match->replacement};
  const CodePoint c = first_code_point(text);
  if (c.value == 0xfffd && c.length == 1) return {1, kReplacement};
  return {c.length, text.substr(0, c.length)};
}

Result<std::string> SentencePieceNormalizer::apply(std::string_view text, bool add_prefix) const {
  const std::string_view space = rules_.escape_whitespaces ? kSpaceMark : " ";
  const std::size_t limit = growth_limit(text.size());
  const bool fold = rules_.remove_extra_whitespaces;
  while (fold && !text.empty()) {
    const Mapped mapped = map_prefix(text);
    if (mapped.text != " ") break;
    text.remove_prefix(mapped.length);
  }
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  const bool prefix = rules_.add_dummy_prefix && add_prefix;
  if (prefix && !rules_.treat_whitespace_as_suffix) out += space;
  bool after_space = fold;
  while (!text.empty()) {
    Mapped mapped = map_prefix(text);
    while (after_space && mapped.text.starts_with(' ')) mapped.text.remove_prefix(1);
    for (const char c : mapped.text) {
      if (c == ' ')
        out += space;
      else
        out.push_back(c);
    }
    if (!mapped.text.empty()) after_space = mapped.text.ends_with(' ');
    if (!fold) after_space = false;
    text.remove_prefix(mapped.length);
    if (out.size() > limit) return growth_failure(limit);
  }
  while (fold && out.ends_with(space)) out.resize(out.size() - space.size());
  if (prefix && rules_.treat_whitespace_as_suffix) out += space;
  return to_valid_utf8(std::move(out));
}

Status SentencePieceDecoder::put(std::string_view text) {
  any_text_ = any_text_ || !text.empty();
  return next_.put(text);
}

Status SentencePieceDecoder::end_bytes() {
  DOPPLER_TRY(put(bytes_.finish()));
  if (prefix_seen_ || any_text_) at_start_ = false;
  return {};
}

Status SentencePieceDecoder::push(TokenId id, std::string_view piece) {
  const PieceType type = spec_.types[static_cast<std::size_t>(id)];
  if (type == PieceType::kByte) {
    const unsigned char byte = byte_of_piece(piece).value_or('?');
    return put(bytes_.push(std::string(1, static_cast<char>(byte))));
  }
  DOPPLER_TRY(end_bytes());
  prefix_seen_ = false;
  if (type == PieceType::kControl) return {};
  if (type == PieceType::kUnknown) return put(spec_.sentencepiece.unknown_surface);
  const bool fold = spec_.sentencepiece.remove_extra_whitespaces;
  if (at_start_ && (spec_.sentencepiece.add_dummy_prefix || fold) && piece.starts_with(kSpaceMark)) {
    piece.remove_prefix(kSpaceMark.size());
    prefix_seen_ = !fold;  // where spaces are folded, all leading ones go
  }
  for (std::size_t mark = piece.find(kSpaceMark); mark != std::string_view::npos;
       mark = piece.find(kSpaceMark)) {
    DOPPLER_TRY(put(piece.substr(0, mark)));
    DOPPLER_TRY(put(" "));
    piece.remove_prefix(mark + kSpaceMark.size());
  }
  return put(piece);
}

Status SentencePieceDecoder::push_text(std::string_view text) {
  DOPPLER_TRY(end_bytes());
  return put(text);
}

Status SentencePieceDecoder::finish() {
  DOPPLER_TRY(end_bytes());
  return next_.finish();
}

}  // namespace doppler::tokenizer
