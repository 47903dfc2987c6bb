#include "tokenizer/tokenizer.h"

#include "base/text.h"
#include "base/unicode.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_parts.h"

namespace doppler::tokenizer {
namespace {

// Positions within a piece are 32 bits wide.
constexpr std::size_t kLongestInput = std::size_t{1} << 30;

Status check_template_ids(const Tokenizer::Parts& parts) {
  for (const PostProcessorStep& step : parts.spec.post_processor) {
    for (const TemplateItem& item : step) {
      if (item && !parts.piece(*item)) {
        return fail(
            ErrorCode::kCorrupt,
            "The post-processor adds the token id {} but the vocabulary of {} ids lacks it. Download the "
            "tokenizer again.",
            *item, parts.vocab_size());
      }
    }
  }
  return {};
}

Status spell_normalized(Tokenizer::Parts& parts) {
  for (const AddedToken& token : parts.spec.added) {
    if (!token.normalized || parts.is_sentencepiece()) continue;
    DOPPLER_ASSIGN(std::string spelling, parts.normalizer.apply(token.content));
    if (spelling != token.content) parts.normalized_spellings[token.id] = std::move(spelling);
  }
  return {};
}

void mark_special(Tokenizer::Parts& parts) {
  parts.special.assign(parts.vocab_size(), false);
  for (const AddedToken& token : parts.spec.added) {
    if (token.special) parts.special[static_cast<std::size_t>(token.id)] = true;
  }
}

// Control pieces never come out of text in SentencePiece, but templates write them, so they count as added
// tokens.
void add_control_pieces(TokenizerSpec& spec) {
  std::vector<bool> added(spec.types.size());
  for (const AddedToken& token : spec.added) {
    if (token.id >= 0 && static_cast<std::size_t>(token.id) < added.size())
      added[static_cast<std::size_t>(token.id)] = true;
  }
  for (std::size_t id = 0; id < spec.types.size(); ++id) {
    if (added[id] || (spec.types[id] != PieceType::kControl && spec.types[id] != PieceType::kUnknown))
      continue;
    AddedToken token;
    token.id = static_cast<TokenId>(id);
    token.content = spec.vocabulary.piece(token.id).value_or("");
    token.special = true;
    spec.added.push_back(std::move(token));
  }
}

}  // namespace

Result<Tokenizer> Tokenizer::from_spec(TokenizerSpec spec) {
  auto parts = std::make_shared<Parts>();
  parts->spec = std::move(spec);
  if (parts->is_sentencepiece()) add_control_pieces(parts->spec);
  const TokenizerSpec& kept = parts->spec;
  for (const AddedToken& token : kept.added) {
    if (!parts->piece(token.id)) {
      return fail(ErrorCode::kCorrupt,
                  "The added token {} has the id {}, which the vocabulary lacks. Correct the file.",
                  printable(token.content), token.id);
    }
  }
  DOPPLER_TRY(check_template_ids(*parts));
  DOPPLER_ASSIGN(parts->normalizer, Normalizer::create(kept.normalizer));
  if (parts->is_sentencepiece()) {
    DOPPLER_ASSIGN(parts->sentencepiece, SentencePieceNormalizer::create(kept));
  }
  DOPPLER_ASSIGN(parts->pre_tokenizer, PreTokenizer::create(kept.pre_tokenizer));
  DOPPLER_ASSIGN(parts->added, AddedTokens::create(kept.added, parts->normalizer));
  DOPPLER_ASSIGN(parts->model, make_model(kept));
  DOPPLER_ASSIGN(parts->decode_plan, DecodePlan::create(kept));
  mark_special(*parts);
  DOPPLER_TRY(spell_normalized(*parts));
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view what) {
  DOPPLER_ASSIGN(TokenizerSpec spec, parse_tokenizer_json(tokenizer_json, what));
  return from_spec(std::move(spec));
}

Status Tokenizer::Parts::encode_normalized(std::string text, bool at_start, std::vector<TokenId>& out) const {
  if (text.empty()) return {};
  Pieces pieces;
  pieces.ranges.push_back({0, text.size()});
  pieces.text = std::move(text);
  pieces.at_start = at_start;
  DOPPLER_TRY(pre_tokenizer.apply(pieces));
  EncodeWork work;
  return model->encode(pieces, out, work);
}

// A stretch of text without plain added tokens: normalised, then searched for those that are found in
// normalised text.
Status Tokenizer::Parts::encode_text(std::string_view text, bool at_start, bool parse_special,
                                     std::vector<TokenId>& out) const {
  if (is_sentencepiece()) {
    const bool prefix = at_start || spec.sentencepiece.prefix_after_special;
    DOPPLER_ASSIGN(std::string prepared, sentencepiece.apply(text, prefix));
    return encode_normalized(std::move(prepared), at_start, out);
  }
  DOPPLER_ASSIGN(std::string normalized, normalizer.apply(std::string(text)));
  if (!added.has_normalized()) return encode_normalized(std::move(normalized), at_start, out);
  for (const Section& section : added.split(normalized, /*normalized=*/true, parse_special)) {
    if (section.token) {
      out.push_back(*section.token);
      continue;
    }
    const Range range = section.range;
    DOPPLER_TRY(encode_normalized(normalized.substr(range.begin, range.end - range.begin),
                                  at_start && range.begin == 0, out));
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kLongestInput) {
    return fail(ErrorCode::kLimit,
                "The text has {} bytes, more than the {} that can be tokenized at once. Split it.",
                text.size(), kLongestInput);
  }
  std::string repaired;
  if (!parts_->is_sentencepiece() && !is_valid_utf8(text)) text = repaired = utf8_lossy(text);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);  // English has some four bytes a token
  for (const Section& section : parts_->added.split(text, /*normalized=*/false, options.parse_special)) {
    const Range range = section.range;
    if (section.token) {
      ids.push_back(*section.token);
    } else {
      DOPPLER_TRY(parts_->encode_text(text.substr(range.begin, range.end - range.begin), range.begin == 0,
                                      options.parse_special, ids));
    }
  }
  if (!options.add_special) return ids;
  for (const PostProcessorStep& step : parts_->spec.post_processor) {
    std::vector<TokenId> wrapped;
    wrapped.reserve(ids.size() + step.size());
    for (const TemplateItem& item : step) {
      if (item)
        wrapped.push_back(*item);
      else
        wrapped.insert(wrapped.end(), ids.begin(), ids.end());
    }
    ids = std::move(wrapped);
  }
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  DecodeRun run(*parts_, skip_special);
  for (const TokenId id : ids) DOPPLER_TRY(run.push(id));
  DOPPLER_TRY(run.finish());
  return run.take();
}

std::size_t Tokenizer::vocab_size() const {
  return parts_->vocab_size();
}

Result<std::string> Tokenizer::piece(TokenId id) const {
  if (const auto piece = parts_->piece(id)) return std::string(*piece);
  return fail(ErrorCode::kMismatch, "The token id {} is not in the vocabulary of {} ids. Give another.", id,
              vocab_size());
}

std::optional<TokenId> Tokenizer::find(std::string_view piece) const {
  const auto own = parts_->spec.vocabulary.find(piece);
  return own ? own : parts_->spec.extra.find(piece);
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < parts_->special.size() &&
         parts_->special[static_cast<std::size_t>(id)];
}

const SpecialToken& Tokenizer::bos() const {
  return parts_->spec.bos;
}
const SpecialToken& Tokenizer::eos() const {
  return parts_->spec.eos;
}
const SpecialToken& Tokenizer::unk() const {
  return parts_->spec.unk;
}
const SpecialToken& Tokenizer::pad() const {
  return parts_->spec.pad;
}
const TokenizerSpec& Tokenizer::spec() const {
  return parts_->spec;
}

}  // namespace doppler::tokenizer
