#include "diagnosis/compare/compare_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/unicode.h"
#include "diagnosis/compare/compare_texts_parts.h"
#include "diagnosis/compare/text_repairs.h"
#include "tokenizer/byte_level.h"

namespace doppler::diagnosis {
namespace {

using tokenizer::Tokenizer;
using tokenizer::TokenizerSpec;
using Ids = std::vector<TokenId>;

// Ids as pieces, and the places in the text where one ends and the next begins.
struct Cut {
  std::string text;            // all pieces together
  std::set<std::size_t> ends;  // behind each piece
  std::vector<std::string> pieces;
};

class TokenizerComparison {
 public:
  TokenizerComparison(const TextTruth& truth, const TextSide& ours, TextFindings& findings)
      : truth_(truth),
        ours_(ours),
        findings_(findings),
        spec_(ours.tokenizer->spec()),
        tokenizer_(*ours.tokenizer) {}

  Status run() {
    byte_level_ = is_byte_level(spec_);
    compare_vocabulary();
    if (findings_.has("reference_mismatch")) return {};
    find_plain_texts();
    compare_plain();
    compare_special_in_texts();
    compare_frames();
    compare_special_flags();
    compare_decoding();
    compare_roles();
    return {};
  }

 private:
  // ---- the vocabulary

  std::string canonical(std::string_view piece) const {
    if (tokenizer::byte_of_piece(piece)) return std::string(piece);
    return surface_of(piece, false);
  }

  static std::string_view bare(std::string_view text) {
    const std::size_t first = text.find_first_not_of(' ');
    return first == std::string_view::npos ? text : text.substr(first);
  }
  bool is_added(TokenId id) const {
    return std::ranges::find(spec_.added, id, &tokenizer::AddedToken::id) != spec_.added.end();
  }
  bool is_special_in_truth(TokenId id) const {
    return std::ranges::find(truth_.special, id) != truth_.special.end();
  }

  void compare_vocabulary() {
    std::size_t moved = 0, other = 0, special = 0, missing = 0;
    std::string example, special_example;
    for (const auto& [id, piece] : truth_.pieces) {
      if (piece.find('\0') != std::string::npos) continue;  // GGUF files cannot hold it
      const auto own = tokenizer_.piece(id);
      if (own && (*own == piece || canonical(*own) == canonical(piece))) continue;
      if (own && is_added(id) && bare(canonical(*own)) == bare(canonical(piece)))
        continue;  // normalised, or not
      const auto at = tokenizer_.find(piece);
      changed_[id] = at;
      if (!own && !at && !is_used(id)) continue;  // a gap that converters leave
      std::string says = fmt::format("The token {} is {} and should be {}", id,
                                     own ? printable(*own, 30) : "none", printable(piece, 30));
      if (at) says += fmt::format(", which is {} here", *at);
      if (is_special_in_truth(id) && !at) {
        ++special;
        if (special_example.empty()) special_example = says;
      } else {
        ++(at ? moved : own ? other : missing);
        if (example.empty()) example = says;
      }
    }
    if (2 * (other + missing) > truth_.pieces.size()) {
      findings_.add({"reference_mismatch", "vocabulary",
                     fmt::format("{}; {} of {} tokens that are known are not in this vocabulary at all.",
                                 example, other + missing, truth_.pieces.size()),
                     "Take a recording of this model, or the tokenizer's files of the recorded one.", 1,
                     other + missing});
      return;
    }
    if (special > 0) {
      findings_.add({"special_tokens", "special tokens", special_example + ".",
                     "Give special tokens the texts that they have in the source.", 1, special});
    }
    if (const std::size_t count = moved + other + missing; count > 0) {
      findings_.add(
          {"token_ids", "ids",
           fmt::format("{}; {} of {} tokens that are known differ.", example, count, truth_.pieces.size()),
           ours_.gguf ? "Take tokenizer.ggml.tokens from the source again, in its order."
                      : "Take the vocabulary of tokenizer.json from the source again, in its order.",
           1, count});
    }
  }

  bool is_used(TokenId id) const {
    return std::ranges::any_of(truth_.texts, [&](const TextCase& text) {
      return std::ranges::find(text.ids, id) != text.ids.end();
    });
  }

  // An id of the truth as this vocabulary has it.
  TokenId here(TokenId id) const {
    const auto found = changed_.find(id);
    return found == changed_.end() ? id : found->second.value_or(-1);
  }
  Ids here(const Ids& ids) const {
    Ids out;
    for (const TokenId id : ids) out.push_back(here(id));
    return out;
  }

  // ---- texts without special tokens

  bool holds_special(std::string_view text) const {
    const auto in_text = [&](std::string_view piece) {
      return piece.size() > 2 && text.find(piece) != text.npos;
    };
    for (const TokenId id : truth_.special) {
      const auto piece = truth_.pieces.find(id);
      if (piece != truth_.pieces.end() && in_text(piece->second)) return true;
    }
    return std::ranges::any_of(spec_.added, [&](const tokenizer::AddedToken& token) {
      return (token.special || truth_.pieces.empty()) && in_text(token.content);
    });
  }

  void find_plain_texts() {
    for (const TextCase& text : truth_.texts) (holds_special(text.text) ? special_ : plain_).push_back(&text);
  }

  static Ids encode(const Tokenizer& tokenizer, const TextCase& text, const TextRepair* repair) {
    std::string changed = text.text;
    if (repair != nullptr && repair->before) {
      if (auto form = normalize_unicode(utf8_lossy(changed), *repair->before)) changed = std::move(*form);
    }
    return tokenizer.encode(changed, {.add_special = false}).value_or(Ids{-1});
  }

  std::vector<const TextCase*> disagreeing(const std::vector<const TextCase*>& texts,
                                           const Tokenizer& tokenizer,
                                           const TextRepair* repair = nullptr) const {
    std::vector<const TextCase*> wrong;
    for (const TextCase* text : texts) {
      if (encode(tokenizer, *text, repair) != here(text->ids)) wrong.push_back(text);
    }
    return wrong;
  }

  struct Tried {
    const TextRepair* repair = nullptr;
    std::optional<Tokenizer> tokenizer;
    TokenizerSpec spec;
    std::size_t left = 0;  // texts that still disagree
  };

  // A repair that lets only some texts agree may be one of several, or chance; of a normaliser's steps each
  // does only a part.
  static bool helps(const TextRepair& repair, std::size_t wrong, std::size_t left) {
    return left == 0 || (wrong - left) * (repair.cause == "normalizer" ? 4 : 2) >= wrong;
  }

  // The repair after which the fewest of the texts disagree, and none that agreed before.
  Tried best_of(const std::vector<TextRepair>& repairs, const std::vector<const TextCase*>& texts,
                const std::vector<const TextCase*>& wrong) const {
    Tried best;
    best.left = wrong.size();
    for (const TextRepair& repair : repairs) {
      TokenizerSpec changed = spec_;
      repair.change(changed);
      auto made = Tokenizer::from_spec(changed);
      if (!made) continue;
      const auto still = disagreeing(texts, *made, &repair);
      const bool breaks = std::ranges::any_of(
          still, [&](const TextCase* text) { return std::ranges::find(wrong, text) == wrong.end(); });
      if (breaks || still.size() >= best.left || !helps(repair, wrong.size(), still.size())) continue;
      best = {&repair, std::move(*made), std::move(changed), still.size()};
      if (best.left == 0) break;
    }
    return best;
  }

  Cut cut_of(const Ids& ids, bool from_truth) const {
    Cut cut;
    for (const TokenId id : ids) {
      const auto known = from_truth ? truth_.pieces.find(id) : truth_.pieces.end();
      const std::string piece =
          known != truth_.pieces.end() ? known->second : tokenizer_.piece(id).value_or("?");
      cut.pieces.push_back(surface_of(piece, byte_level_));
      // A space and the mark for one are not the same to merges.
      cut.text += byte_level_ || tokenizer::byte_of_piece(piece) ? cut.pieces.back() : piece;
      cut.ends.insert(cut.text.size());
    }
    return cut;
  }

  // "He|llo" around the first place where two cuts differ.
  std::string becomes(const TextCase& text) const {
    const Cut found = cut_of(encode(tokenizer_, text, nullptr), false), wanted = cut_of(text.ids, true);
    const auto first = std::ranges::mismatch(found.pieces, wanted.pieces).in1 - found.pieces.begin();
    const auto around = [&](const std::vector<std::string>& pieces) {
      constexpr std::ptrdiff_t kBefore = 1, kBehind = 5;
      std::string out;
      const auto size = static_cast<std::ptrdiff_t>(pieces.size());
      for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(first - kBefore, 0);
           i < std::min(first + kBehind, size); ++i)
        out += (out.empty() ? "" : "|") + pieces[static_cast<std::size_t>(i)];
      return printable(out, 60);
    };
    return fmt::format("{} becomes {} and should be {}", printable(text.text, 40), around(found.pieces),
                       around(wanted.pieces));
  }

  void compare_plain() {
    for (int round = 0; round < 3; ++round) {  // as many faults at once as are found one behind the other
      const auto wrong = disagreeing(plain_, tokenizer_);
      if (wrong.empty()) return;
      Evidence evidence = look_at(wrong);
      // Pieces joined otherwise inside of words are no matter of cutting; texts that differ, none of joining.
      const bool words = evidence.in_words > 0 && evidence.surfaces == 0;
      std::vector<TextRepair> repairs;
      const auto take = [&](std::vector<TextRepair> more) {
        std::ranges::move(more, std::back_inserter(repairs));
      };
      if (evidence.surfaces > 0) take(normalizer_repairs(spec_, ours_.gguf));
      take(model_repairs(spec_));
      take(pre_tokenizer_repairs(spec_, ours_.gguf, /*catalogue=*/!words));
      Tried best = best_of(repairs, plain_, wrong);
      if (best.repair == nullptr) {
        say_what_shows(wrong, evidence);
        return;
      }
      const TextRepair& repair = *best.repair;
      const bool all = best.left == 0;
      findings_.add(
          {repair.cause, repair.step,
           fmt::format("{} of {} texts become other tokens, and {} when {}. {}.", wrong.size(), plain_.size(),
                       all ? "agree" : fmt::format("{} agree", wrong.size() - best.left), repair.when,
                       becomes(*wrong.front())),
           repair.repair, all ? 1.0 : 0.7, wrong.size()});
      if (repair.before) return;  // nothing that a description can hold
      spec_ = std::move(best.spec);
      tokenizer_ = std::move(*best.tokenizer);
    }
  }

  struct Evidence {
    std::size_t surfaces = 0;  // texts whose pieces make another text
    std::size_t in_words = 0;  // with other cuts between two small letters
    std::size_t finer = 0;     // cut at all places of the truth, and at more
    std::size_t unmade = 0;    // pieces of the truth that no merge makes
    std::string unmade_example;
    std::vector<TokenId> added;  // such pieces without letters: found as added tokens
  };

  Evidence look_at(const std::vector<const TextCase*>& wrong) const {
    Evidence evidence;
    std::set<TokenId> made;
    for (const tokenizer::Merge& merge : spec_.merges) made.insert(merge.result);
    for (const tokenizer::AddedToken& token : spec_.added) made.insert(token.id);
    std::set<TokenId> unmade;
    for (const TextCase* text : wrong) {
      const Cut found = cut_of(encode(tokenizer_, *text, nullptr), false), wanted = cut_of(text->ids, true);
      if (found.text != wanted.text) {
        ++evidence.surfaces;
        continue;
      }
      std::vector<std::size_t> differ;
      std::ranges::set_symmetric_difference(found.ends, wanted.ends, std::back_inserter(differ));
      evidence.in_words += std::ranges::any_of(differ, [&](std::size_t at) {
        const auto small = [&](std::size_t i) {
          return i < found.text.size() && found.text[i] >= 'a' && found.text[i] <= 'z';
        };
        // "'s" and its kind are cut off by patterns, so a letter behind an apostrophe says nothing.
        return at >= 2 && small(at) && small(at - 1) && small(at - 2) &&
               !small_behind_apostrophe(found.text, at);
      });
      evidence.finer += std::ranges::includes(found.ends, wanted.ends);
      for (const TokenId id : here(text->ids)) {
        const auto piece = tokenizer_.piece(id);
        if (spec_.kind == tokenizer::ModelKind::kBpe && piece && count_code_points(*piece) > 1 &&
            !tokenizer::byte_of_piece(*piece) && !made.contains(id))
          unmade.insert(id);
      }
    }
    for (const TokenId id : unmade) {
      const std::string surface = surface_of(tokenizer_.piece(id).value_or(""), byte_level_);
      const bool letters =
          std::ranges::any_of(surface, [](char c) { return (c >= 'a' && c <= 'z') || (c & 0x80) != 0; });
      if (!letters) evidence.added.push_back(id);
      ++evidence.unmade;
      if (evidence.unmade_example.empty() || letters) evidence.unmade_example = surface;
    }
    return evidence;
  }

  static bool small_behind_apostrophe(std::string_view text, std::size_t at) {
    const std::size_t from = at < 4 ? 0 : at - 4;
    return text.substr(from, at - from + 2).find('\'') != std::string_view::npos;
  }

  // No repair helps: the step that the differences point to.
  void say_what_shows(const std::vector<const TextCase*>& wrong, const Evidence& evidence) {
    const std::string example = becomes(*wrong.front());
    const auto add = [&](std::string cause, std::string step, std::string what, std::string repair,
                         double confidence) {
      findings_.add({std::move(cause), std::move(step),
                     fmt::format("{} of {} texts become other tokens: {}. {}.", wrong.size(), plain_.size(),
                                 what, example),
                     std::move(repair), confidence, wrong.size()});
    };
    const char* const source = ours_.gguf ? "tokenizer.ggml" : "tokenizer.json";
    const bool ranked = spec_.kind == tokenizer::ModelKind::kBpe;
    if (2 * evidence.surfaces > wrong.size()) {
      add("normalizer", "normaliser", "their characters are changed before they are cut",
          fmt::format("Take the normaliser of the source's {}.", source), 0.8);
    } else if (!evidence.added.empty() && evidence.added.size() == evidence.unmade) {
      add("special_tokens", "special tokens",
          fmt::format("{} is an added token and is not looked for", printable(evidence.unmade_example)),
          "Take added_tokens of tokenizer.json (GGUF: token_type 4) from the source again.", 0.85);
    } else if (evidence.unmade > 0) {
      add("merges_dropped", "merges",
          fmt::format("{} pieces that they should become, such as {}, are made by no merge", evidence.unmade,
                      printable(evidence.unmade_example)),
          fmt::format("Take the merges of the source's {} again, all of them.", source), 0.95);
    } else if (evidence.in_words > 0) {
      add(ranked ? "merges_order" : "piece_scores", ranked ? "merges" : "scores",
          "pieces are joined in another order, also inside of words",
          ranked ? fmt::format("Take the merges of the source's {} again, in their order.", source)
                 : fmt::format("Take the scores of the source's {} again.", source),
          0.9);
    } else if (spec_.kind == tokenizer::ModelKind::kSentencePieceBpe ||
               spec_.kind == tokenizer::ModelKind::kSentencePieceUnigram ||
               spec_.kind == tokenizer::ModelKind::kUnigram) {
      add("piece_scores", "scores", "other pieces win",
          fmt::format("Take the scores of the source's {} again.", source), 0.8);
    } else {
      add("pre_tokenizer", "pre-tokenizer", "they are cut at other places, none of them inside of a word",
          ours_.gguf ? "Set tokenizer.ggml.pre to the name of the source's pre-tokenizer."
                     : "Take the pre_tokenizer of tokenizer.json from the source again.",
          0.85);
    }
  }

  // ---- texts with special tokens

  void compare_special_in_texts() {
    // What goes wrong without special tokens goes wrong here, too.
    if (!disagreeing(plain_, tokenizer_).empty()) return;
    const auto wrong = disagreeing(special_, tokenizer_);
    if (wrong.empty()) return;
    std::set<TokenId> unread;
    for (const TextCase* text : wrong) {
      const Ids found = encode(tokenizer_, *text, nullptr), wanted = here(text->ids);
      for (const TokenId id : wanted) {
        if (std::ranges::find(found, id) == found.end() && is_special_in_truth(id)) unread.insert(id);
      }
    }
    if (!unread.empty()) {
      const TokenId id = *unread.begin();
      findings_.add({"special_tokens", "special tokens",
                     fmt::format("{} is read as plain text and not as the token {}. {}.",
                                 printable(tokenizer_.piece(id).value_or("?")), id, becomes(*wrong.front())),
                     ours_.gguf ? "Set its tokenizer.ggml.token_type to 3 (control)."
                                : "List it in added_tokens of tokenizer.json, with its id and special: true.",
                     1, unread.size()});
      return;
    }
    std::set<TokenId> candidates;
    for (const TextCase* text : wrong) {
      for (const TokenId id : text->ids) {
        if (is_special_in_truth(id)) candidates.insert(here(id));
      }
    }
    constexpr std::size_t kMostTried = 8;
    for (const TokenId id : candidates) {
      if (candidates.size() > kMostTried) break;
      const std::vector<TextRepair> repairs = flag_repairs(spec_, id);
      const Tried best = best_of(repairs, special_, wrong);
      if (best.repair == nullptr || best.left > 0) continue;
      findings_.add(
          {"special_tokens", "special tokens",
           fmt::format("{} of {} texts with special tokens become other tokens, and agree when {}. {}.",
                       wrong.size(), special_.size(), best.repair->when, becomes(*wrong.front())),
           best.repair->repair, 1, wrong.size()});
      return;
    }
    std::vector<TextRepair> repairs = normalizer_repairs(spec_, ours_.gguf);
    const Tried best = best_of(repairs, special_, wrong);
    const bool explained = best.repair != nullptr && best.left == 0;
    findings_.add({explained ? best.repair->cause : "special_tokens",
                   explained ? best.repair->step : "special tokens",
                   fmt::format("{} of {} texts with special tokens become other tokens{}. {}.", wrong.size(),
                               special_.size(), explained ? ", and agree when " + best.repair->when : "",
                               becomes(*wrong.front())),
                   explained ? best.repair->repair
                             : "Take tokenizer.json and tokenizer_config.json from the source again.",
                   explained ? 1 : 0.8, wrong.size()});
  }

  // ---- the tokens around a text

  struct Frame {
    Ids before, behind;
    bool operator==(const Frame&) const = default;
  };
  static std::optional<Frame> frame_of(const Ids& whole, const Ids& inner) {
    if (inner.empty()) return std::nullopt;
    const auto at = std::ranges::search(whole, inner);
    if (at.empty()) return std::nullopt;
    return Frame{{whole.begin(), at.begin()}, {at.end(), whole.end()}};
  }

  std::string names(const Ids& ids) const {
    std::string out;
    for (const TokenId id : ids)
      out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", id,
                         printable(tokenizer_.piece(id).value_or("?")));
    return out.empty() ? "none" : out;
  }

  void compare_frames() {
    std::optional<Frame> wanted, found;
    for (const TextCase* text : plain_) {
      if (!text->with_special) continue;
      const Tokenizer& own = *ours_.tokenizer;
      const auto inner = own.encode(text->text, {.add_special = false});
      const auto whole = ours_.prompt_ids ? ours_.prompt_ids(text->text) : own.encode(text->text);
      if (!inner || !whole) continue;
      wanted = frame_of(*text->with_special, text->ids);
      found = frame_of(*whole, *inner);
      if (wanted && found) break;
    }
    if (!wanted || !found) return;
    wanted = Frame{here(wanted->before), here(wanted->behind)};
    if (*wanted == *found) return;
    if (wanted->before != found->before) say_beginning(wanted->before, found->before);
    if (wanted->behind != found->behind) say_end(wanted->behind, found->behind);
  }

  std::string key(const char* gguf, const char* json) const { return ours_.gguf ? gguf : json; }

  void say_beginning(const Ids& wanted, const Ids& found) {
    const std::string says =
        fmt::format("A text begins with {} and should begin with {}", names(found), names(wanted));
    const std::string add_bos = key("tokenizer.ggml.add_bos_token", "add_bos_token");
    if (found.empty())
      findings_.add(
          {"bos_missing", "post-processor", says + ".",
           fmt::format("Set {} to true{}.", add_bos,
                       ours_.gguf ? "" : ", or take the post_processor of tokenizer.json from the source"),
           1, 1});
    else if (found.size() > wanted.size() && !wanted.empty() && std::ranges::count(found, wanted[0]) > 1)
      findings_.add({"double_bos", "post-processor", says + ".",
                     "Let one place write BOS: the post_processor, add_bos_token or the text, not two.", 1,
                     1});
    else if (wanted.empty())
      findings_.add(
          {"bos_extra", "post-processor", says + ".", fmt::format("Set {} to false.", add_bos), 1, 1});
    else
      findings_.add({"post_processor", "post-processor", says + ".",
                     key("Set tokenizer.ggml.bos_token_id to the source's.",
                         "Take the post_processor of tokenizer.json from the source again."),
                     1, 1});
  }

  void say_end(const Ids& wanted, const Ids& found) {
    const std::string says =
        fmt::format("A text ends with {} and should end with {}", names(found), names(wanted));
    const std::string add_eos = key("tokenizer.ggml.add_eos_token", "add_eos_token");
    if (found.empty())
      findings_.add(
          {"eos_missing", "post-processor", says + ".", fmt::format("Set {} to true.", add_eos), 1, 1});
    else if (wanted.empty())
      findings_.add(
          {"eos_extra", "post-processor", says + ".", fmt::format("Set {} to false.", add_eos), 1, 1});
    else
      findings_.add({"post_processor", "post-processor", says + ".",
                     key("Set tokenizer.ggml.eos_token_id to the source's.",
                         "Take the post_processor of tokenizer.json from the source again."),
                     1, 1});
  }

  // ---- which tokens are special

  void compare_special_flags() {
    std::set<TokenId> seen;
    for (const TextCase& text : truth_.texts) {
      for (const TokenId id : text.with_special.value_or(text.ids)) seen.insert(id);
    }
    std::size_t count = 0;
    std::string example, repair;
    for (const TokenId id : seen) {
      if (changed_.contains(id) || truth_.special.empty()) continue;
      const bool wanted = is_special_in_truth(id), found = ours_.tokenizer->is_special(id);
      // Converters make tokens control tokens that only look like it.
      if (wanted == found || (ours_.gguf && found)) continue;
      if (tokenizer_.spec().unknown == id) continue;  // SentencePiece's is special by its type
      if (count++ > 0) continue;
      const std::string piece = printable(tokenizer_.piece(id).value_or("?"));
      example = fmt::format("The token {} ({}) is {}special here, and {} in the source", id, piece,
                            found ? "" : "not ", wanted ? "it is" : "not");
      repair = ours_.gguf ? fmt::format("Set the tokenizer.ggml.token_type of {} to {}.", id,
                                        wanted ? "3 (control)" : "4")
                          : fmt::format("Set special of {} to {} in tokenizer.json.", piece, wanted);
    }
    if (count > 0) findings_.add({"special_tokens", "special tokens", example + ".", repair, 1, count});
  }

  // ---- back to text

  std::vector<const TextCase*> undecoded(const Tokenizer& tokenizer) const {
    std::vector<const TextCase*> wrong;
    for (const TextCase& text : truth_.texts) {
      const bool known = std::ranges::none_of(text.ids, [&](TokenId id) { return changed_.contains(id); });
      if (!text.decoded || !known) continue;
      const auto decoded = tokenizer.decode(text.ids);
      if (!decoded || utf8_lossy(*decoded) != utf8_lossy(*text.decoded)) wrong.push_back(&text);
    }
    return wrong;
  }

  void compare_decoding() {
    const auto wrong = undecoded(*ours_.tokenizer);
    if (wrong.empty()) return;
    const TextCase& first = *wrong.front();
    const std::string found = ours_.tokenizer->decode(first.ids).value_or("nothing");
    const std::string says =
        fmt::format("{} of {} texts come back otherwise: {}, which should be {}", wrong.size(),
                    truth_.texts.size(), excerpt(found, *first.decoded), excerpt(*first.decoded, found));
    for (const TextRepair& repair : decoder_repairs(ours_.tokenizer->spec())) {
      TokenizerSpec changed = ours_.tokenizer->spec();
      repair.change(changed);
      const auto made = Tokenizer::from_spec(std::move(changed));
      if (!made || !undecoded(*made).empty()) continue;
      // With a wrong normaliser of SentencePiece, decoding is wrong, too, and that has been said.
      if (findings_.has("normalizer") && repair.when.find("space") != std::string::npos) return;
      findings_.add({"decoder", "decoder", fmt::format("{}. All agree when {}.", says, repair.when),
                     repair.repair, 1, wrong.size()});
      return;
    }
    findings_.add({"decoder", "decoder", says + ".",
                   key("Take the tokenizer.ggml keys from the source again.",
                       "Take the decoder of tokenizer.json from the source again."),
                   0.8, wrong.size()});
  }

  void compare_roles() {
    const std::pair<const char*, const tokenizer::SpecialToken&> roles[] = {
        {"bos", ours_.tokenizer->bos()}, {"eos", ours_.tokenizer->eos()}, {"unk", ours_.tokenizer->unk()}};
    for (const auto& [name, role] : roles) {
      const auto wanted = truth_.roles.find(name);
      if (wanted == truth_.roles.end() || !role.id || !wanted->second.id) continue;
      if (here(*wanted->second.id) == *role.id) continue;
      findings_.add({"special_tokens", "special tokens",
                     fmt::format("The tokenizer's {} is {} ({}) and should be {} ({}).", name, *role.id,
                                 printable(role.text), *wanted->second.id, printable(wanted->second.text)),
                     ours_.gguf
                         ? fmt::format("Set tokenizer.ggml.{}_token_id to {}.",
                                       std::string_view(name) == "unk" ? "unknown" : name, *wanted->second.id)
                         : fmt::format("Set {}_token in tokenizer_config.json to {}.", name,
                                       printable(wanted->second.text)),
                     1, 1});
    }
  }

  const TextTruth& truth_;
  const TextSide& ours_;
  TextFindings& findings_;
  TokenizerSpec spec_;   // repaired so far
  Tokenizer tokenizer_;  // of that
  bool byte_level_ = false;
  std::map<TokenId, std::optional<TokenId>>
      changed_;  // ids of the truth that are another piece here, and its id
  std::vector<const TextCase*> plain_, special_;
};

}  // namespace

Result<TextComparison> compare_texts(const TextTruth& truth, const TextSide& ours) {
  TextComparison comparison;
  TextFindings findings(comparison.differences);
  comparison.conversations = truth.conversations.size();
  if (ours.tokenizer != nullptr) {
    comparison.texts = truth.texts.size();
    comparison.pieces = truth.pieces.size();
    DOPPLER_TRY(TokenizerComparison(truth, ours, findings).run());
  } else if (!truth.texts.empty()) {
    return fail(ErrorCode::kMismatch,
                "The model has no tokenizer to compare. Add tokenizer.json to its folder.");
  }
  compare_conversations(truth, ours, findings);
  compare_generation(truth, ours, findings);
  return comparison;
}

}  // namespace doppler::diagnosis
