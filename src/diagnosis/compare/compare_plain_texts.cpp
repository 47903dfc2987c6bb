// Texts without special tokens: where they become other tokens, which step does it, and the repair after
// which they agree.
#include <algorithm>

#include "base/text.h"
#include "base/unicode.h"
#include "diagnosis/compare/tokenizer_comparison.h"
#include "tokenizer/byte_level.h"

namespace doppler::diagnosis {
namespace {

// A repair that lets only some texts agree may be one of several, or chance; of a normaliser's steps each
// does only a part.
bool helps(const TextRepair& repair, std::size_t wrong, std::size_t left) {
  return left == 0 || (wrong - left) * (repair.cause == "normalizer" ? 4 : 2) >= wrong;
}

bool small_behind_apostrophe(std::string_view text, std::size_t at) {
  const std::size_t from = at < 4 ? 0 : at - 4;
  return text.substr(from, at - from + 2).find('\'') != std::string_view::npos;
}

}  // namespace

bool TokenizerComparison::holds_special(std::string_view text) const {
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

void TokenizerComparison::find_plain_texts() {
  for (const TextCase& text : truth_.texts) (holds_special(text.text) ? special_ : plain_).push_back(&text);
}

TokenizerComparison::Ids TokenizerComparison::encode(const Tokenizer& tokenizer, const TextCase& text,
                                                     const TextRepair* repair) {
  std::string changed = text.text;
  if (repair != nullptr && repair->before) {
    if (auto form = normalize_unicode(utf8_lossy(changed), *repair->before)) changed = std::move(*form);
  }
  return tokenizer.encode(changed, {.add_special = false}).value_or(Ids{-1});
}

std::vector<const TextCase*> TokenizerComparison::disagreeing(const std::vector<const TextCase*>& texts,
                                                              const Tokenizer& tokenizer,
                                                              const TextRepair* repair) const {
  std::vector<const TextCase*> wrong;
  for (const TextCase* text : texts) {
    if (encode(tokenizer, *text, repair) != here(text->ids)) wrong.push_back(text);
  }
  return wrong;
}

// The repair after which the fewest of the texts disagree, and none that agreed before.
TriedRepair TokenizerComparison::best_of(const std::vector<TextRepair>& repairs,
                                         const std::vector<const TextCase*>& texts,
                                         const std::vector<const TextCase*>& wrong) const {
  TriedRepair best;
  best.left = wrong.size();
  for (const TextRepair& repair : repairs) {
    if (std::chrono::steady_clock::now() > until_) break;
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

TextCut TokenizerComparison::cut_of(const Ids& ids, bool from_truth) const {
  TextCut cut;
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
std::string TokenizerComparison::becomes(const TextCase& text) const {
  const TextCut found = cut_of(encode(tokenizer_, text, nullptr), false), wanted = cut_of(text.ids, true);
  const auto first = std::ranges::mismatch(found.pieces, wanted.pieces).in1 - found.pieces.begin();
  const auto around = [&](const std::vector<std::string>& pieces) {
    constexpr std::ptrdiff_t kBefore = 1, kBehind = 5;
    std::string out;
    const auto size = static_cast<std::ptrdiff_t>(pieces.size());
    for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(first - kBefore, 0); i < std::min(first + kBehind, size);
         ++i)
      out += (out.empty() ? "" : "|") + pieces[static_cast<std::size_t>(i)];
    return printable(out, 60);
  };
  return fmt::format("{} becomes {} and should be {}", printable(text.text, 40), around(found.pieces),
                     around(wanted.pieces));
}

void TokenizerComparison::compare_plain() {
  for (int round = 0; round < 3; ++round) {  // as many faults at once as are found one behind the other
    const auto wrong = disagreeing(plain_, tokenizer_);
    if (wrong.empty()) return;
    CutEvidence evidence = look_at(wrong);
    // Pieces joined otherwise inside of words are no matter of cutting; texts that differ, none of joining.
    const bool words = evidence.in_words > 0 && evidence.surfaces == 0;
    std::vector<TextRepair> repairs;
    const auto take = [&](std::vector<TextRepair> more) {
      std::ranges::move(more, std::back_inserter(repairs));
    };
    if (evidence.surfaces > 0) take(normalizer_repairs(spec_, ours_.gguf));
    take(model_repairs(spec_));
    take(pre_tokenizer_repairs(spec_, ours_.gguf, /*catalogue=*/!words));
    TriedRepair best = best_of(repairs, plain_, wrong);
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

CutEvidence TokenizerComparison::look_at(const std::vector<const TextCase*>& wrong) const {
  CutEvidence evidence;
  std::set<TokenId> made;
  for (const tokenizer::Merge& merge : spec_.merges) made.insert(merge.result);
  for (const tokenizer::AddedToken& token : spec_.added) made.insert(token.id);
  std::set<TokenId> unmade;
  for (const TextCase* text : wrong) {
    const TextCut found = cut_of(encode(tokenizer_, *text, nullptr), false), wanted = cut_of(text->ids, true);
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

// No repair helps: the step that the differences point to.
void TokenizerComparison::say_what_shows(const std::vector<const TextCase*>& wrong,
                                         const CutEvidence& evidence) {
  const std::string example = becomes(*wrong.front());
  const auto add = [&](std::string cause, std::string step, std::string what, std::string repair,
                       double confidence) {
    findings_.add(
        {std::move(cause), std::move(step),
         fmt::format(
             "{} of {} texts become other tokens: {}. {}.{}", wrong.size(), plain_.size(), what, example,
             std::chrono::steady_clock::now() > until_ ? " (There was no time to try every repair.)" : ""),
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

}  // namespace doppler::diagnosis
