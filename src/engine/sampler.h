// Sampler: from a row of logits to the next token, exactly as GenerateOptions say.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/sampler_kernels.h"

namespace doppler {

// Errors: kUsage, naming the option, its value and what it may be.
Status check_generate_options(const GenerateOptions& options, std::uint32_t vocab_size);

// Tokens stand in one order, the likelier first and of equals the lower id. A draw takes a share of the mass
// of those that the filters leave, and the token with which the mass, summed in that order, exceeds the
// share. Nothing is sorted but the few tokens around that place: a histogram of the masses by score says
// where it is.
class Sampler {
 public:
  // `pad_id` never wins (-1: there is none). The options must have been checked and outlive the sampler.
  Sampler(const GenerateOptions& options, TokenId pad_id) : options_(options), pad_id_(pad_id) {}

  // The token after `history` (the whole sequence so far). `draw` counts the draws of this generation: the
  // same logits, seed and draw always give the same token. Errors: kMismatch for logits that hold NaN or
  // +Inf, or leave no token.
  Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> history, std::uint64_t draw);

 private:
  struct Candidate {
    double score;
    TokenId id;
  };
  // A place in the order, and the mass up to and including it.
  struct Place {
    Candidate candidate;
    double mass;
  };
  void adjust(std::span<const float> logits, std::span<const TokenId> history);
  Candidate& adjusted(std::span<const float> logits, TokenId id);
  void patch(std::span<const float> logits, std::size_t b);
  void patch_all(std::span<const float> logits);
  bool scan(std::span<const float> logits);
  Candidate likeliest() const;
  float bound_of_top_k(std::span<const float> logits);
  void collect_top_k(std::span<const float> logits);
  TokenId draw_of_few(double share);
  TokenId draw_of_all(std::span<const float> logits, double share);
  double build_histogram();
  Place reach(double mass);
  void collect_bucket(std::uint16_t bucket);
  Place reach_collected(double before, double mass);
  double narrow(double before, double mass);
  double exponent(double score) const { return (score - weighing_.largest) / weighing_.temperature; }

  const GenerateOptions& options_;
  TokenId pad_id_;
  Weighing weighing_ = {};
  // The tokens whose scores penalties, biases and the pad change, and where each is: its index + 1, 0 for
  // others.
  std::vector<Candidate> adjusted_;
  std::vector<std::uint32_t> adjusted_at_;
  std::vector<std::uint32_t> counts_;  // how often each of them was seen
  // The logits in blocks; those with adjusted tokens are copies in which these are -Inf, and so is what fills
  // up the last one.
  std::vector<const float*> blocks_;
  std::vector<float> patches_;
  std::vector<float> maxima_;  // of each block
  // The histogram, the blocks that are in it, and the bucket of each of their tokens and of each adjusted
  // one.
  std::vector<double> histogram_;
  std::vector<std::uint32_t> live_;
  std::vector<std::uint16_t> buckets_;
  std::vector<std::int32_t> adjusted_buckets_;
  // What of them is looked at one by one.
  std::vector<float> set_maxima_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace doppler
