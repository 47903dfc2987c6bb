// Sampler: from a row of logits to the next token, exactly as GenerateOptions say.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"

namespace doppler {

// Errors: kUsage, naming the option, its value and what it may be.
Status check_generate_options(const GenerateOptions& options, std::uint32_t vocab_size);

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
  void penalise(std::span<const TokenId> history);
  void keep_top_k();
  void keep_probable(std::vector<double>& probabilities);

  const GenerateOptions& options_;
  TokenId pad_id_;
  std::vector<Candidate> candidates_;
};

}  // namespace doppler
