#include "backend/gpu/token_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace doppler::gpu {
namespace {

// A token that stands between two experts says nothing of the layers behind. Among four, one that does not is
// found with the routers of published models, and the layers that are compared differ from token to token.
constexpr std::uint64_t kTokensWithExperts = 4;

TokenId check_id(const Backend& backend, std::uint64_t i) {
  return static_cast<TokenId>((i * 7919 + 13) % backend.plan().vocab_size);  // any prime: ids from everywhere
}

struct CheckPrompt {
  StepInput prompt, token;
  std::uint64_t length = 0;  // of the prompt
};

CheckPrompt prompt_for(const Backend& backend, std::uint64_t which = 0) {
  const BackendOptions& options = backend.options();
  CheckPrompt made;
  made.length = std::min<std::uint64_t>({70, step_tokens(options), options.context - 1});
  for (std::uint64_t i = 0; i < made.length; ++i) made.prompt.add(check_id(backend, i), i, 0, false);
  made.token.add(check_id(backend, made.length + which), made.length, 0, true);
  return made;
}

bool has_experts(const Plan& plan) {
  return std::ranges::any_of(plan.ops, [](const Op& op) { return op.kind == OpKind::kChoose; });
}

// Collects the routing of a step of one token.
class RoutingTap final : public Tap {
 public:
  explicit RoutingTap(std::map<int, CheckedToken::Routing>& routing) : routing_(routing) {}
  bool wants(Stage stage, int) const override {
    return stage == Stage::kRouterLogits || stage == Stage::kRouterIds;
  }
  void on_stage(const TapEvent& event) override {
    auto& layer = routing_[event.layer];
    (event.stage == Stage::kRouterIds ? layer.ids : layer.logits)
        .assign(event.data.begin(), event.data.end());
  }

 private:
  std::map<int, CheckedToken::Routing>& routing_;
};

Result<CheckedToken> run_token(Backend& backend, const CheckPrompt& check) {
  CheckedToken ran;
  if (check.length > 0) DOPPLER_TRY(backend.step(check.prompt, nullptr));
  RoutingTap tap(ran.routing);
  DOPPLER_ASSIGN(const auto row, backend.step(check.token, has_experts(backend.plan()) ? &tap : nullptr));
  ran.logits.assign(row.begin(), row.end());
  return ran;
}

float largest_of(std::span<const float> logits) {
  float largest = 0;
  for (const float x : logits) largest = std::max(largest, std::abs(x));
  return largest;
}

// Another order of sums moves a value in its last places, and a key or an activation that falls on the other
// side of a step of its 16 or 8 bits moves a logit by about a thousandth or a hundredth of the largest.
double allowed_share(Rounding rounding) {
  return rounding == Rounding::kEightBits                                  ? 0.05
         : rounding == Rounding::kHalfCache || rounding == Rounding::kHalf ? 0.01
                                                                           : 2e-3;
}

// What one layer rounds otherwise the next ones pass on and enlarge, and experts do so most: routers' logits
// that differ by a twentieth were seen behind 17 layers of random weights that had all chosen alike (H100). A
// kernel that is wrong is wrong in the first layer that has it.
double grown_share(double share, std::size_t layers_with_experts) {
  constexpr double kLayersToDouble = 6, kMost = 0.5;
  return std::min(kMost, share * std::exp2(static_cast<double>(layers_with_experts) / kLayersToDouble));
}

// The heads that store logits and that choose a token are the same text but for that, on the same values. A
// driver may still join a product and a sum in one only, and so move some activations by a step of their 8
// bits: each moves a logit by about 1/127 of sqrt(width) deviations, a ten-thousandth of the largest.
double choice_share(Rounding rounding) {
  return rounding == Rounding::kEightBits ? 1e-3 : 1e-4;
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
  if (check.length > 0) DOPPLER_TRY(backend.step(check.prompt, nullptr));
  const GenerateOptions greedy;
  const TokenId history[] = {check.token.ids[0]};
  const Continuation continuation{
      .slot = 0, .id = history[0], .most = kTokens, .sampling = &greedy, .history = history};
  DOPPLER_ASSIGN(std::vector<TokenId> tokens,
                 continue_to_end(*backend.continuer(), continuation, check.length));
  backend.clear(0);
  return tokens;
}

}  // namespace

std::string token_difference(const CheckedToken& expected, const CheckedToken& got, double share,
                             bool& tied) {
  tied = false;
  std::size_t layers = 0;  // with experts, so far
  const auto first_apart = [&](std::span<const float> wanted, std::span<const float> found) {
    const double allowed = grown_share(share, layers) * largest_of(wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (i >= found.size()) return i;
      if (!(std::abs(static_cast<double>(found[i]) - wanted[i]) <= allowed || wanted[i] == found[i]))
        return i;
    }
    return wanted.size();
  };
  const auto sorted = [](std::vector<float> ids) {
    std::ranges::sort(ids);
    return ids;
  };
  for (const auto& [layer, wanted] : expected.routing) {
    const auto found = got.routing.find(layer);
    if (found == got.routing.end()) return fmt::format("shows no experts of layer {}", layer);
    const std::size_t at = first_apart(wanted.logits, found->second.logits);
    if (at < wanted.logits.size()) {
      return fmt::format("gives the expert {} of layer {} the logit {} where it should be {}", at, layer,
                         at < found->second.logits.size() ? found->second.logits[at] : NAN,
                         wanted.logits[at]);
    }
    ++layers;
    if (sorted(wanted.ids) == sorted(found->second.ids)) continue;
    tied = true;
    return {};
  }
  const std::size_t at = first_apart(expected.logits, got.logits);
  if (at == expected.logits.size()) return {};
  return fmt::format("gives the token {} the logit {} where it should be {}", at, got.logits[at],
                     expected.logits[at]);
}

std::pair<StepInput, StepInput> checked_steps(const Backend& backend) {
  CheckPrompt check = prompt_for(backend);
  return {std::move(check.prompt), std::move(check.token)};
}

Result<std::vector<CheckedToken>> check_tokens(Backend& backend) {
  std::vector<CheckedToken> tokens;
  const std::uint64_t count = has_experts(backend.plan()) ? kTokensWithExperts : 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    DOPPLER_ASSIGN(CheckedToken token, run_token(backend, prompt_for(backend, i)));
    backend.clear(0);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<std::string> wrong_tokens(Backend& backend, const std::vector<CheckedToken>& expected) {
  const double share = allowed_share(backend.rounding());
  bool tied = true;
  for (std::size_t i = 0; i < expected.size() && tied; ++i) {
    DOPPLER_ASSIGN(const CheckedToken got, run_token(backend, prompt_for(backend, i)));
    backend.clear(0);
    std::string wrong = token_difference(expected[i], got, share, tied);
    if (!wrong.empty()) return wrong;
  }
  const CheckPrompt check = prompt_for(backend);
  DOPPLER_ASSIGN(const std::vector<TokenId> chosen, chosen_tokens(backend, check));
  if (check.length > 0) DOPPLER_TRY(backend.step(check.prompt, nullptr));
  StepInput token = check.token;
  std::string wrong;
  for (std::size_t i = 0; i < chosen.size() && wrong.empty(); ++i) {
    DOPPLER_ASSIGN(const auto logits, backend.step(token, nullptr));
    wrong = wrong_choice(backend, logits, chosen[i]);
    ++token.positions[0];
    token.ids[0] = std::max(chosen[i], 0);
  }
  backend.clear(0);
  return wrong;
}

}  // namespace doppler::gpu
