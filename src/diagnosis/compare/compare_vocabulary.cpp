// The vocabulary beside the source's: which token has which id, and which tokens are special.
#include <algorithm>

#include "base/text.h"
#include "base/unicode.h"
#include "diagnosis/compare/tokenizer_comparison.h"
#include "tokenizer/byte_level.h"

namespace doppler::diagnosis {
namespace {

std::string_view bare(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? text : text.substr(first);
}

}  // namespace

std::string TokenizerComparison::canonical(std::string_view piece) const {
  if (tokenizer::byte_of_piece(piece)) return std::string(piece);
  return surface_of(piece, false);
}

bool TokenizerComparison::is_added(TokenId id) const {
  return std::ranges::find(spec_.added, id, &tokenizer::AddedToken::id) != spec_.added.end();
}

bool TokenizerComparison::is_special_in_truth(TokenId id) const {
  return std::ranges::find(truth_.special, id) != truth_.special.end();
}

void TokenizerComparison::compare_vocabulary() {
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

bool TokenizerComparison::is_used(TokenId id) const {
  return std::ranges::any_of(
      truth_.texts, [&](const TextCase& text) { return std::ranges::find(text.ids, id) != text.ids.end(); });
}

// An id of the truth as this vocabulary has it.
TokenId TokenizerComparison::here(TokenId id) const {
  const auto found = changed_.find(id);
  return found == changed_.end() ? id : found->second.value_or(-1);
}

TokenizerComparison::Ids TokenizerComparison::here(const Ids& ids) const {
  Ids out;
  for (const TokenId id : ids) out.push_back(here(id));
  return out;
}

void TokenizerComparison::compare_special_flags() {
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

void TokenizerComparison::compare_roles() {
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

}  // namespace doppler::diagnosis
