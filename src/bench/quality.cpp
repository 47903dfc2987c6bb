#include "bench/quality.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "bench/perplexity.h"
#include "engine/logprobs.h"

namespace doppler::bench {
namespace {

constexpr std::string_view kText =
    "Once upon a time there was a little girl who lived in a small house near the sea. Every morning she "
    "went "
    "down to the water with her dog and looked for shells. The sky was blue and the sun was warm. One day "
    "she "
    "found a big box in the sand. She wanted to know what was in it, so she ran home to get her mother.";
constexpr std::size_t kContinued = 16;
// How much below the best logit a chosen one may lie, as a share of the row's range: a prompt's kernels sum
// in another order than those of single tokens, and with 8-bit activations that moves a logit by some
// thousandths of the range.
constexpr float kMostBelowBest = 0.02f;

Result<std::vector<TokenId>> go_on(Backend& backend, TokenId first, std::uint64_t position) {
  std::vector<TokenId> ids = {first};
  const GenerateOptions greedy;
  if (backend.can_continue(greedy)) {
    Continuer& continuer = *backend.continuer();
    DOPPLER_TRY(continuer.continue_sequence(
        {.slot = 0, .id = first, .most = kContinued - 1, .sampling = &greedy, .history = ids}));
    std::vector<TokenId> more;
    while (more.size() + 1 < kContinued) {
      DOPPLER_ASSIGN(const auto tokens, continuer.next_tokens());
      if (tokens.empty()) break;
      more.insert(more.end(), tokens.begin(), tokens.end());
    }
    DOPPLER_TRY(continuer.stop_sequence(position + std::max<std::size_t>(more.size(), 1)));
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }
  while (ids.size() < kContinued) {
    StepInput input;
    input.add(ids.back(), position++, 0, true);
    DOPPLER_ASSIGN(const auto logits, backend.step(input, nullptr));
    ids.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
  }
  return ids;
}

// The mean loss of every token but the first; the likeliest next one goes to `next`.
Result<double> loss_of(Backend& backend, std::span<const TokenId> ids, TokenId& next) {
  const std::size_t vocab = backend.plan().vocab_size;
  double sum = 0;
  for (std::size_t done = 0; done < ids.size();) {
    const std::size_t count = std::min<std::size_t>(step_tokens(backend.options()), ids.size() - done);
    StepInput input;
    for (std::size_t i = done; i < done + count; ++i) input.add(ids[i], i, 0, true);
    DOPPLER_ASSIGN(const std::span<const float> logits, backend.step(input, nullptr));
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = logits.subspan(i * vocab, vocab);
      if (done + i + 1 < ids.size()) sum += token_loss(row, ids[done + i + 1]);
      next = static_cast<TokenId>(std::ranges::max_element(row) - row.begin());
    }
    done += count;
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// What differs between the tokens behind the first `given`, which were generated one by one, and those that
// the same sequence read as a prompt would choose; empty if nothing does.
Result<std::string> difference(Backend& backend, std::span<const TokenId> ids, std::size_t given) {
  const std::size_t vocab = backend.plan().vocab_size;
  for (std::size_t done = 0; done < ids.size();) {
    const std::size_t count = std::min<std::size_t>(step_tokens(backend.options()), ids.size() - done);
    StepInput input;
    for (std::size_t i = done; i < done + count; ++i)
      input.add(ids[i], i, 0, i + 1 >= given && i + 1 < ids.size());
    DOPPLER_ASSIGN(std::span<const float> logits, backend.step(input, nullptr));
    for (std::size_t i = done; i < done + count; ++i) {
      if (!input.wants_logits[i - done]) continue;
      const auto [least, most] = std::ranges::minmax(logits.first(vocab));
      const TokenId chosen = ids[i + 1];
      const bool possible = chosen >= 0 && static_cast<std::size_t>(chosen) < vocab;
      if (!possible || !(most - logits[static_cast<std::size_t>(chosen)] <= kMostBelowBest * (most - least)))
        return fmt::format(
            "generating chose {} for its token {}, which the same tokens read as a prompt would not", chosen,
            i + 2 - given);
      logits = logits.subspan(vocab);
    }
    done += count;
  }
  return std::string();
}

}  // namespace

Result<Quality> measure_quality(Loaded& loaded) {
  Quality quality;
  if (!loaded.tokenizer) {
    quality.why = "the model has no tokenizer";
    return quality;
  }
  Backend& backend = *loaded.backend;
  DOPPLER_ASSIGN(std::vector<TokenId> ids, loaded.tokenizer->encode(kText));
  const std::uint64_t most = std::min(kQualityContext, backend.options().context);
  if (most > kContinued && ids.size() > most - kContinued) ids.resize(most - kContinued);
  if (ids.size() < 2 || most <= kContinued) {
    quality.why = "its context is too short";
    return quality;
  }
  backend.clear(0);
  TokenId next = 0;
  DOPPLER_ASSIGN(quality.loss, loss_of(backend, ids, next));
  quality.tokens = ids.size() - 1;
  quality.chance = std::log(static_cast<double>(backend.plan().vocab_size));
  if (!std::isfinite(quality.loss)) {
    quality.why = "its logits are not finite";
    return quality;
  }
  DOPPLER_ASSIGN(quality.ids, go_on(backend, next, ids.size()));
  const std::size_t given = ids.size();
  ids.insert(ids.end(), quality.ids.begin(), quality.ids.end());
  backend.clear(0);
  DOPPLER_ASSIGN(quality.why, difference(backend, ids, given));
  backend.clear(0);
  return quality;
}

Json to_json(const Quality& quality) {
  if (!quality.measured()) return {{"ok", nullptr}, {"why", quality.why}};
  return {{"ok", quality.ok()},   {"why", quality.why},       {"tokens", quality.tokens},
          {"loss", quality.loss}, {"chance", quality.chance}, {"ids", quality.ids}};
}

std::string to_text(const Quality& quality) {
  if (!quality.measured()) return fmt::format("answers not checked: {}\n", quality.why);
  if (!quality.ok()) return fmt::format("ANSWERS ARE WRONG: {}\n", quality.why);
  return fmt::format("{:<34}{:10.3f}  nats a token on {} of plain English; knowing nothing is {:.3f}\n",
                     "loss, answers are well", quality.loss, quality.tokens, quality.chance);
}

}  // namespace doppler::bench
