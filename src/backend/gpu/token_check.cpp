#include "backend/gpu/token_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace doppler::gpu {
namespace {

struct CheckPrompt {
  StepInput prompt, token;
  std::uint64_t length = 0;  // of the prompt
};

CheckPrompt prompt_for(const Backend& backend) {
  const BackendOptions& options = backend.options();
  const std::uint32_t vocab = backend.plan().vocab_size;
  CheckPrompt made;
  made.length = std::min<std::uint64_t>({70, step_tokens(options), options.context - 1});
  const auto id = [&](std::uint64_t i) {
    return static_cast<TokenId>((i * 7919 + 13) % vocab);  // any prime: ids from everywhere
  };
  for (std::uint64_t i = 0; i < made.length; ++i) made.prompt.add(id(i), i, 0, false);
  made.token.add(id(made.length), made.length, 0, true);
  return made;
}

float largest_of(std::span<const float> logits) {
  float largest = 0;
  for (const float x : logits) largest = std::max(largest, std::abs(x));
  return largest;
}

// Another order of sums moves a value in its last places, and a key or an activation that falls on the other
// side of a step of its 16 or 8 bits moves a logit by about a thousandth or a hundredth of the largest.
double allowed_share(Rounding rounding) {
  return rounding == Rounding::kEightBits ? 0.05 : rounding == Rounding::kHalfCache ? 0.01 : 2e-3;
}

// The heads that store logits and that choose a token are the same text but for that, on the same values. A
// driver may still join a product and a sum in one only, and so move some activations by a step of their 8
// bits: each moves a logit by about 1/127 of sqrt(width) deviations, a ten-thousandth of the largest.
double choice_share(Rounding rounding) {
  return rounding == Rounding::kEightBits ? 1e-3 : 1e-4;
}

// Where experts are chosen, a rounding step may send a token to another one whose score is as good as the
// same, so single logits say little. Of random logits the rms difference is 1.4 of their own; one expert of
// several in a layer of many moves them by about a tenth.
constexpr double kRoutedShare = 0.3;

bool chooses_experts(const Plan& plan) {
  return std::ranges::any_of(plan.ops, [](const Op& op) { return op.kind == OpKind::kChoose; });
}

std::string routed_difference(std::span<const float> expected, std::span<const float> got) {
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = static_cast<double>(got[i]) - expected[i];
    squares += static_cast<double>(expected[i]) * expected[i];
    differences += apart * apart;
  }
  if (differences <= kRoutedShare * kRoutedShare * squares) return {};
  return fmt::format("gives logits that differ from those that should be by {:.2f} of their root mean square",
                     std::sqrt(differences / squares));
}

std::string difference(const Backend& backend, std::span<const float> expected, std::span<const float> got) {
  if (chooses_experts(backend.plan())) return routed_difference(expected, got);
  const double allowed = allowed_share(backend.rounding()) * largest_of(expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(static_cast<double>(got[i]) - expected[i]) <= allowed || expected[i] == got[i]) continue;
    return fmt::format("gives the token {} the logit {} where it should be {}", i, got[i], expected[i]);
  }
  return {};
}

std::string wrong_choice(const Backend& backend, std::span<const float> logits, TokenId chosen) {
  const std::size_t best = std::ranges::max_element(logits) - logits.begin();
  const auto at = static_cast<std::size_t>(chosen);
  const bool exists = chosen >= 0 && at < logits.size();
  const double allowed = choice_share(backend.rounding()) * largest_of(logits);
  if (exists && static_cast<double>(logits[best]) - logits[at] <= allowed) return {};
  return fmt::format("does not choose the likeliest token, {} with the logit {}, but {}{}", best,
                     logits[best], chosen,
                     exists ? fmt::format(" with {}", logits[at]) : std::string(", which does not exist"));
}

// Tokens that the device chooses one after the other, all of them before the host reads any.
Result<std::vector<TokenId>> chosen_tokens(Backend& backend, const CheckPrompt& check) {
  constexpr std::uint64_t kTokens = 4;  // the first is fed by the host, the others by the device
  Continuer& continuer = *backend.continuer();
  if (check.length > 0) DOPPLER_TRY(backend.step(check.prompt, nullptr));
  const GenerateOptions greedy;
  const TokenId history[] = {check.token.ids[0]};
  DOPPLER_TRY(continuer.continue_sequence(
      {.slot = 0, .id = history[0], .most = kTokens, .sampling = &greedy, .history = history}));
  std::vector<TokenId> tokens;
  for (;;) {
    DOPPLER_ASSIGN(const auto some, continuer.next_tokens());
    if (some.empty()) break;
    tokens.insert(tokens.end(), some.begin(), some.end());
  }
  DOPPLER_TRY(continuer.stop_sequence(check.length + tokens.size()));
  backend.clear(0);
  return tokens;
}

}  // namespace

Result<std::vector<float>> check_logits(Backend& backend) {
  const CheckPrompt check = prompt_for(backend);
  if (check.length > 0) DOPPLER_TRY(backend.step(check.prompt, nullptr));
  DOPPLER_ASSIGN(const auto row, backend.step(check.token, nullptr));
  std::vector<float> logits(row.begin(), row.end());
  backend.clear(0);
  return logits;
}

Result<std::string> wrong_tokens(Backend& backend, std::span<const float> expected) {
  const CheckPrompt check = prompt_for(backend);
  DOPPLER_ASSIGN(const std::vector<TokenId> chosen, chosen_tokens(backend, check));
  if (check.length > 0) DOPPLER_TRY(backend.step(check.prompt, nullptr));
  StepInput token = check.token;
  std::string wrong;
  for (std::size_t i = 0; i < chosen.size() && wrong.empty(); ++i) {
    DOPPLER_ASSIGN(const auto logits, backend.step(token, nullptr));
    if (i == 0) wrong = difference(backend, expected, logits);
    if (wrong.empty()) wrong = wrong_choice(backend, logits, chosen[i]);
    ++token.positions[0];
    token.ids[0] = std::max(chosen[i], 0);
  }
  backend.clear(0);
  return wrong;
}

}  // namespace doppler::gpu
