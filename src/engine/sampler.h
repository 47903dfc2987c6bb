// Sampler: from a row of logits to the next token, exactly as GenerateOptions prescribe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/sampler_kernels.h"

namespace doppler {

// Errors: kUsage, naming the option, its value and the allowed values.
Status check_generate_options(const GenerateOptions& options, std::uint32_t vocab_size);

// Tokens have one order: likelier ones first, of equals the lower id. A draw is a share of the probability
// mass that the filters leave; it chooses the token at which the mass, summed in that order, exceeds the
// share. Only the few tokens around that place are sorted: a histogram of the mass by score finds it.
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
  // The tokens whose scores penalties, biases and the pad change; by token id the index in adjusted_ + 1, 0
  // for tokens without a change.
  std::vector<Candidate> adjusted_;
  std::vector<std::uint32_t> adjusted_at_;
  std::vector<std::uint32_t> counts_;  // parallel to adjusted_: how often each was seen
  // The logits in blocks; blocks with adjusted tokens are copies in which these are -Inf, and the last block
  // is padded with -Inf.
  std::vector<const float*> blocks_;
  std::vector<float> patches_;
  std::vector<float> maxima_;  // of each block
  // The histogram, the blocks that are in it, and the bucket of each of their tokens and of each adjusted
  // one.
  std::vector<double> histogram_;
  std::vector<std::uint32_t> live_;
  std::vector<std::uint16_t> buckets_;
  std::vector<std::int32_t> adjusted_buckets_;
  // The blocks' maxima and the candidates that are examined one by one, with their weights.
  std::vector<float> set_maxima_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace doppler
