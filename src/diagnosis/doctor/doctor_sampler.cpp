// The sampler against a plain one, which sorts all tokens to find those that may be chosen.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "diagnosis/doctor/doctor_checks.h"

namespace doppler::diagnosis::doctor {
namespace {

// A vocabulary of several blocks of any kernel, with a tail.
constexpr std::size_t kVocabulary = 5003;
constexpr std::size_t kDraws = 40;

std::vector<float> make_logits(std::uint64_t seed) {
  std::vector<float> logits(kVocabulary);
  std::uint64_t state = seed * 2 + 1;
  for (float& x : logits) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's linear congruence
    x = static_cast<float>(static_cast<double>(state >> 40) / (1 << 24) * 8 - 4);
  }
  // The likeliest lie side by side: a sampler that keeps only the best of each part loses most of them.
  for (std::size_t i = 0; i < 40; ++i) logits[1000 + i] = 6.0f + 0.01f * static_cast<float>(i);
  return logits;
}

struct Trial {
  const char* cause;
  const char* what;
  GenerateOptions options;
  // The tokens that may be chosen.
  std::set<TokenId> (*allowed)(std::vector<float> logits, std::span<const TokenId> history);
};

std::vector<TokenId> sorted(const std::vector<float>& logits) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](TokenId id) {  // of equals the lower id is likelier
    return std::pair(-logits[static_cast<std::size_t>(id)], id);
  });
  return order;
}

std::set<TokenId> best(std::vector<float> logits, std::span<const TokenId>) {
  return {sorted(logits)[0]};
}
std::set<TokenId> best_40(std::vector<float> logits, std::span<const TokenId>) {
  const auto order = sorted(logits);
  return {order.begin(), order.begin() + 40};
}
std::set<TokenId> penalised(std::vector<float> logits, std::span<const TokenId> history) {
  for (const TokenId id : std::set<TokenId>(history.begin(), history.end())) {
    float& x = logits[static_cast<std::size_t>(id)];
    x = x > 0 ? x / 2 : x * 2;
  }
  return best(logits, history);
}
std::set<TokenId> present(std::vector<float> logits, std::span<const TokenId> history) {
  for (const TokenId id : std::set<TokenId>(history.begin(), history.end()))
    logits[static_cast<std::size_t>(id)] -= 3;
  return best(logits, history);
}
std::set<TokenId> biased(std::vector<float> logits, std::span<const TokenId> history) {
  logits[17] += 100;
  return best(logits, history);
}
std::set<TokenId> as_likely(std::vector<float> logits, std::span<const TokenId>) {
  const float least = *std::ranges::max_element(logits) + static_cast<float>(std::log(0.8)) - 1e-4f;
  std::set<TokenId> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= least) ids.insert(static_cast<TokenId>(i));
  }
  return ids;
}
std::set<TokenId> nucleus(std::vector<float> logits, std::span<const TokenId>) {
  double total = 0, mass = 0;
  for (const float x : logits) total += std::exp(x);
  std::set<TokenId> ids;
  for (const TokenId id : sorted(logits)) {
    ids.insert(id);
    mass += std::exp(logits[static_cast<std::size_t>(id)]);
    if (mass > 0.3 * total * (1 + 1e-9)) break;
  }
  return ids;
}

const std::vector<Trial>& trials() {
  static const std::vector<Trial> kTrials = {
      {"sampler_order", "greedy takes the likeliest token", {}, best},
      {"top_k_stripe",
       "top-k 40 draws from the 40 likeliest tokens",
       {.temperature = 1, .top_k = 40},
       best_40},
      {"sampler_order",
       "top-p 0.3 draws from the likeliest tokens that reach it",
       {.temperature = 1, .top_p = 0.3},
       nucleus},
      {"sampler_order",
       "min-p 0.8 keeps what is nearly as likely as the likeliest",
       {.temperature = 1, .min_p = 0.8},
       as_likely},
      {"penalty_skipped", "a repeat penalty of 2 applies to what was seen", {.repeat_penalty = 2}, penalised},
      {"penalty_skipped",
       "a presence penalty of 3 applies to what was seen",
       {.presence_penalty = 3},
       present},
      {"penalty_skipped", "a bias of 100 applies", {.logit_bias = {{17, 100.0}}}, biased},
  };
  return kTrials;
}

}  // namespace

Result<Outcome> check_sampler(const Examination& e) {
  std::size_t draws = 0;
  for (std::uint64_t seed = 0; seed < 1; ++seed) {
    const std::vector<float> logits = make_logits(seed);
    const std::vector<TokenId> history = {1039, 1038, 5, 1039};
    for (const Trial& trial : trials()) {
      const std::set<TokenId> allowed = trial.allowed(logits, history);
      std::set<TokenId> chosen;
      for (std::uint64_t draw = 0; draw < (trial.options.temperature > 0 ? kDraws : 1); ++draw) {
        GenerateOptions options = trial.options;
        options.seed = seed + 1;
        DOPPLER_ASSIGN(const TokenId id, e.subject.sample(options, -1, logits, history, draw));
        chosen.insert(id);
        ++draws;
        if (allowed.contains(id)) continue;
        e.find({.cause = trial.cause,
                .stage = "logits_final",
                .explanation =
                    fmt::format("The sampler chose the token {}, but {}, so it had to choose from {} others.",
                                id, trial.what, allowed.size())});
        return Outcome::found({});
      }
      // Forty draws from forty tokens that are about equally likely never give fewer than ten.
      if (trial.options.top_k == 40 && chosen.size() < 10) {
        e.find({.cause = trial.cause,
                .stage = "logits_final",
                .explanation =
                    fmt::format("{}, but {} draws gave only {} tokens.", trial.what, kDraws, chosen.size()),
                .confidence = 0.9});
        return Outcome::found({});
      }
    }
    // PAD is the likeliest of all, and may not win.
    std::vector<float> padded = logits;
    padded[0] = 50;
    for (const double temperature : {0.0, 1.0}) {
      DOPPLER_ASSIGN(const TokenId id,
                     e.subject.sample({.temperature = temperature, .seed = seed}, 0, padded, history, 0));
      ++draws;
      if (id != 0) continue;
      e.find({.cause = "pad_wins",
              .stage = "logits_final",
              .explanation = "The padding token was chosen where its logit was the largest."});
      return Outcome::found({});
    }
  }
  return Outcome::ok(fmt::format("{} choices are those of a plain sampler", draws));
}

}  // namespace doppler::diagnosis::doctor
