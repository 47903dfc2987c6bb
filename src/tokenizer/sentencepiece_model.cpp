#include "tokenizer/sentencepiece_model.h"

#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/protobuf.h"

namespace doppler::tokenizer {
namespace {

// Field numbers of sentencepiece_model.proto.
enum ModelProtoField { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5 };
enum PieceField { kPiece = 1, kScore = 2, kType = 3 };
enum TrainerField {
  kModelType = 3,
  kTreatWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kUnkSurface = 44,
  kUnkPiece = 45,
  kBosPiece = 46,
  kEosPiece = 47,
  kPadPiece = 48
};
enum NormalizerField {
  kCharsmap = 2,
  kAddDummyPrefix = 3,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5
};
enum ModelType { kUnigramModel = 1, kBpeModel = 2 };

class Parser {
 public:
  Parser(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  Result<TokenizerSpec> run() {
    spec_.kind = ModelKind::kSentencePieceUnigram;
    spec_.bos.text = "<s>", spec_.eos.text = "</s>", spec_.unk.text = "<unk>", spec_.pad.text = "<pad>";
    ProtoReader reader(bytes_);
    while (const auto field = reader.next()) {
      if (!field->is_bytes()) continue;
      switch (field->number) {
        case kPieces:
          DOPPLER_TRY(add_piece(field->bytes));
          break;
        case kTrainerSpec:
          DOPPLER_TRY(read_trainer(field->bytes));
          break;
        case kNormalizerSpec:
          DOPPLER_TRY(read_normalizer(field->bytes, spec_.sentencepiece));
          break;
        case kDenormalizerSpec:
          DOPPLER_TRY(read_denormalizer(field->bytes));
          break;
        default:
          break;
      }
    }
    if (reader.failed()) return malformed("the model");
    if (spec_.vocabulary.size() == 0) {
      return fail(ErrorCode::kCorrupt, "{} has no pieces. Check that it is a SentencePiece model.", what_);
    }
    if (!spec_.unknown)
      return fail(ErrorCode::kCorrupt, "{} has no unknown piece. Download it again.", what_);
    DOPPLER_TRY(check_bytes());
    find_roles();
    return std::move(spec_);
  }

 private:
  std::unexpected<Error> malformed(std::string_view part) const {
    return fail(ErrorCode::kCorrupt,
                "{} is no SentencePiece model: {} is malformed or cut off. Download it again.", what_, part);
  }

  Status add_piece(std::string_view message) {
    std::string_view text;
    double score = 0;
    std::uint64_t type = static_cast<std::uint64_t>(PieceType::kNormal);
    const std::size_t id = spec_.vocabulary.size();
    ProtoReader reader(message);
    while (const auto field = reader.next()) {
      if (field->number == kPiece && field->is_bytes()) text = field->bytes;
      if (field->number == kScore && field->kind == ProtoField::Kind::kFixed32) score = field->as_float();
      if (field->number == kType && field->kind == ProtoField::Kind::kVarint) type = field->value;
    }
    if (reader.failed()) return malformed(fmt::format("piece {}", id));
    if (text.empty())
      return fail(ErrorCode::kCorrupt, "{} has an empty piece {}. Download it again.", what_, id);
    if (type < 1 || type > 6) {
      return fail(ErrorCode::kCorrupt,
                  "{} gives the piece {} the type {}, outside of 1 to 6. Download it again.", what_, id,
                  type);
    }
    if (id > static_cast<std::size_t>(kMaxTokenId)) {
      return fail(ErrorCode::kLimit, "{} has more than {} pieces. Check that it is the right file.", what_,
                  kMaxTokenId);
    }
    if (spec_.vocabulary.add(text, static_cast<TokenId>(id)) != Vocabulary::Added::kYes) {
      return fail(ErrorCode::kCorrupt, "{} has the piece {} twice, as {} and {}. Download it again.", what_,
                  printable(text), *spec_.vocabulary.find(text), id);
    }
    spec_.scores.push_back(score);
    spec_.types.push_back(static_cast<PieceType>(type));
    if (spec_.types.back() == PieceType::kUnknown) {
      if (spec_.unknown) {
        return fail(ErrorCode::kCorrupt, "{} has two unknown pieces, {} and {}. Download it again.", what_,
                    *spec_.unknown, id);
      }
      spec_.unknown = static_cast<TokenId>(id);
    }
    return {};
  }

  Status read_trainer(std::string_view message) {
    std::uint64_t model_type = kUnigramModel;
    ProtoReader reader(message);
    while (const auto field = reader.next()) {
      switch (field->number) {
        case kModelType:
          model_type = field->value;
          break;
        case kTreatWhitespaceAsSuffix:
          spec_.sentencepiece.treat_whitespace_as_suffix = field->as_bool();
          break;
        case kByteFallback:
          spec_.byte_fallback = field->as_bool();
          break;
        case kUnkSurface:
          spec_.sentencepiece.unknown_surface = to_valid_utf8(std::string(field->bytes));
          break;
        case kUnkPiece:
          spec_.unk.text = field->bytes;
          break;
        case kBosPiece:
          spec_.bos.text = field->bytes;
          break;
        case kEosPiece:
          spec_.eos.text = field->bytes;
          break;
        case kPadPiece:
          spec_.pad.text = field->bytes;
          break;
        default:
          break;
      }
    }
    if (reader.failed()) return malformed("the trainer_spec");
    if (model_type != kUnigramModel && model_type != kBpeModel) {
      return fail(ErrorCode::kUnsupported,
                  "{} has the model type {}. Doppler knows the SentencePiece types 1 (unigram) and 2 (BPE).",
                  what_, model_type);
    }
    spec_.kind = model_type == kBpeModel ? ModelKind::kSentencePieceBpe : ModelKind::kSentencePieceUnigram;
    return {};
  }

  Status read_normalizer(std::string_view message, SentencePieceRules& rules) {
    ProtoReader reader(message);
    while (const auto field = reader.next()) {
      switch (field->number) {
        case kCharsmap:
          rules.charsmap = field->bytes;
          break;
        case kAddDummyPrefix:
          rules.add_dummy_prefix = field->as_bool();
          break;
        case kRemoveExtraWhitespaces:
          rules.remove_extra_whitespaces = field->as_bool();
          break;
        case kEscapeWhitespaces:
          rules.escape_whitespaces = field->as_bool();
          break;
        default:
          break;
      }
    }
    return reader.failed() ? Status(malformed("the normalizer_spec")) : Status();
  }

  Status read_denormalizer(std::string_view message) {
    SentencePieceRules rules;
    DOPPLER_TRY(read_normalizer(message, rules));
    if (rules.charsmap.empty()) return {};
    return fail(ErrorCode::kUnsupported, "{} has a denormalizer, which Doppler does not support.", what_);
  }

  // Byte fallback needs all 256 pieces, and their names are fixed.
  Status check_bytes() const {
    for (unsigned byte = 0; spec_.byte_fallback && byte < 256; ++byte) {
      const std::string name = piece_of_byte(static_cast<unsigned char>(byte));
      const auto id = spec_.vocabulary.find(name);
      if (!id || spec_.types[static_cast<std::size_t>(*id)] != PieceType::kByte) {
        return fail(ErrorCode::kCorrupt,
                    "{} falls back to bytes but has no byte piece {}. Download it again.", what_, name);
      }
    }
    return {};
  }

  void find_roles() {
    for (SpecialToken* role : {&spec_.bos, &spec_.eos, &spec_.pad}) {
      const auto id = spec_.vocabulary.find(role->text);
      if (id && spec_.types[static_cast<std::size_t>(*id)] == PieceType::kControl)
        role->id = *id;
      else
        role->text.clear();
    }
    spec_.unk.id = spec_.unknown;
    spec_.unk.text = *spec_.vocabulary.piece(*spec_.unknown);
  }

  std::string_view bytes_, what_;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> parse_sentencepiece_model(std::span<const std::byte> bytes, std::string_view what) {
  return Parser({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, what).run();
}

}  // namespace doppler::tokenizer
