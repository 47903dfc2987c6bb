#include "tokenizer/tokenizer_json.h"

#include <array>

#include "base/json.h"
#include "base/text.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/json_steps.h"

namespace doppler::tokenizer {
namespace {

// Strings in one block: half a million small std::strings would cost ten times as much.
class StringList {
 public:
  void add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;
};

// model.vocab and model.merges as they stand in the file.
struct BigMembers {
  StringList pieces;
  std::vector<std::int64_t> ids;  // of an object vocab
  std::vector<double> scores;     // of a list vocab
  StringList merge_texts;         // "a b", or a and b one after the other
  bool merges_are_pairs = false;
};

// Reads the whole file once: a Json of everything small, and the two big members of the model on the side.
class TextParser : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;
  TextParser(Json& rest, BigMembers& big) : Base(rest, /*allow_exceptions=*/false), big_(big) {}

  bool null() { return inside_ ? refuse("null") : Base::null(); }
  bool boolean(bool value) { return inside_ ? refuse("true or false") : Base::boolean(value); }
  bool number_integer(std::int64_t value) {
    return inside_ ? number(static_cast<double>(value), value) : Base::number_integer(value);
  }
  bool number_unsigned(std::uint64_t value) {
    if (!inside_) return Base::number_unsigned(value);
    return number(static_cast<double>(value),
                  value > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string& text) {
    return inside_ ? number(value, std::nullopt) : Base::number_float(value, text);
  }
  bool binary(Json::binary_t& value) { return Base::binary(value); }

  bool string(std::string& value) {
    if (!inside_) return Base::string(value);
    if (member_ == Member::kVocab) {
      if (depth_ != model_depth_ + 3 || position_++ != 0) return refuse("a string");
      big_.pieces.add(value);
      return true;
    }
    const bool pair = depth_ == model_depth_ + 3;
    if (big_.merge_texts.size() == 0) big_.merges_are_pairs = pair;
    if (big_.merges_are_pairs != pair || (pair && position_++ > 1)) return refuse("a string");
    big_.merge_texts.add(value);
    return true;
  }

  bool key(std::string& value) {
    if (inside_) {
      if (member_ != Member::kVocab || waits_for_id_) return refuse("a key");
      big_.pieces.add(value);
      return waits_for_id_ = true;
    }
    if (depth_ == 1) in_model_ = value == "model";
    if (depth_ == 2 && in_model_) {
      if (value == "vocab")
        member_ = Member::kVocab;
      else if (value == "merges")
        member_ = Member::kMerges;
      else
        member_ = Member::kNone;
      if (member_ != Member::kNone && seen_[static_cast<std::size_t>(member_)])
        return refuse("the same member again");
    } else {
      member_ = Member::kNone;
    }
    return Base::key(value);
  }

  bool start_object(std::size_t size) { return open(/*object=*/true, size); }
  bool start_array(std::size_t size) { return open(/*object=*/false, size); }
  bool end_object() { return close(/*object=*/true); }
  bool end_array() { return close(/*object=*/false); }

  template <typename Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception& error) {
    if (!failed_) position_of_error_ = position;
    failed_ = true;
    return Base::parse_error(position, token, error);
  }

  bool failed() const { return failed_; }
  std::size_t position_of_error() const { return position_of_error_; }
  const std::string& refused() const { return refused_; }

 private:
  enum class Member { kNone, kVocab, kMerges };

  // A value that belongs to nothing we know; parsing ends.
  bool refuse(std::string_view found) {
    if (refused_.empty()) {
      refused_ = fmt::format("{} where the model's {} cannot have it", found,
                             member_ == Member::kVocab ? "vocab" : "merges");
    }
    return false;
  }

  bool number(double value, std::optional<std::int64_t> whole) {
    if (member_ != Member::kVocab) return refuse("a number");
    if (depth_ == model_depth_ + 2 && waits_for_id_ && whole) {
      waits_for_id_ = false;
      big_.ids.push_back(*whole);
      return true;
    }
    if (depth_ == model_depth_ + 3 && position_++ == 1) {
      big_.scores.push_back(value);
      return true;
    }
    return refuse("a number");
  }

  bool open(bool object, std::size_t size) {
    if (!inside_ && member_ != Member::kNone && depth_ == 2) {
      if (object && member_ == Member::kMerges) return refuse("an object");
      inside_ = true;
      seen_[static_cast<std::size_t>(member_)] = true;
      list_of_lists_ = !object;
      model_depth_ = 1;
      ++depth_;
      return Base::null();  // its place in the rest
    }
    if (inside_) {
      if (object || depth_ != model_depth_ + 2 || !list_of_lists_)
        return refuse(object ? "an object" : "a list");
      position_ = 0;
      ++depth_;
      return true;
    }
    ++depth_;
    return object ? Base::start_object(size) : Base::start_array(size);
  }

  bool close(bool object) {
    --depth_;
    if (inside_) {
      if (depth_ > model_depth_ + 1) return position_ == 2 || refuse("a list of another length than two");
      inside_ = false;
      member_ = Member::kNone;
      return true;
    }
    return object ? Base::end_object() : Base::end_array();
  }

  BigMembers& big_;
  int depth_ = 0, model_depth_ = 1;
  bool in_model_ = false, inside_ = false, list_of_lists_ = false, waits_for_id_ = false;
  Member member_ = Member::kNone;
  std::array<bool, 3> seen_{};
  int position_ = 0;  // in an inner list
  bool failed_ = false;
  std::size_t position_of_error_ = 0;
  std::string refused_;
};

Status read_file(std::string_view text, std::string_view what, Json& rest, BigMembers& big) {
  DOPPLER_TRY(check_json_depth(text, what));
  TextParser reader(rest, big);
  Json::sax_parse(text.begin(), text.end(), &reader);
  if (!reader.refused().empty()) {
    return fail(ErrorCode::kCorrupt, "{} has {}. Download it again or correct it.", what, reader.refused());
  }
  if (reader.failed() || rest.is_discarded()) {
    const std::size_t at = reader.position_of_error();
    return fail(ErrorCode::kCorrupt, "{} is not valid JSON at {}. Download it again or correct it there.",
                what, describe_position(text, at > 0 ? at - 1 : 0));
  }
  if (!rest.is_object())
    return fail(ErrorCode::kCorrupt, "{} is no JSON object. Check that it is the right file.", what);
  return {};
}

Status add_piece(Vocabulary& vocabulary, std::string_view piece, std::int64_t id, std::string_view what) {
  if (id < 0 || id > kMaxTokenId) {
    return fail(ErrorCode::kLimit, "{} gives the piece {} the id {}, outside of 0 to {}. Download it again.",
                what, printable(piece), id, kMaxTokenId);
  }
  switch (vocabulary.add(piece, static_cast<TokenId>(id))) {
    case Vocabulary::Added::kYes:
      return {};
    case Vocabulary::Added::kPieceTaken:
      return fail(ErrorCode::kCorrupt,
                  "{} has the piece {} twice, with the ids {} and {}. Download it again.", what,
                  printable(piece), *vocabulary.find(piece), id);
    case Vocabulary::Added::kIdTaken:
      return fail(ErrorCode::kCorrupt, "{} gives the id {} to both {} and {}. Download it again.", what, id,
                  printable(*vocabulary.piece(static_cast<TokenId>(id))), printable(piece));
  }
  return {};
}

Status fill_vocabulary(const BigMembers& big, std::string_view what, TokenizerSpec& spec) {
  const bool scored = spec.kind == ModelKind::kUnigram;
  if (big.pieces.size() != (scored ? big.scores.size() : big.ids.size())) {
    return fail(
        ErrorCode::kCorrupt, "{} has a vocab that is not {}. Download it again.", what,
        scored ? "a list of pairs of piece and score, as Unigram needs" : "an object of pieces and ids");
  }
  for (std::size_t i = 0; i < big.pieces.size(); ++i) {
    const std::int64_t id = scored ? static_cast<std::int64_t>(i) : big.ids[i];
    DOPPLER_TRY(add_piece(spec.vocabulary, big.pieces[i], id, what));
  }
  if (scored) spec.scores = big.scores;
  return {};
}

Result<TokenId> merge_part(const TokenizerSpec& spec, std::string_view piece, std::string_view merge,
                           std::size_t number, std::string_view what) {
  if (const auto id = spec.vocabulary.find(piece)) return *id;
  return fail(ErrorCode::kCorrupt, "{} has the merge {} ({}) but its vocab lacks {}. Download it again.",
              what, number, printable(merge), printable(piece));
}

Status add_merge(std::string_view left, std::string_view right, std::size_t number, std::string_view what,
                 TokenizerSpec& spec) {
  const std::string shown = fmt::format("{} {}", left, right);
  Merge merge;
  DOPPLER_ASSIGN(merge.left, merge_part(spec, left, shown, number, what));
  DOPPLER_ASSIGN(merge.right, merge_part(spec, right, shown, number, what));
  // The right part loses the prefix that marks it as the inside of a word.
  const std::size_t prefix = std::min(spec.subword_prefix.size(), right.size());
  const std::string joined = std::string(left) + std::string(right.substr(prefix));
  DOPPLER_ASSIGN(merge.result, merge_part(spec, joined, shown, number, what));
  return spec.merges.push_back(merge), Status();
}

Status fill_merges(const BigMembers& big, std::string_view what, TokenizerSpec& spec) {
  const StringList& texts = big.merge_texts;
  if (big.merges_are_pairs) {
    spec.merges.reserve(texts.size() / 2);
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2) {
      DOPPLER_TRY(add_merge(texts[i], texts[i + 1], i / 2, what, spec));
    }
    return {};
  }
  spec.merges.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = texts[i];
    if (text.starts_with("#version")) continue;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return fail(
          ErrorCode::kCorrupt,
          "{} has the merge {} ({}), which is not two pieces with one space between. Download it again.",
          what, i, printable(text));
    }
    DOPPLER_TRY(add_merge(text.substr(0, space), text.substr(space + 1), i, what, spec));
  }
  return {};
}

Status set_unknown(const std::optional<std::string>& token, std::string_view what, TokenizerSpec& spec) {
  if (!token) return {};
  spec.unknown = spec.vocabulary.find(*token);
  if (!spec.unknown) {
    return fail(ErrorCode::kCorrupt, "{} names the unk_token {} but its vocab lacks it. Download it again.",
                what, printable(*token));
  }
  return {};
}

// The model's kind; files from before `type` was written are told by what they hold.
Result<ModelKind> read_kind(const JsonFields& model, const BigMembers& big, std::string_view what) {
  static constexpr auto kKinds = std::to_array<std::pair<std::string_view, ModelKind>>({
      {"BPE", ModelKind::kBpe},
      {"Unigram", ModelKind::kUnigram},
      {"WordPiece", ModelKind::kWordPiece},
      {"WordLevel", ModelKind::kWordLevel},
  });
  const bool scored = big.scores.size() > 0, merged = big.merge_texts.size() > 0;
  const char* guess = scored                                   ? "Unigram"
                      : merged                                 ? "BPE"
                      : model.find("max_input_chars_per_word") ? "WordPiece"
                                                               : "WordLevel";
  DOPPLER_ASSIGN(const std::string type, model.text("type", guess));
  for (const auto& [name, kind] : kKinds) {
    if (type == name) return kind;
  }
  return fail(ErrorCode::kUnsupported,
              "The model type {} of {} is not supported. Doppler knows BPE, Unigram, WordPiece, WordLevel.",
              printable(type), inside_sentence(what));
}

Status read_bpe(const JsonFields& model, const BigMembers& big, std::string_view what, TokenizerSpec& spec) {
  if (const Json* dropout = model.find("dropout"); dropout != nullptr && *dropout != 0.0) {
    return fail(ErrorCode::kUnsupported,
                "{} asks for a BPE dropout of {}, which is for training. Set it to null.", what,
                dropout->dump());
  }
  DOPPLER_ASSIGN(spec.fuse_unknown, model.boolean("fuse_unk", false));
  DOPPLER_ASSIGN(spec.byte_fallback, model.boolean("byte_fallback", false));
  DOPPLER_ASSIGN(spec.ignore_merges, model.boolean("ignore_merges", false));
  DOPPLER_ASSIGN(spec.subword_prefix, model.text("continuing_subword_prefix", ""));
  DOPPLER_ASSIGN(spec.word_suffix, model.text("end_of_word_suffix", ""));
  return fill_merges(big, what, spec);
}

Status read_unigram(const JsonFields& model, std::string_view what, TokenizerSpec& spec) {
  DOPPLER_ASSIGN(spec.byte_fallback, model.boolean("byte_fallback", false));
  spec.fuse_unknown = true;
  if (model.find("unk_id") == nullptr) return {};
  DOPPLER_ASSIGN(const std::int64_t unknown, model.number("unk_id", 0, kMaxTokenId));
  if (!spec.vocabulary.piece(static_cast<TokenId>(unknown))) {
    return fail(ErrorCode::kCorrupt, "{} names the unk_id {} but its vocab has {} pieces. Download it again.",
                what, unknown, spec.vocabulary.size());
  }
  return spec.unknown = static_cast<TokenId>(unknown), Status();
}

Status read_model(const Json& rest, const BigMembers& big, std::string_view what, TokenizerSpec& spec) {
  const auto it = rest.find("model");
  if (it == rest.end() || !it->is_object()) {
    return fail(ErrorCode::kCorrupt, "{} has no model. Check that it is a tokenizer.json.", what);
  }
  const JsonFields model(*it, fmt::format("The model of {}", inside_sentence(what)));
  DOPPLER_ASSIGN(spec.kind, read_kind(model, big, what));
  DOPPLER_TRY(fill_vocabulary(big, what, spec));
  if (spec.kind == ModelKind::kUnigram) return read_unigram(model, what, spec);
  const bool word_kind = spec.kind != ModelKind::kBpe;
  if (word_kind || model.find("unk_token") != nullptr) {
    DOPPLER_ASSIGN(std::string unknown, model.text("unk_token", word_kind ? "[UNK]" : ""));
    if (word_kind && !spec.vocabulary.find(unknown))
      spec.unknown = std::nullopt;
    else
      DOPPLER_TRY(set_unknown(std::move(unknown), what, spec));
  }
  if (spec.kind == ModelKind::kBpe) return read_bpe(model, big, what, spec);
  DOPPLER_ASSIGN(spec.subword_prefix, model.text("continuing_subword_prefix", "##"));
  DOPPLER_ASSIGN(const std::int64_t most, model.number("max_input_chars_per_word", 100, 100'000));
  return spec.max_word_chars = static_cast<std::size_t>(most), Status();
}

Status add_token(const Json& value, std::string_view what, TokenizerSpec& spec) {
  const JsonFields fields(value, fmt::format("An added token of {}", inside_sentence(what)));
  AddedToken token;
  DOPPLER_ASSIGN(token.content, fields.required_text("content"));
  if (token.content.empty()) return {};
  if (fields.find("id") == nullptr) return fields.wrong("id", "a number");
  DOPPLER_ASSIGN(const std::int64_t id, fields.number("id", 0, kMaxTokenId));
  token.id = static_cast<TokenId>(id);
  DOPPLER_ASSIGN(token.single_word, fields.boolean("single_word", false));
  DOPPLER_ASSIGN(token.lstrip, fields.boolean("lstrip", false));
  DOPPLER_ASSIGN(token.rstrip, fields.boolean("rstrip", false));
  DOPPLER_ASSIGN(token.special, fields.boolean("special", false));
  DOPPLER_ASSIGN(token.normalized, fields.boolean("normalized", !token.special));
  // A token that the vocabulary has keeps the vocabulary's id, whatever is written here, as in the original.
  if (const auto known = spec.vocabulary.find(token.content)) {
    token.id = *known;
  } else if (const auto taken = spec.vocabulary.piece(token.id)) {
    return fail(ErrorCode::kCorrupt, "{} gives the id {} to both {} and {}. Download it again.", what, id,
                printable(*taken), printable(token.content));
  } else {
    DOPPLER_TRY(add_piece(spec.extra, token.content, id, what));
  }
  return spec.added.push_back(std::move(token)), Status();
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text, std::string_view what) {
  if (text.size() > kMaxTokenizerJsonBytes) {
    return fail(ErrorCode::kLimit,
                "{} holds {} bytes, more than the {} allowed. Check that it is the right file.", what,
                text.size(), kMaxTokenizerJsonBytes);
  }
  Json rest;
  BigMembers big;
  DOPPLER_TRY(read_file(text, what, rest, big));
  TokenizerSpec spec;
  DOPPLER_TRY(read_model(rest, big, what, spec));
  const JsonFields root(rest, std::string(what));
  const Json nothing;
  const auto member = [&](const char* key) -> const Json& {
    const Json* value = root.find(key);
    return value == nullptr ? nothing : *value;
  };
  DOPPLER_ASSIGN(const Json* added, root.array("added_tokens"));
  if (added != nullptr) {
    for (const Json& token : *added) DOPPLER_TRY(add_token(token, what, spec));
  }
  DOPPLER_ASSIGN(spec.normalizer, read_normalizer(member("normalizer"), what));
  DOPPLER_ASSIGN(spec.pre_tokenizer, read_pre_tokenizer(member("pre_tokenizer"), what));
  DOPPLER_ASSIGN(spec.post_processor, read_post_processor(member("post_processor"), what));
  DOPPLER_ASSIGN(spec.decoder, read_decoder(member("decoder"), what));
  return spec;
}

}  // namespace doppler::tokenizer
