// Texts with special tokens, the tokens that stand around a text, and ids that become text again.
#include <algorithm>

#include "base/text.h"
#include "base/unicode.h"
#include "diagnosis/compare/tokenizer_comparison.h"
#include "tokenizer/byte_level.h"

namespace doppler::diagnosis {
namespace {

std::optional<TextFrame> frame_of(const std::vector<TokenId>& whole, const std::vector<TokenId>& inner) {
  if (inner.empty()) return std::nullopt;
  const auto at = std::ranges::search(whole, inner);
  if (at.empty()) return std::nullopt;
  return TextFrame{{whole.begin(), at.begin()}, {at.end(), whole.end()}};
}

}  // namespace

void TokenizerComparison::compare_special_in_texts() {
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
    const TriedRepair best = best_of(repairs, special_, wrong);
    if (best.repair == nullptr || best.left > 0) continue;
    findings_.add(
        {"special_tokens", "special tokens",
         fmt::format("{} of {} texts with special tokens become other tokens, and agree when {}. {}.",
                     wrong.size(), special_.size(), best.repair->when, becomes(*wrong.front())),
         best.repair->repair, 1, wrong.size()});
    return;
  }
  std::vector<TextRepair> repairs = normalizer_repairs(spec_, ours_.gguf);
  const TriedRepair best = best_of(repairs, special_, wrong);
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

std::string TokenizerComparison::names(const Ids& ids) const {
  std::string out;
  for (const TokenId id : ids)
    out +=
        fmt::format("{}{} ({})", out.empty() ? "" : ", ", id, printable(tokenizer_.piece(id).value_or("?")));
  return out.empty() ? "none" : out;
}

void TokenizerComparison::compare_frames() {
  std::optional<TextFrame> wanted, found;
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
  wanted = TextFrame{here(wanted->before), here(wanted->behind)};
  if (*wanted == *found) return;
  if (wanted->before != found->before) say_beginning(wanted->before, found->before);
  if (wanted->behind != found->behind) say_end(wanted->behind, found->behind);
}

// Only GGUF's readers all follow the flag; beside a tokenizer.json it may mean nothing.
std::vector<TextSetting> TokenizerComparison::adding(std::string_view what, bool on) const {
  if (!ours_.gguf) return {};
  return {{"gguf", fmt::format("tokenizer.ggml.add_{}_token", what), on ? "true" : "false"}};
}

void TokenizerComparison::say_beginning(const Ids& wanted, const Ids& found) {
  const std::string says =
      fmt::format("A text begins with {} and should begin with {}", names(found), names(wanted));
  const std::string add_bos = key("tokenizer.ggml.add_bos_token", "add_bos_token");
  if (found.empty())
    findings_.add(
        {"bos_missing", "post-processor", says + ".",
         fmt::format("Set {} to true{}.", add_bos,
                     ours_.gguf ? "" : ", or take the post_processor of tokenizer.json from the source"),
         1, 1, adding("bos", true)});
  else if (found.size() > wanted.size() && !wanted.empty() && std::ranges::count(found, wanted[0]) > 1)
    findings_.add({"double_bos", "post-processor", says + ".",
                   "Let one place write BOS: the post_processor, add_bos_token or the text, not two.", 1, 1});
  else if (wanted.empty())
    findings_.add({"bos_extra", "post-processor", says + ".", fmt::format("Set {} to false.", add_bos), 1, 1,
                   adding("bos", false)});
  else
    findings_.add({"post_processor", "post-processor", says + ".",
                   key("Set tokenizer.ggml.bos_token_id to the source's.",
                       "Take the post_processor of tokenizer.json from the source again."),
                   1, 1});
}

void TokenizerComparison::say_end(const Ids& wanted, const Ids& found) {
  const std::string says =
      fmt::format("A text ends with {} and should end with {}", names(found), names(wanted));
  const std::string add_eos = key("tokenizer.ggml.add_eos_token", "add_eos_token");
  if (found.empty())
    findings_.add({"eos_missing", "post-processor", says + ".", fmt::format("Set {} to true.", add_eos), 1, 1,
                   adding("eos", true)});
  else if (wanted.empty())
    findings_.add({"eos_extra", "post-processor", says + ".", fmt::format("Set {} to false.", add_eos), 1, 1,
                   adding("eos", false)});
  else
    findings_.add({"post_processor", "post-processor", says + ".",
                   key("Set tokenizer.ggml.eos_token_id to the source's.",
                       "Take the post_processor of tokenizer.json from the source again."),
                   1, 1});
}

std::vector<const TextCase*> TokenizerComparison::undecoded(const Tokenizer& tokenizer) const {
  std::vector<const TextCase*> wrong;
  for (const TextCase& text : truth_.texts) {
    const bool known = std::ranges::none_of(text.ids, [&](TokenId id) { return changed_.contains(id); });
    if (!text.decoded || !known) continue;
    const auto decoded = tokenizer.decode(text.ids);
    if (!decoded || utf8_lossy(*decoded) != utf8_lossy(*text.decoded)) wrong.push_back(&text);
  }
  return wrong;
}

void TokenizerComparison::compare_decoding() {
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

}  // namespace doppler::diagnosis
