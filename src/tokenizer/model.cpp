#include "tokenizer/model.h"

#include <cmath>

#include "base/text.h"
#include "tokenizer/byte_level.h"

namespace doppler::tokenizer {

Result<std::unique_ptr<Model>> make_model(const TokenizerSpec& spec) {
  switch (spec.kind) {
    case ModelKind::kBpe:
      return make_bpe(spec);
    case ModelKind::kSentencePieceBpe:
      return make_sentencepiece_bpe(spec);
    case ModelKind::kUnigram:
    case ModelKind::kSentencePieceUnigram:
      return make_unigram(spec);
    case ModelKind::kWordLevel:
    case ModelKind::kWordPiece:
      return make_word_model(spec);
  }
  return fail(ErrorCode::kInternal, "The tokenizer model has no kind. Report this as a bug.");
}

ByteIds::ByteIds(const Vocabulary& vocabulary) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    ids[byte] = vocabulary.find(piece_of_byte(static_cast<unsigned char>(byte))).value_or(-1);
  }
}

bool ByteIds::append(std::string_view bytes, std::vector<TokenId>& out) const {
  for (const char byte : bytes) {
    if (ids[static_cast<unsigned char>(byte)] < 0) return false;
  }
  for (const char byte : bytes) out.push_back(ids[static_cast<unsigned char>(byte)]);
  return true;
}

Status check_piece_lengths(const TokenizerSpec& spec) {
  if (spec.vocabulary.longest_piece() <= kLongestPiece) return {};
  return fail(ErrorCode::kLimit,
              "The vocabulary has a piece of {} bytes, more than the {} allowed. Check the tokenizer file.",
              spec.vocabulary.longest_piece(), kLongestPiece);
}

Status check_sentencepiece_tables(const TokenizerSpec& spec) {
  const std::size_t size = spec.vocabulary.size();
  if (spec.scores.size() != size || spec.types.size() != size) {
    return fail(ErrorCode::kCorrupt,
                "The vocabulary has {} pieces but {} scores and {} types. Download the tokenizer again.",
                size, spec.scores.size(), spec.types.size());
  }
  if (!spec.unknown || !spec.vocabulary.piece(*spec.unknown)) {
    return fail(ErrorCode::kCorrupt, "The vocabulary has no unknown piece. Download the tokenizer again.");
  }
  for (std::size_t id = 0; id < size; ++id) {
    if (!std::isfinite(spec.scores[id])) {
      return fail(ErrorCode::kCorrupt, "The piece {} has the score {}. Download the tokenizer again.", id,
                  spec.scores[id]);
    }
  }
  return {};
}

std::unexpected<Error> missing_unknown_token(std::string_view text) {
  return fail(ErrorCode::kCorrupt,
              "The vocabulary has no piece for the text {} and names no unknown token. Add one to the "
              "tokenizer file.",
              printable(text));
}

}  // namespace doppler::tokenizer
