#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/philox.h"

namespace doppler {

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

Status check_generate_options(const GenerateOptions& o, std::uint32_t vocab_size) {
  struct Bound {
    const char* name;
    double value, low, high;
    const char* range;
  };
  // Larger than any use needs, and small enough that no sum or product of them leaves the range of a double.
  constexpr double kMost = 1e30;
  const Bound bounds[] = {
      {"temperature", o.temperature, 0, kMost, "0 (greedy) or more"},
      {"top-p", o.top_p, 0, 1, "between 0 and 1"},
      {"min-p", o.min_p, 0, 1, "between 0 and 1"},
      {"repeat-penalty", o.repeat_penalty, 1e-6, kMost, "above 0; 1 is off"},
      {"presence-penalty", o.presence_penalty, -kMost, kMost, "a number, 0 is off"},
      {"frequency-penalty", o.frequency_penalty, -kMost, kMost, "a number, 0 is off"},
      {"speculate", static_cast<double>(o.speculate), GenerateOptions::kSpeculateAuto,
       GenerateOptions::kMostSpeculated, "between 1 and 16; 0 is off, -1 as many as pay"},
  };
  for (const Bound& b : bounds) {
    if (b.value >= b.low && b.value <= b.high) continue;  // NaN fails both
    return fail(ErrorCode::kUsage, "The {} {} is out of range; it must be {}.", b.name, b.value, b.range);
  }
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab_size) {
      return fail(ErrorCode::kUsage, "The logit bias {}={} names no token; ids go from 0 to {}.", id, bias,
                  vocab_size - 1);
    }
    // Minus infinity rules a token out; plus infinity would leave no probabilities.
    if (std::isnan(bias) || bias > kMost) {
      return fail(ErrorCode::kUsage,
                  "The logit bias {}={} is out of range; it must be a number, or -inf to rule "
                  "the token out.",
                  id, bias);
    }
  }
  if (o.logprobs < -1 || o.logprobs > static_cast<std::int64_t>(vocab_size)) {
    return fail(
        ErrorCode::kUsage,
        "The {} log probabilities of each token are out of range; there must be between 0 and {}, or -1 "
        "for none.",
        o.logprobs, vocab_size);
  }
  for (const std::string& stop : o.stop) {
    if (stop.empty())
      return fail(ErrorCode::kUsage, "A stop string is empty, which would stop at once. Leave it out.");
  }
  return {};
}

// Likelier first; of equals the lower id, so that the order is the same everywhere.
static constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
};

// The changeable score of a token, at first its logit.
Sampler::Candidate& Sampler::adjusted(std::span<const float> logits, TokenId id) {
  std::uint32_t& at = adjusted_at_[static_cast<std::size_t>(id)];
  if (at == 0) {
    adjusted_.push_back({logits[static_cast<std::size_t>(id)], id});
    at = static_cast<std::uint32_t>(adjusted_.size());
  }
  return adjusted_[at - 1];
}

// Penalties and biases, in time that depends on the history and not on the vocabulary.
void Sampler::adjust(std::span<const float> logits, std::span<const TokenId> history) {
  const bool off =
      options_.repeat_penalty == 1 && options_.presence_penalty == 0 && options_.frequency_penalty == 0;
  for (const Candidate& candidate : adjusted_) adjusted_at_[static_cast<std::size_t>(candidate.id)] = 0;
  adjusted_.clear();
  if (off && options_.logit_bias.empty() && pad_id_ < 0) return;
  if (adjusted_at_.size() != logits.size()) adjusted_at_.assign(logits.size(), 0);
  const auto known = [&](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < logits.size(); };
  if (!off) {
    if (options_.penalty_window != 0 && history.size() > options_.penalty_window)
      history = history.last(options_.penalty_window);
    counts_.clear();
    for (const TokenId id : history) {
      if (!known(id)) continue;
      adjusted(logits, id);
      counts_.resize(adjusted_.size());
      ++counts_[adjusted_at_[static_cast<std::size_t>(id)] - 1];
    }
    for (std::size_t i = 0; i < adjusted_.size(); ++i) {
      double& score = adjusted_[i].score;
      score = score > 0 ? score / options_.repeat_penalty : score * options_.repeat_penalty;
      score -= options_.presence_penalty + options_.frequency_penalty * counts_[i];
    }
  }
  for (const auto& [id, bias] : options_.logit_bias)
    if (known(id)) adjusted(logits, id).score += bias;
  if (known(pad_id_)) adjusted(logits, pad_id_).score = -std::numeric_limits<double>::infinity();
}

// Takes the adjusted tokens out of a block.
void Sampler::patch(std::span<const float> logits, std::size_t b) {
  const float* original = logits.data() + b * kSamplerBlock;
  if (blocks_[b] != original) return;
  const std::size_t size = std::min(kSamplerBlock, logits.size() - b * kSamplerBlock);
  const std::size_t begin = patches_.size();
  patches_.resize(begin + kSamplerBlock, -kInfinity);
  float* const copy = patches_.data() + begin;
  std::copy(original, original + size, copy);
  if (!adjusted_.empty()) take_out(copy, adjusted_at_.data() + b * kSamplerBlock, size);
  blocks_[b] = copy;
}

void Sampler::patch_all(std::span<const float> logits) {
  for (const Candidate& candidate : adjusted_)
    patch(logits, static_cast<std::size_t>(candidate.id) / kSamplerBlock);
}

// Cuts the logits into blocks and finds their maxima without the adjusted tokens. False if a logit is NaN or
// +Inf.
bool Sampler::scan(std::span<const float> logits) {
  const std::size_t count = (logits.size() + kSamplerBlock - 1) / kSamplerBlock;
  blocks_.resize(count);
  maxima_.resize(count);
  patches_.clear();
  patches_.reserve(std::min(adjusted_.size() + 1, count) *
                   kSamplerBlock);  // so that blocks_ may point into it
  for (std::size_t b = 0; b < count; ++b) blocks_[b] = logits.data() + b * kSamplerBlock;
  bool bad = false;
  if (logits.size() % kSamplerBlock != 0) {  // may overwrite bad logits; these are looked for below
    patch(logits, count - 1);
  }
  for (std::size_t b = 0; b < count; ++b) maxima_[b] = block_maximum(blocks_[b], bad);
  for (const Candidate& candidate : adjusted_)
    bad |= !(logits[static_cast<std::size_t>(candidate.id)] < kInfinity);
  if (bad) return false;
  for (const Candidate& candidate : adjusted_) {
    const std::size_t id = static_cast<std::size_t>(candidate.id), b = id / kSamplerBlock;
    if (logits[id] < maxima_[b]) continue;
    patch(logits, b);
    maxima_[b] = block_maximum(blocks_[b], bad);
  }
  return true;
}

// Its score is -Inf if there is none.
Sampler::Candidate Sampler::likeliest() const {
  Candidate best = {-std::numeric_limits<double>::infinity(), -1};
  for (const Candidate& candidate : adjusted_)
    if (candidate.score > -std::numeric_limits<double>::infinity() && kLikelier(candidate, best))
      best = candidate;
  const auto block = std::max_element(maxima_.begin(), maxima_.end());
  if (block == maxima_.end() || *block == -kInfinity) return best;
  const std::size_t b = static_cast<std::size_t>(block - maxima_.begin());
  const std::size_t i =
      static_cast<std::size_t>(std::find(blocks_[b], blocks_[b] + kSamplerBlock, *block) - blocks_[b]);
  const Candidate plain = {*block, static_cast<TokenId>(b * kSamplerBlock + i)};
  return kLikelier(plain, best) ? plain : best;
}

// A score that the k likeliest of the tokens have or exceed: the k-th largest of the maxima of disjoint sets
// of tokens, since as many tokens are at or above it. The sets are blocks, or parts of them where k is too
// large for so few sets to give a good bound.
float Sampler::bound_of_top_k(std::span<const float> logits) {
  const std::size_t k = options_.top_k;
  set_maxima_ = maxima_;
  if (k > maxima_.size() / 4) {
    patch_all(logits);
    set_maxima_.resize(blocks_.size() * kSamplerGroups);
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      group_maxima(blocks_[b], set_maxima_.data() + b * kSamplerGroups);
  }
  if (k > set_maxima_.size()) return -kInfinity;
  const auto kth = set_maxima_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(set_maxima_.begin(), kth, set_maxima_.end(), std::greater<>());
  return *kth;
}

// The k likeliest, in order. Of those at the bound no more than the k with the lowest ids count.
void Sampler::collect_top_k(std::span<const float> logits) {
  const std::size_t k = options_.top_k;
  const float bound = bound_of_top_k(logits);
  candidates_.clear();
  std::size_t at_bound = 0;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (maxima_[b] < bound) continue;
    for (std::size_t i = 0; i < kSamplerBlock; ++i) {
      const float x = blocks_[b][i];
      const std::size_t id = b * kSamplerBlock + i;
      if (x < bound || x == -kInfinity || (!adjusted_.empty() && adjusted_at_[id] != 0)) continue;
      if (x > bound || at_bound++ < k) candidates_.push_back({x, static_cast<TokenId>(id)});
    }
  }
  candidates_.insert(candidates_.end(), adjusted_.begin(), adjusted_.end());
  if (k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                     candidates_.end(), kLikelier);
    candidates_.resize(k);
  }
  std::sort(candidates_.begin(), candidates_.end(), kLikelier);
}

// Draws from sorted candidates.
TokenId Sampler::draw_of_few(double share) {
  weights_.clear();
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    const double x = exponent(candidate.score);
    weights_.push_back(x >= kNegligible ? weight_of(x) : 0);
    total += weights_.back();
  }
  const double enough = options_.top_p < 1 ? options_.top_p * total : std::numeric_limits<double>::infinity();
  double left = weights_[0];
  std::size_t keep = 1;
  for (; keep < weights_.size() && left < enough; ++keep) {
    if (exponent(candidates_[keep].score) < weighing_.lowest) break;
    left += weights_[keep];
  }
  const double target = share * left;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < keep; ++i) {
    sum += weights_[i];
    if (target < sum) return candidates_[i].id;
  }
  return candidates_[keep - 1].id;
}

// Fills the histogram and returns the mass of the tokens that are not in it, if anything needs it.
double Sampler::build_histogram() {
  const bool needs_total = options_.top_p < 1;
  // The buckets span the scores of most tokens: down to the least likely of a sample of one token per block.
  // Any span is correct, since the last bucket takes all tokens beyond it.
  double span = 0;
  for (const float* block : blocks_) {
    const double x = exponent(block[kSamplerBlock - 1]);
    if (x > -std::numeric_limits<double>::infinity()) span = std::max(span, -x);
  }
  span = std::min(span, -weighing_.lowest);
  constexpr double kNone = 1e-300;  // the quotient of anything smaller could be infinite
  weighing_.scale = span > kNone ? (kSamplerBuckets - 1) / span : 0;

  histogram_.assign(kSamplerBuckets + 1, 0);
  live_.clear();
  buckets_.resize(blocks_.size() * kSamplerBlock);
  double dropped = 0;
  double weights[kSamplerBlock];
  std::int32_t buckets[kSamplerBlock];
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const double largest = exponent(maxima_[b]);
    if (largest < weighing_.lowest) {
      if (needs_total && largest >= kNegligible) dropped += block_weight(blocks_[b], weighing_);
      continue;
    }
    live_.push_back(static_cast<std::uint32_t>(b));
    weigh_block(blocks_[b], weighing_, weights, buckets);
    for (std::size_t i = 0; i < kSamplerBlock; ++i) {
      histogram_[static_cast<std::size_t>(buckets[i])] += weights[i];
      buckets_[b * kSamplerBlock + i] = static_cast<std::uint16_t>(buckets[i]);
    }
  }
  adjusted_buckets_.clear();
  for (const Candidate& candidate : adjusted_) {
    const double x = exponent(candidate.score);
    adjusted_buckets_.push_back(bucket_of(x, weighing_));
    if (x >= kNegligible) histogram_[static_cast<std::size_t>(adjusted_buckets_.back())] += weight_of(x);
  }
  return dropped + histogram_[kSamplerBuckets];
}

// The tokens of one bucket.
void Sampler::collect_bucket(std::uint16_t bucket) {
  candidates_.clear();
  for (const std::uint32_t b : live_) {
    const std::uint16_t* buckets = buckets_.data() + b * kSamplerBlock;
    if (!block_holds(buckets, bucket)) continue;
    for (std::size_t i = 0; i < kSamplerBlock; ++i) {
      if (buckets[i] == bucket)
        candidates_.push_back({blocks_[b][i], static_cast<TokenId>(b * kSamplerBlock + i)});
    }
  }
  for (std::size_t i = 0; i < adjusted_.size(); ++i)
    if (adjusted_buckets_[i] == bucket) candidates_.push_back(adjusted_[i]);
}

// Splits the candidates' score range into parts and keeps, in their order, the candidates of the part in
// which `mass` is reached; returns the mass before that part. Fewer remain, since the largest and the
// smallest lie in different parts.
double Sampler::narrow(double before, double mass) {
  constexpr std::size_t kParts = 1024;
  const auto [low, high] = std::minmax_element(
      candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) { return a.score < b.score; });
  const double most = high->score, range = high->score - low->score;
  const auto part_of = [&](double score) {
    return std::min(static_cast<std::size_t>((most - score) / range * kParts), kParts - 1);
  };
  double masses[kParts] = {};
  for (const Candidate& candidate : candidates_)
    masses[part_of(candidate.score)] += weight_of(exponent(candidate.score));
  // If rounding leaves the mass unreached, the last part that is not empty is taken.
  std::size_t part = 0;
  double start = before, sum = before;
  for (std::size_t i = 0; i < kParts && (i == 0 || sum < mass); ++i) {
    if (masses[i] == 0) continue;
    part = i;
    start = sum;
    sum += masses[i];
  }
  std::erase_if(candidates_, [&](const Candidate& candidate) { return part_of(candidate.score) != part; });
  return start;
}

// The first of the candidates at which the summed mass, starting from `before`, reaches `mass`.
Sampler::Place Sampler::reach_collected(double before, double mass) {
  constexpr std::size_t kSortable = 1024;  // sorting these takes less than another pass over the vocabulary
  while (candidates_.size() > kSortable) {
    const Candidate& first = candidates_[0];
    if (std::all_of(candidates_.begin(), candidates_.end(),
                    [&](const auto& c) { return c.score == first.score; })) {
      const double weight = weight_of(exponent(first.score));
      std::size_t i = 0;
      for (; i + 1 < candidates_.size(); ++i)
        if (before + static_cast<double>(i + 1) * weight >= mass) break;
      const auto at = candidates_.begin() + static_cast<std::ptrdiff_t>(i);
      std::nth_element(candidates_.begin(), at, candidates_.end(), kLikelier);
      return {*at, before + static_cast<double>(i + 1) * weight};
    }
    before = narrow(before, mass);
  }
  std::sort(candidates_.begin(), candidates_.end(), kLikelier);
  double sum = before;
  for (const Candidate& candidate : candidates_) {
    sum += weight_of(exponent(candidate.score));
    if (sum >= mass) return {candidate, sum};
  }
  return {candidates_.back(), sum};
}

Sampler::Place Sampler::reach(double mass) {
  std::size_t bucket = 0;  // the likeliest is in it
  double before = 0, sum = histogram_[0];
  for (std::size_t i = 1; i < kSamplerBuckets && sum < mass; ++i) {
    if (histogram_[i] == 0) continue;
    bucket = i;
    before = sum;
    sum += histogram_[i];
  }
  collect_bucket(static_cast<std::uint16_t>(bucket));
  return reach_collected(before, mass);
}

TokenId Sampler::draw_of_all(std::span<const float> logits, double share) {
  patch_all(logits);
  const double dropped = build_histogram();
  double left = 0;
  for (std::size_t i = 0; i < kSamplerBuckets; ++i) left += histogram_[i];
  Candidate last = {-std::numeric_limits<double>::infinity(), -1};
  const double enough = options_.top_p * (left + dropped);
  if (options_.top_p < 1 && enough < left) {
    const Place place = reach(enough);
    last = place.candidate;
    left = place.mass;
  }
  // The first whose mass exceeds the target; rounding must not lead beyond the tokens that top-p leaves.
  const double above = std::nextafter(share * left, std::numeric_limits<double>::infinity());
  const Candidate drawn = reach(above).candidate;
  return last.id >= 0 && kLikelier(last, drawn) ? last.id : drawn.id;
}

static std::unexpected<Error> bad_logit(std::span<const float> logits, std::size_t tokens) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
  return fail(ErrorCode::kMismatch,
              "The logit of token {} is {} after {} tokens, so the weights or the computation are "
              "broken. Run doppler compare with a recording to find the first wrong stage.",
              bad - logits.begin(), *bad, tokens);
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                                std::uint64_t draw) {
  adjust(logits, history);
  if (!scan(logits)) return bad_logit(logits, history.size());
  const Candidate best = likeliest();
  if (best.id < 0) {
    return fail(ErrorCode::kMismatch, "Every token is ruled out after {} tokens. Loosen the logit biases.",
                history.size());
  }
  if (options_.temperature == 0) return best.id;
  // A share of the likeliest's probability is a distance from its score.
  weighing_ = {.largest = best.score,
               .temperature = options_.temperature,
               .lowest = std::max(std::log(options_.min_p), kNegligible),
               .scale = 0};
  const double share = uniform(options_.seed, draw);
  if (options_.top_k == 0 || options_.top_k >= logits.size()) return draw_of_all(logits, share);
  collect_top_k(logits);
  return draw_of_few(share);
}

}  // namespace doppler
