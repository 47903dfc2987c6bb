#include "bench/same_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bench/measure.h"

namespace doppler::bench {
namespace {

// Tokens that are compared: as many as a check of guesses takes at once.
constexpr std::uint64_t kTokens = 16;
constexpr std::uint32_t kSequences = 3;

// The text that sequence n goes on from: all differ, and have lengths of their own.
std::vector<TokenId> text_of(const Backend& backend, std::uint32_t n) {
  std::vector<TokenId> text;
  for (std::size_t i = 0; i < 9 + 13 * n; ++i)
    text.push_back(bench_token(i + 100 * n, backend.plan().vocab_size));
  return text;
}

// All but the newest token, which a continuation begins with.
Status feed(Backend& backend, std::uint32_t slot, std::span<const TokenId> text) {
  backend.clear(slot);
  StepInput input;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) input.add(text[i], i, slot, false);
  DOPPLER_TRY(backend.step(input, nullptr));
  return {};
}

Continuation continuation_of(std::uint32_t slot, std::span<const TokenId> text,
                             const GenerateOptions& greedy) {
  return {.slot = slot, .id = text.back(), .most = kTokens, .sampling = &greedy, .history = text};
}

// What it says one token after the other.
Result<std::vector<TokenId>> alone(Backend& backend, std::span<const TokenId> text) {
  const GenerateOptions greedy;
  DOPPLER_TRY(feed(backend, 0, text));
  DOPPLER_ASSIGN(std::vector<TokenId> tokens,
                 continue_to_end(*backend.continuer(), continuation_of(0, text, greedy), text.size() - 1));
  backend.clear(0);
  return tokens;
}

// The same tokens as guesses, of which each check gives the one that follows.
Result<std::vector<TokenId>> checked(Backend& backend, std::span<const TokenId> text,
                                     std::span<const TokenId> tokens) {
  const GenerateOptions greedy;
  DOPPLER_TRY(feed(backend, 0, text));
  const std::size_t most = std::min(tokens.size(), backend.rows_that_agree());
  DOPPLER_TRY(backend.continuer()->prepare_check(most, greedy));
  StepInput guesses;
  guesses.guesses = true;
  for (std::size_t i = 0; i < most; ++i)
    guesses.add(i == 0 ? text.back() : tokens[i - 1], text.size() - 1 + i, 0, true);
  DOPPLER_ASSIGN(const auto chosen, backend.continuer()->check(guesses, continuation_of(0, text, greedy)));
  std::vector<TokenId> kept(chosen.begin(), chosen.end());
  backend.clear(0);
  return kept;
}

// What each says beside the others.
Result<std::vector<std::vector<TokenId>>> together(Backend& backend,
                                                   std::span<const std::vector<TokenId>> texts) {
  const GenerateOptions greedy;
  for (std::uint32_t n = 0; n < texts.size(); ++n) DOPPLER_TRY(feed(backend, n, texts[n]));
  for (std::uint32_t n = 0; n < texts.size(); ++n)
    DOPPLER_TRY(backend.continuer()->join(continuation_of(n, texts[n], greedy)));
  std::vector<std::vector<TokenId>> said(texts.size());
  for (;;) {
    DOPPLER_ASSIGN(const auto some, backend.continuer()->tokens_of_all());
    if (some.empty()) break;
    for (const SlotToken& token : some) said[token.slot].push_back(token.id);
  }
  for (std::uint32_t n = 0; n < texts.size(); ++n)
    DOPPLER_TRY(backend.continuer()->leave(n, texts[n].size() - 1 + said[n].size()));
  return said;
}

// Compares the first tokens of a row with what they should be.
void compare(std::span<const TokenId> got, std::span<const TokenId> wanted, KernelCheck& check) {
  if (std::ranges::equal(got, wanted.first(std::min(got.size(), wanted.size())))) return;
  check.result = KernelCheck::Result::kWrong;
  check.difference = fmt::format("a text goes on with the tokens {} and by itself with {}",
                                 fmt::join(got, " "), fmt::join(wanted, " "));
}

bool says_the_same(Backend& backend) {
  return backend.continuer() != nullptr && backend.rows_that_agree() > 1 &&
         backend.continuer()->can_continue({});
}

}  // namespace

Result<std::vector<KernelCheck>> check_same_tokens(Loaded& loaded) {
  std::vector<KernelCheck> rows;
  if (!says_the_same(*loaded.backend)) return rows;
  std::vector<std::vector<TokenId>> texts, said;
  for (std::uint32_t n = 0; n < kSequences; ++n) {
    texts.push_back(text_of(*loaded.backend, n));
    DOPPLER_ASSIGN(said.emplace_back(), alone(*loaded.backend, texts[n]));
  }
  if (loaded.backend->continuer()->can_check({})) {
    KernelCheck& row = rows.emplace_back();
    row.what = "guesses, checked at once";
    for (std::uint32_t n = 0; n < kSequences; ++n) {
      DOPPLER_ASSIGN(const auto chosen, checked(*loaded.backend, texts[n], said[n]));
      compare(chosen, said[n], row);
    }
  }
  if (loaded.backend->continuer()->most_together() < kSequences) return rows;
  BackendOptions options = loaded.backend->options();
  options.slots = kSequences;
  options.cache_positions = 0;
  const std::string name(loaded.backend->name());
  loaded.backend.reset();  // so that one at a time has weights on the device
  DOPPLER_ASSIGN(loaded.backend, make_backend(name, loaded.model->spec, loaded.model->weights, options));
  if (!says_the_same(*loaded.backend)) return rows;
  KernelCheck& row = rows.emplace_back();
  row.what = "sequences together";
  DOPPLER_ASSIGN(const auto beside, together(*loaded.backend, texts));
  for (std::uint32_t n = 0; n < kSequences; ++n) compare(beside[n], said[n], row);
  return rows;
}

}  // namespace doppler::bench
