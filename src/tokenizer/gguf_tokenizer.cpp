#include "tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "formats/gguf_stop_tokens.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gguf_pre_tokenizers.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {
namespace {

// Published vocabularies have up to 4 MB of pieces and half a million merges.
constexpr std::uint64_t kMostPieceBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMostMerges = std::uint64_t{1} << 24;
// The value that converters write for "none" besides leaving the key out: -1, read as 32 bits.
constexpr std::int64_t kNoId = UINT32_MAX;

// Phi 3's special tokens take the white space behind them, but for these three.
constexpr auto kPhi3Plain = std::to_array<std::string_view>({"<unk>", "<s>", "<|endoftext|>"});

struct Role {
  const char* key;
  SpecialToken TokenizerSpec::* token;
};
constexpr auto kRoles = std::to_array<Role>({
    {"tokenizer.ggml.bos_token_id", &TokenizerSpec::bos},
    {"tokenizer.ggml.eos_token_id", &TokenizerSpec::eos},
    {"tokenizer.ggml.unknown_token_id", &TokenizerSpec::unk},
    {"tokenizer.ggml.padding_token_id", &TokenizerSpec::pad},
});

class GgufReader {
 public:
  GgufReader(const GgufMetadata& metadata, std::string_view what) : metadata_(metadata), what_(what) {}

  Result<std::optional<TokenizerSpec>> run() {
    if (!has_gguf_tokenizer(metadata_)) return std::nullopt;
    DOPPLER_ASSIGN(const auto kind, metadata_.get_string("tokenizer.ggml.model"));
    struct Kind {
      std::string_view name;
      Status (GgufReader::*read)();
    };
    static constexpr auto kKinds = std::to_array<Kind>({{"gemma4", &GgufReader::read_gemma4},
                                                        {"gpt2", &GgufReader::read_byte_level},
                                                        {"llama", &GgufReader::read_llama},
                                                        {"t5", &GgufReader::read_t5}});
    const auto found = std::ranges::find(kKinds, *kind, &Kind::name);
    if (found == kKinds.end()) {
      return fail(
          ErrorCode::kUnsupported,
          "{} has a tokenizer of the kind {}, which Doppler does not know; it knows gemma4, gpt2, llama, "
          "t5. Use the model's Hugging Face folder.",
          what_, printable(*kind));
    }
    DOPPLER_TRY((this->*found->read)());
    return std::optional(std::move(spec_));
  }

 private:
  static std::size_t index(TokenId id) { return static_cast<std::size_t>(id); }

  // ---- The lists: pieces, their types and scores.

  Status read_pieces() {
    DOPPLER_ASSIGN(const auto array, metadata_.get_array("tokenizer.ggml.tokens"));
    if (!array || array->size() == 0) {
      return fail(ErrorCode::kCorrupt,
                  "{} names a tokenizer but has no tokenizer.ggml.tokens. Convert it again.", what_);
    }
    if (array->size() > static_cast<std::uint64_t>(kMaxTokenId) + 1) {
      return fail(ErrorCode::kLimit, "{} has {} tokens, more than the {} allowed. Check the file.", what_,
                  array->size(), kMaxTokenId + 1);
    }
    if (array->bytes().size() > kMostPieceBytes) {
      return fail(ErrorCode::kLimit, "{} has {} bytes of tokens, more than the {} allowed. Check the file.",
                  what_, array->bytes().size(), kMostPieceBytes);
    }
    DOPPLER_ASSIGN(pieces_, array->strings());
    return {};
  }

  Status check_length(std::string_view key, std::uint64_t size) const {
    if (size == pieces_.size()) return {};
    return fail(ErrorCode::kCorrupt, "{} has {} tokens but {} values in {}. Convert it again.", what_,
                pieces_.size(), size, key);
  }

  Status read_types(bool required) {
    constexpr std::string_view kKey = "tokenizer.ggml.token_type";
    DOPPLER_ASSIGN(const auto array, metadata_.get_array(kKey));
    if (!array && required) return missing(kKey);
    types_.assign(pieces_.size(), PieceType::kNormal);
    if (!array) return {};
    DOPPLER_TRY(check_length(kKey, array->size()));
    DOPPLER_ASSIGN(const std::vector<std::int64_t> types, array->ints());
    for (std::size_t id = 0; id < types.size(); ++id) {
      if (types[id] < 0 || types[id] > 6) {
        return fail(ErrorCode::kCorrupt,
                    "{} gives the token {} ({}) the type {}, outside of 0 to 6. Convert it again.", what_, id,
                    printable(pieces_[id]), types[id]);
      }
      if (types[id] != 0) types_[id] = static_cast<PieceType>(types[id]);  // 0: undefined, as good as normal
    }
    return {};
  }

  Status read_scores() {
    constexpr std::string_view kKey = "tokenizer.ggml.scores";
    DOPPLER_ASSIGN(const auto array, metadata_.get_array(kKey));
    if (!array) return missing(kKey);
    DOPPLER_TRY(check_length(kKey, array->size()));
    if (array->element_type() == GgufType::kI32) {  // some converters' ranks
      DOPPLER_ASSIGN(const std::vector<std::int64_t> ranks, array->ints());
      spec_.scores.assign(ranks.begin(), ranks.end());
      return {};
    }
    DOPPLER_ASSIGN(const std::vector<float> scores, array->floats());
    spec_.scores.assign(scores.begin(), scores.end());
    return {};
  }

  std::unexpected<Error> missing(std::string_view key) const {
    return fail(ErrorCode::kCorrupt, "{} has a tokenizer without {}. Convert it again.", what_, key);
  }

  // An empty piece stands for an id that is not used, and stays a gap.
  Status add_piece(Vocabulary& into, const Vocabulary& other, std::string_view piece, TokenId id) const {
    if (piece.empty()) return {};
    std::optional<TokenId> known = other.find(piece);
    if (!known && into.add(piece, id) == Vocabulary::Added::kYes) return {};
    if (!known) known = into.find(piece);
    return fail(ErrorCode::kCorrupt, "{} has the token {} twice, with the ids {} and {}. Convert it again.",
                what_, printable(piece), known.value_or(-1), id);
  }

  // ---- Special tokens.

  // A key's id; nothing if it is absent or says none.
  Result<std::optional<TokenId>> read_id(std::string_view key) const {
    DOPPLER_ASSIGN(const std::optional<std::int64_t> id, metadata_.get_int(key));
    if (!id || *id == -1 || *id == kNoId) return std::nullopt;
    if (*id < 0 || static_cast<std::uint64_t>(*id) >= pieces_.size()) {
      return fail(ErrorCode::kCorrupt,
                  "{} says {} = {} but has {} tokens. Correct the value or convert it again.", what_, key,
                  *id, pieces_.size());
    }
    return static_cast<TokenId>(*id);
  }

  Status read_roles() {
    for (const Role& role : kRoles) {
      DOPPLER_ASSIGN(std::optional<TokenId> id, read_id(role.key));
      if (const auto usual = usual_gguf_token(metadata_, role.key); usual && *usual < pieces_.size())
        id = static_cast<TokenId>(*usual);
      if (id) spec_.*role.token = {*id, std::string(pieces_[index(*id)])};
    }
    return {};
  }

  Status read_bos_and_eos(bool add_bos, bool add_eos) {
    DOPPLER_ASSIGN(const auto bos, metadata_.get_bool("tokenizer.ggml.add_bos_token"));
    DOPPLER_ASSIGN(const auto eos, metadata_.get_bool("tokenizer.ggml.add_eos_token"));
    PostProcessorStep step;
    // A flag without its token adds nothing, as in the tokenizers that never had one (Qwen's).
    if (bos.value_or(add_bos) && spec_.bos.id) step.push_back(*spec_.bos.id);
    step.push_back(std::nullopt);
    if (eos.value_or(add_eos) && spec_.eos.id) step.push_back(*spec_.eos.id);
    if (step.size() > 1) spec_.post_processor.push_back(std::move(step));
    return {};
  }

  void add_token(TokenId id, bool special) {
    AddedToken token;
    token.id = id;
    token.content = pieces_[index(id)];
    token.special = special;
    if (!token.content.empty()) spec_.added.push_back(std::move(token));
  }

  // Roles are special tokens even where their types do not say so.
  void mark_roles_special() {
    for (const Role& role : kRoles) {
      const std::optional<TokenId> id = (spec_.*role.token).id;
      if (!id || types_[index(*id)] == PieceType::kByte) continue;
      const auto known = std::ranges::find(spec_.added, *id, &AddedToken::id);
      if (known == spec_.added.end())
        add_token(*id, true);
      else
        known->special = true;
    }
  }

  // ---- SentencePiece.

  Status read_llama() { return read_sentencepiece(ModelKind::kSentencePieceBpe); }
  Status read_t5() { return read_sentencepiece(ModelKind::kSentencePieceUnigram); }

  Status read_sentencepiece(ModelKind kind) {
    const bool t5 = kind == ModelKind::kSentencePieceUnigram;
    spec_.kind = kind;
    DOPPLER_TRY(read_pieces());
    DOPPLER_TRY(read_types(/*required=*/true));
    DOPPLER_TRY(read_scores());
    DOPPLER_TRY(read_roles());
    DOPPLER_TRY(find_unknown());
    DOPPLER_TRY(add_sentencepiece_vocabulary());
    DOPPLER_TRY(check_byte_pieces());
    DOPPLER_TRY(read_rules());
    DOPPLER_TRY(read_bos_and_eos(/*add_bos=*/!t5, /*add_eos=*/t5));
    DOPPLER_ASSIGN(const auto architecture, metadata_.get_string("general.architecture"));
    if (architecture == "phi3") strip_behind_special();
    spec_.types = types_;
    for (std::size_t id = 0; id < types_.size(); ++id) {
      if (!spec_.vocabulary.piece(static_cast<TokenId>(id))) spec_.types[id] = PieceType::kUnused;
    }
    spec_.types.resize(spec_.vocabulary.size());  // the model's tables are as long as its vocabulary
    spec_.scores.resize(spec_.vocabulary.size());
    return {};
  }

  // Control tokens that have no role are the markup of chats, which the converter types so whatever the
  // model's own file said. They are no pieces of the model: they are text when they are decoded, unlike BOS
  // and EOS.
  Status add_sentencepiece_vocabulary() {
    spec_.vocabulary.reserve(pieces_.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const std::string piece = sentencepiece_spelling(i);
      const bool markup = types_[i] == PieceType::kControl && !has_role(id);
      if (!markup) {
        DOPPLER_TRY(add_piece(spec_.vocabulary, spec_.extra, piece, id));
        continue;
      }
      DOPPLER_TRY(add_piece(spec_.extra, spec_.vocabulary, piece, id));
      add_token(id, true);
    }
    return {};
  }

  bool has_role(TokenId id) const {
    return std::ranges::any_of(kRoles, [&](const Role& role) { return (spec_.*role.token).id == id; });
  }

  // The converter writes user-defined pieces with plain spaces; in SentencePiece they have marks.
  std::string sentencepiece_spelling(std::size_t id) const {
    const std::string_view piece = pieces_[id];
    if (types_[id] != PieceType::kUserDefined || piece.find(' ') == std::string_view::npos)
      return std::string(piece);
    std::string marked;
    for (const char c : piece) {
      if (c == ' ')
        marked += kSpaceMark;
      else
        marked.push_back(c);
    }
    return marked;
  }

  // The piece for text that nothing else covers. With byte pieces it is never needed, but the model wants
  // one.
  Status find_unknown() {
    std::vector<TokenId> typed;
    for (std::size_t id = 0; id < types_.size(); ++id) {
      if (types_[id] == PieceType::kUnknown) typed.push_back(static_cast<TokenId>(id));
    }
    const auto place = std::ranges::find(pieces_, "<unk>");
    std::optional<TokenId> named;
    if (place != pieces_.end()) named = static_cast<TokenId>(place - pieces_.begin());
    spec_.unknown = spec_.unk.id;
    if (!spec_.unknown && typed.size() == 1) spec_.unknown = typed[0];
    if (!spec_.unknown) spec_.unknown = named;
    if (!spec_.unknown && typed.size() > 1) {
      return fail(ErrorCode::kCorrupt, "{} has two unknown tokens, {} and {}. Convert it again.", what_,
                  typed[0], typed[1]);
    }
    // Phi 3's published files give this type also to the fillers behind the last token, which are never used.
    for (const TokenId id : typed) types_[index(id)] = PieceType::kUnused;
    if (!spec_.unknown || pieces_[index(*spec_.unknown)].empty()) {
      return fail(ErrorCode::kCorrupt,
                  "{} has no unknown token: no token is of the type 2 or is named <unk>. "
                  "Convert it again.",
                  what_);
    }
    types_[index(*spec_.unknown)] = PieceType::kUnknown;
    spec_.unk = {*spec_.unknown, std::string(pieces_[index(*spec_.unknown)])};
    return {};
  }

  // Byte fallback needs all 256 pieces, and their names are fixed.
  Status check_byte_pieces() {
    std::size_t bytes = 0;
    for (std::size_t id = 0; id < types_.size(); ++id) {
      if (types_[id] != PieceType::kByte) continue;
      if (!byte_of_piece(pieces_[id])) {
        return fail(
            ErrorCode::kCorrupt,
            "{} gives the token {} ({}) the type of a byte, but bytes are named <0x00> to <0xFF>. Convert "
            "it again.",
            what_, id, printable(pieces_[id]));
      }
      ++bytes;
    }
    spec_.byte_fallback = bytes > 0;
    for (unsigned byte = 0; bytes > 0 && byte < 256; ++byte) {
      const std::string name = piece_of_byte(static_cast<unsigned char>(byte));
      const auto id = spec_.vocabulary.find(name);
      if (!id || types_[index(*id)] != PieceType::kByte) {
        return fail(ErrorCode::kCorrupt, "{} has {} byte tokens but none named {}. Convert it again.", what_,
                    bytes, name);
      }
    }
    return {};
  }

  Status read_rules() {
    SentencePieceRules& rules = spec_.sentencepiece;
    DOPPLER_ASSIGN(const auto prefix, metadata_.get_bool("tokenizer.ggml.add_space_prefix"));
    DOPPLER_ASSIGN(const auto fold, metadata_.get_bool("tokenizer.ggml.remove_extra_whitespaces"));
    rules.add_dummy_prefix = prefix.value_or(true);
    rules.remove_extra_whitespaces = fold.value_or(false);
    DOPPLER_ASSIGN(const auto charsmap, metadata_.get_array("tokenizer.ggml.precompiled_charsmap"));
    if (!charsmap) return {};
    if (charsmap->element_type() != GgufType::kU8 && charsmap->element_type() != GgufType::kI8) {
      return fail(
          ErrorCode::kCorrupt,
          "{} has a tokenizer.ggml.precompiled_charsmap of the element type {} instead of u8. Convert it "
          "again.",
          what_, gguf_type_name(charsmap->element_type()));
    }
    const std::span<const std::byte> bytes = charsmap->bytes();
    rules.charsmap.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }

  void strip_behind_special() {
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      if (types_[id] == PieceType::kUserDefined || has_role(static_cast<TokenId>(id)))
        add_token(static_cast<TokenId>(id), types_[id] != PieceType::kUserDefined);
    }
    for (AddedToken& token : spec_.added)
      token.rstrip = std::ranges::find(kPhi3Plain, token.content) == kPhi3Plain.end();
  }

  // ---- BPE.

  Status read_byte_level() {
    DOPPLER_ASSIGN(const auto name, metadata_.get_string("tokenizer.ggml.pre"));
    DOPPLER_ASSIGN(const GgufPreTokenizer* pre, find_gguf_pre_tokenizer(name.value_or("default")));
    DOPPLER_TRY(read_bpe(/*types_required=*/false));
    spec_.ignore_merges = pre->ignore_merges;
    if (pre->form.nfc) spec_.normalizer.emplace_back(normalizers::Form{UnicodeForm::kNfc});
    for (const std::string_view pattern : pre->patterns) {
      if (pattern.empty()) continue;
      spec_.pre_tokenizer.emplace_back(pre_tokenizers::Split{{std::string(pattern), /*is_regex=*/true}});
    }
    spec_.pre_tokenizer.emplace_back(
        pre_tokenizers::ByteLevel{/*add_prefix_space=*/false, /*use_regex=*/false});
    spec_.decoder = {decoders::ByteLevel{}};
    return read_bos_and_eos(pre->add_bos, false);
  }

  Status read_gemma4() {
    DOPPLER_TRY(read_bpe(/*types_required=*/true));
    DOPPLER_TRY(check_byte_pieces());
    spec_.unknown = spec_.unk.id ? spec_.unk.id : spec_.vocabulary.find("<unk>");
    spec_.fuse_unknown = true;
    DOPPLER_ASSIGN(const auto prefix, metadata_.get_bool("tokenizer.ggml.add_space_prefix"));
    if (prefix.value_or(false)) spec_.normalizer.emplace_back(normalizers::Prepend{std::string(kSpaceMark)});
    spec_.normalizer.emplace_back(normalizers::Replace{{" "}, std::string(kSpaceMark)});
    spec_.decoder = {decoders::Replace{{std::string(kSpaceMark)}, " "}, decoders::ByteFallback{},
                     decoders::Fuse{}};
    return read_bos_and_eos(/*add_bos=*/true, false);
  }

  Status read_bpe(bool types_required) {
    spec_.kind = ModelKind::kBpe;
    DOPPLER_TRY(read_pieces());
    DOPPLER_TRY(read_types(types_required));
    spec_.vocabulary.reserve(pieces_.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      // Control tokens never come out of merging, so the model does not know them.
      const bool control = types_[i] == PieceType::kControl;
      Vocabulary& own = control ? spec_.extra : spec_.vocabulary;
      DOPPLER_TRY(add_piece(own, control ? spec_.vocabulary : spec_.extra, pieces_[i], id));
      if (control || types_[i] == PieceType::kUserDefined || types_[i] == PieceType::kUnknown)
        add_token(id, types_[i] != PieceType::kUserDefined);
    }
    DOPPLER_TRY(read_roles());
    mark_roles_special();
    return read_merges();
  }

  Status read_merges() {
    constexpr std::string_view kKey = "tokenizer.ggml.merges";
    DOPPLER_ASSIGN(const auto array, metadata_.get_array(kKey));
    if (!array) return missing(kKey);
    if (array->size() > kMostMerges) {
      return fail(ErrorCode::kLimit, "{} has {} merges, more than the {} allowed. Check the file.", what_,
                  array->size(), kMostMerges);
    }
    DOPPLER_ASSIGN(const std::vector<std::string_view> merges, array->strings());
    spec_.merges.reserve(merges.size());
    std::string joined;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      // From 1, because the left piece may itself begin with a space.
      const std::size_t space = merges[i].find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merges[i].size()) {
        return fail(
            ErrorCode::kCorrupt,
            "{} has the merge {} ({}), which is not two pieces with a space between. Convert it again.",
            what_, i, printable(merges[i]));
      }
      const std::string_view left = merges[i].substr(0, space), right = merges[i].substr(space + 1);
      joined.assign(left);
      joined += right;
      Merge merge;
      const std::pair<std::string_view, TokenId*> parts[] = {
          {left, &merge.left}, {right, &merge.right}, {joined, &merge.result}};
      for (const auto& [piece, id] : parts) {
        const auto found = spec_.vocabulary.find(piece);
        if (!found) return unknown_merge_piece(i, merges[i], piece);
        *id = *found;
      }
      spec_.merges.push_back(merge);
    }
    return {};
  }

  std::unexpected<Error> unknown_merge_piece(std::size_t number, std::string_view merge,
                                             std::string_view piece) const {
    return fail(ErrorCode::kCorrupt, "{} has the merge {} ({}) but no token {}. Convert it again.", what_,
                number, printable(merge), printable(piece));
  }

  const GgufMetadata& metadata_;
  std::string_view what_;
  std::vector<std::string_view> pieces_;  // by id, in the file's bytes
  std::vector<PieceType> types_;          // by id
  TokenizerSpec spec_;
};

}  // namespace

Result<std::optional<TokenizerSpec>> read_gguf_tokenizer(const GgufMetadata& metadata,
                                                         std::string_view what) {
  return GgufReader(metadata, what).run();
}

bool has_gguf_tokenizer(const GgufMetadata& metadata) {
  if (!metadata.has("tokenizer.ggml.model")) return false;
  const auto kind = metadata.get_string("tokenizer.ggml.model");
  return !kind || (**kind != "none" && **kind != "no_vocab");  // a value of another type is an error to come
}

Result<std::optional<Tokenizer>> load_gguf_tokenizer(const GgufMetadata& metadata, std::string_view what) {
  DOPPLER_ASSIGN(std::optional<TokenizerSpec> spec, read_gguf_tokenizer(metadata, what));
  if (!spec) return std::nullopt;
  DOPPLER_ASSIGN(Tokenizer tokenizer, Tokenizer::from_spec(std::move(*spec)));
  return std::optional(std::move(tokenizer));
}

}  // namespace doppler::tokenizer
