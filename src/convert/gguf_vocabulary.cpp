#include "convert/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "convert/pre_name.h"
#include "system/files.h"
#include "tokenizer/tokenizer.h"

namespace doppler::convert {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
// The score that llama.cpp's converter gives to tokens without a score of their own.
constexpr float kAddedScore = -1000;

enum class Kind { kLlama, kT5, kGpt2, kGemma4 };

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

bool is_sentencepiece(const tokenizer::TokenizerSpec& spec) {
  return spec.kind == tokenizer::ModelKind::kSentencePieceBpe ||
         spec.kind == tokenizer::ModelKind::kSentencePieceUnigram;
}

bool is_byte_level(const tokenizer::TokenizerSpec& spec) {
  return spec.kind == tokenizer::ModelKind::kBpe &&
         std::ranges::any_of(spec.pre_tokenizer, [](const tokenizer::PreTokenizerStep& step) {
           return std::holds_alternative<tokenizer::pre_tokenizers::ByteLevel>(step);
         });
}

// SentencePiece's BPE merges whatever two pieces make a piece, the best score first. A list of merges says
// the same if it has every such pair and all merges into one piece stand together.
bool merges_are_scores(const tokenizer::TokenizerSpec& spec) {
  std::unordered_set<std::uint64_t> pairs;
  std::vector<bool> closed(spec.vocabulary.size());
  TokenId last = -1;
  for (const tokenizer::Merge& merge : spec.merges) {
    pairs.insert(static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint32_t>(merge.right));
    if (merge.result == last) continue;
    if (last >= 0) closed[static_cast<std::size_t>(last)] = true;
    last = merge.result;
    if (closed[static_cast<std::size_t>(last)]) return false;
  }
  for (std::size_t i = 0; i < spec.vocabulary.size(); ++i) {
    const auto piece = spec.vocabulary.piece(static_cast<TokenId>(i));
    for (std::size_t cut = 1; piece && cut < piece->size(); ++cut) {
      const auto left = spec.vocabulary.find(piece->substr(0, cut));
      const auto right = left ? spec.vocabulary.find(piece->substr(cut)) : std::nullopt;
      if (!right) continue;
      if (!pairs.contains(static_cast<std::uint64_t>(*left) << 32 | static_cast<std::uint32_t>(*right)))
        return false;
    }
  }
  return true;
}

// Spaces become marks, and nothing else happens to the text.
bool has_plain_normalizer(const tokenizer::TokenizerSpec& spec) {
  for (const tokenizer::NormalizerStep& step : spec.normalizer) {
    if (const auto* prepend = std::get_if<tokenizer::normalizers::Prepend>(&step); prepend != nullptr) {
      if (prepend->content != kSpaceMark) return false;
      continue;
    }
    const auto* replace = std::get_if<tokenizer::normalizers::Replace>(&step);
    if (replace == nullptr || replace->pattern.is_regex || replace->pattern.text != " " ||
        replace->content != kSpaceMark)
      return false;
  }
  // Splitting at spaces has no effect once there are none; Metaspace is the other way to express all this.
  for (const tokenizer::PreTokenizerStep& step : spec.pre_tokenizer) {
    if (const auto* meta = std::get_if<tokenizer::pre_tokenizers::Metaspace>(&step); meta != nullptr) {
      if (meta->split || meta->replacement != kSpaceMark) return false;
      continue;
    }
    const auto* split = std::get_if<tokenizer::pre_tokenizers::Split>(&step);
    if (split == nullptr || split->pattern.is_regex || split->pattern.text != " " || spec.normalizer.empty())
      return false;
  }
  return !spec.normalizer.empty() || !spec.pre_tokenizer.empty();
}

bool prepends_space(const tokenizer::TokenizerSpec& spec) {
  if (is_sentencepiece(spec)) return spec.sentencepiece.add_dummy_prefix;
  const bool prepend = std::ranges::any_of(spec.normalizer, [](const tokenizer::NormalizerStep& step) {
    return std::holds_alternative<tokenizer::normalizers::Prepend>(step);
  });
  return prepend || std::ranges::any_of(spec.pre_tokenizer, [](const tokenizer::PreTokenizerStep& step) {
           const auto* meta = std::get_if<tokenizer::pre_tokenizers::Metaspace>(&step);
           return meta != nullptr && meta->prepend != tokenizer::PrependScheme::kNever;
         });
}

// Recognises markup by its spelling, for tokenizers whose files do not mark it as special.
bool looks_special(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<｜") && text.ends_with("｜>")) || text.starts_with("<unused") ||
         text == "<pad>" || text == "<mask>" || text == "<start_of_turn>" || text == "<end_of_turn>";
}

std::unexpected<Error> unsupported(std::string_view reason) {
  return fail(ErrorCode::kUnsupported,
              "{} Give --no-tokenizer to convert the model without its tokenizer; it then runs on token ids "
              "only.",
              reason);
}

class VocabularyWriter {
 public:
  VocabularyWriter(const tokenizer::TokenizerSpec& spec, const VocabularyFacts& facts)
      : spec_(spec), facts_(facts) {}

  Result<GgufVocabulary> run() {
    DOPPLER_TRY(find_kind());
    fill_tokens();
    mark_added();
    add_text("tokenizer.ggml.model", kModelNames[static_cast<std::size_t>(kind_)]);
    if (!pre_.empty()) add_text("tokenizer.ggml.pre", pre_);
    out_.entries.push_back({"tokenizer.ggml.tokens", std::move(tokens_)});
    if (kind_ != Kind::kGpt2) out_.entries.push_back({"tokenizer.ggml.scores", std::move(scores_)});
    out_.entries.push_back({"tokenizer.ggml.token_type", std::move(types_)});
    if (kind_ == Kind::kGpt2 || kind_ == Kind::kGemma4) add_merges();
    add_roles();
    add_wrapping();
    if (kind_ != Kind::kGpt2)
      out_.entries.push_back({"tokenizer.ggml.add_space_prefix", prepends_space(spec_)});
    add_sentencepiece_rules();
    return std::move(out_);
  }

 private:
  static constexpr std::array<std::string_view, 4> kModelNames = {"llama", "t5", "gpt2", "gemma4"};
  static std::size_t index(TokenId id) { return static_cast<std::size_t>(id); }

  void add_text(std::string key, std::string_view text) {
    out_.entries.push_back({std::move(key), std::string(text)});
  }

  Status find_kind() {
    if (is_sentencepiece(spec_)) {
      kind_ = spec_.kind == tokenizer::ModelKind::kSentencePieceBpe ? Kind::kLlama : Kind::kT5;
      if (spec_.sentencepiece.treat_whitespace_as_suffix || !spec_.sentencepiece.escape_whitespaces)
        return unsupported("The SentencePiece model treats spaces in a way that GGUF has no words for.");
      return {};
    }
    if (spec_.kind != tokenizer::ModelKind::kBpe || !spec_.subword_prefix.empty() ||
        !spec_.word_suffix.empty())
      return unsupported("The tokenizer is of a kind that GGUF has no words for.");
    if (is_byte_level(spec_)) {
      kind_ = Kind::kGpt2;
      const auto row = name_pre_tokenizer(spec_);
      if (!row) return unsupported(row.error().message);
      pre_ = (*row)->name;
      if ((*row)->form.nfc != normalises_to_nfc(spec_)) {
        out_.warnings.push_back(
            fmt::format("The tokenizer {} its text to NFC, but readers of the pre-tokenizer {} {}.",
                        (*row)->form.nfc ? "does not normalise" : "normalises", pre_,
                        (*row)->form.nfc ? "do" : "do not"));
      }
      return {};
    }
    if (!spec_.byte_fallback || !has_plain_normalizer(spec_))
      return unsupported("The tokenizer is of a kind that GGUF has no words for.");
    kind_ = merges_are_scores(spec_) && !spec_.ignore_merges ? Kind::kLlama : Kind::kGemma4;
    if (kind_ == Kind::kGemma4) pre_.clear();
    return {};
  }

  void fill_tokens() {
    const std::size_t known = std::max(spec_.vocabulary.size(), spec_.extra.size());
    const std::size_t size = facts_.vocab_size > 0 ? facts_.vocab_size : known;
    if (known > size) {
      out_.warnings.push_back(fmt::format(
          "The tokenizer has {} tokens but the embedding {} rows; the tokens beyond them are left out.",
          known, size));
    }
    size_ = size;
    tokens_.resize(size);
    types_.assign(size, static_cast<std::int32_t>(tokenizer::PieceType::kUnused));
    scores_.assign(size, kAddedScore);
    for (std::size_t i = 0; i < size; ++i) {
      const auto id = static_cast<TokenId>(i);
      if (const auto piece = spec_.vocabulary.piece(id)) {
        tokens_[i] = *piece;
        types_[i] = static_cast<std::int32_t>(piece_type(id, *piece));
        scores_[i] = is_sentencepiece(spec_) ? static_cast<float>(spec_.scores[i]) : 0;
      } else if (const auto extra = spec_.extra.piece(id)) {
        tokens_[i] = *extra;
        types_[i] = static_cast<std::int32_t>(tokenizer::PieceType::kControl);
      } else {
        tokens_[i] = fmt::format("[PAD{}]", i);
      }
    }
    if (is_sentencepiece(spec_) || kind_ != Kind::kLlama) return;
    // By rank: the first merge into a piece is the one that counts.
    for (std::size_t rank = spec_.merges.size(); rank-- > 0;) {
      const std::size_t result = index(spec_.merges[rank].result);
      if (result < size) scores_[result] = -static_cast<float>(rank + 1);
    }
  }

  tokenizer::PieceType piece_type(TokenId id, std::string_view piece) const {
    if (is_sentencepiece(spec_)) {
      const tokenizer::PieceType type = spec_.types[index(id)];
      // SentencePiece never finds a user's piece with plain spaces, because it has made them marks before.
      if (type == tokenizer::PieceType::kUserDefined && piece.find(' ') != std::string_view::npos)
        return tokenizer::PieceType::kNormal;
      return type;
    }
    if (kind_ == Kind::kGpt2) return tokenizer::PieceType::kNormal;
    if (spec_.unknown == id) return tokenizer::PieceType::kUnknown;
    const bool byte = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
    return byte ? tokenizer::PieceType::kByte : tokenizer::PieceType::kNormal;
  }

  void mark_added() {
    for (const tokenizer::AddedToken& token : spec_.added) {
      const std::size_t id = index(token.id);
      if (id >= types_.size()) continue;
      const auto old = static_cast<tokenizer::PieceType>(types_[id]);
      if (old == tokenizer::PieceType::kByte ||
          (old == tokenizer::PieceType::kUnknown && kind_ != Kind::kGemma4))
        continue;
      const bool special = token.special || looks_special(token.content);
      types_[id] = static_cast<std::int32_t>(special ? tokenizer::PieceType::kControl
                                                     : tokenizer::PieceType::kUserDefined);
      scores_[id] = kAddedScore;
    }
    // Users' pieces are spelled as the text they stand for.
    for (std::size_t id = 0; id < types_.size(); ++id) {
      if (types_[id] == static_cast<std::int32_t>(tokenizer::PieceType::kUserDefined) && kind_ != Kind::kGpt2)
        tokens_[id] = replace_all(std::move(tokens_[id]), kSpaceMark, " ");
    }
  }

  void add_merges() {
    std::vector<std::string> merges;
    merges.reserve(spec_.merges.size());
    for (const tokenizer::Merge& merge : spec_.merges) {
      merges.push_back(fmt::format("{} {}", spec_.vocabulary.piece(merge.left).value_or(""),
                                   spec_.vocabulary.piece(merge.right).value_or("")));
    }
    out_.entries.push_back({"tokenizer.ggml.merges", std::move(merges)});
  }

  void add_id(std::string_view name, std::optional<std::int32_t> id) {
    if (!id || *id < 0 || index(*id) >= size_) return;
    out_.entries.push_back(
        {fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<std::uint32_t>(*id)});
  }

  // The single token that stands before (or behind) every text, in tokenizers that name no roles.
  std::optional<std::int32_t> wrapping_token(bool behind) const {
    if (spec_.post_processor.size() != 1) return std::nullopt;
    const tokenizer::PostProcessorStep& step = spec_.post_processor[0];
    const auto text = std::ranges::find(step, tokenizer::TemplateItem());
    const auto before = static_cast<std::size_t>(text - step.begin());
    if (!behind) return before == 1 ? step.front() : std::nullopt;
    return before + 2 == step.size() ? step.back() : std::nullopt;
  }

  void add_roles() {
    std::optional<std::int32_t> eos = spec_.eos.id;
    if (!eos && !facts_.eos_ids.empty()) eos = facts_.eos_ids[0];
    if (!eos) eos = wrapping_token(/*behind=*/true);
    eos_ = eos;
    bos_ = spec_.bos.id ? spec_.bos.id : facts_.bos_id;
    if (!bos_) bos_ = wrapping_token(/*behind=*/false);
    add_id("bos", bos_);
    add_id("eos", eos);
    add_id("unknown", spec_.unk.id ? spec_.unk.id : is_sentencepiece(spec_) ? spec_.unknown : std::nullopt);
    add_id("padding", spec_.pad.id ? spec_.pad.id : facts_.pad_id);
    // The other ids that end an answer; readers stop at both.
    std::vector<std::string_view> names = {"eom", "eot"};
    for (const std::int32_t id : facts_.eos_ids) {
      if (id == eos) continue;
      if (names.empty()) {
        out_.warnings.push_back(
            fmt::format("The token {} ends answers, too, but GGUF has no key for a fourth.", id));
        continue;
      }
      add_id(names.back(), id);
      names.pop_back();
    }
  }

  // Which tokens stand before and behind a text.
  void add_wrapping() {
    bool add_bos = false, add_eos = false;
    for (const tokenizer::PostProcessorStep& step : spec_.post_processor) {
      bool behind = false;
      for (const tokenizer::TemplateItem& item : step) {
        if (!item)
          behind = true;
        else if (!behind && item == bos_)
          add_bos = true;
        else if (behind && item == eos_)
          add_eos = true;
        else
          out_.warnings.push_back(
              fmt::format("The tokenizer puts the token {} around texts, which GGUF cannot say.", *item));
      }
    }
    out_.entries.push_back({"tokenizer.ggml.add_bos_token", add_bos});
    out_.entries.push_back({"tokenizer.ggml.add_eos_token", add_eos});
  }

  void add_sentencepiece_rules() {
    if (!is_sentencepiece(spec_)) return;
    const tokenizer::SentencePieceRules& rules = spec_.sentencepiece;
    if (kind_ == Kind::kT5 || rules.remove_extra_whitespaces)
      out_.entries.push_back({"tokenizer.ggml.remove_extra_whitespaces", rules.remove_extra_whitespaces});
    if (rules.charsmap.empty()) return;
    out_.entries.push_back({"tokenizer.ggml.precompiled_charsmap",
                            std::vector<std::uint8_t>(rules.charsmap.begin(), rules.charsmap.end())});
  }

  const tokenizer::TokenizerSpec& spec_;
  const VocabularyFacts& facts_;
  Kind kind_ = Kind::kLlama;
  std::string pre_ = "default";
  std::optional<std::int32_t> bos_, eos_;
  std::size_t size_ = 0;  // of the lists
  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::vector<std::int32_t> types_;
  GgufVocabulary out_;
};

// Tokens that tokenizer.json adds and a SentencePiece model does not have.
void take_added(const tokenizer::TokenizerSpec& from, tokenizer::TokenizerSpec& into) {
  for (const tokenizer::AddedToken& token : from.added) {
    const bool known =
        std::ranges::any_of(into.added, [&](const tokenizer::AddedToken& t) { return t.id == token.id; });
    if (known || into.vocabulary.piece(token.id) || into.extra.piece(token.id)) continue;
    if (into.vocabulary.find(token.content)) continue;
    if (into.extra.add(token.content, token.id) == tokenizer::Vocabulary::Added::kYes)
      into.added.push_back(token);
  }
}

}  // namespace

Result<GgufVocabulary> gguf_vocabulary(const tokenizer::TokenizerSpec& spec, const VocabularyFacts& facts) {
  return VocabularyWriter(spec, facts).run();
}

Result<std::optional<tokenizer::TokenizerSpec>> read_folder_tokenizer(const std::filesystem::path& folder) {
  const bool has_json = system::exists(folder / "tokenizer.json");
  const bool has_model = system::exists(folder / "tokenizer.model");
  if (!has_json && !has_model) return std::nullopt;
  DOPPLER_ASSIGN(const tokenizer::Tokenizer first, tokenizer::Tokenizer::load(folder));
  tokenizer::TokenizerSpec spec = first.spec();
  if (!has_json || !has_model || is_byte_level(spec)) return std::optional(std::move(spec));
  DOPPLER_ASSIGN(const tokenizer::Tokenizer model, tokenizer::Tokenizer::load(folder / "tokenizer.model"));
  tokenizer::TokenizerSpec exact = model.spec();
  take_added(spec, exact);
  return std::optional(std::move(exact));
}

}  // namespace doppler::convert
