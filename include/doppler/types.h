// Token ids, and how the next token is chosen: the types that the public interface and the backends share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace doppler {

using TokenId = std::int32_t;

// How the next token is chosen. Order: penalties and biases on the logits, then temperature, then the
// filters.
struct GenerateOptions {
  std::uint32_t max_tokens = 256;    // generated ones, at most
  double temperature = 0;            // 0: always the likeliest token
  std::uint32_t top_k = 0;           // keep the k likeliest; 0: all
  double top_p = 1;                  // keep the likeliest that together reach this probability
  double min_p = 0;                  // keep tokens at least this share as likely as the likeliest
  double repeat_penalty = 1;         // divides positive and multiplies negative logits of tokens seen before
  double presence_penalty = 0;       // subtracted once from tokens seen before
  double frequency_penalty = 0;      // subtracted for each time they were seen
  std::uint32_t penalty_window = 0;  // how many tokens back "before" reaches; 0: the whole sequence
  std::map<TokenId, double> logit_bias = {};  // added to the logits of single tokens
  std::uint64_t seed = 0;              // the same seed gives the same text on every backend and thread count
  std::vector<std::string> stop = {};  // generation ends before the first of these appears
  bool ignore_eos = false;             // go on past the end-of-sequence tokens
  // Keeps the log probability of each generated token, and those of this many likeliest tokens at its
  // position; -1: none. A GPU then sends the logits of every token to the host, which is slower.
  std::int32_t logprobs = -1;
  // Tokens that are guessed ahead from what the sequence repeats, and checked in one step: 1 to
  // kMostSpeculated, 0: none, kSpeculateAuto: as many as pay. The tokens are the same, they come faster.
  static constexpr std::int32_t kSpeculateAuto = -1, kMostSpeculated = 16;
  std::int32_t speculate = kSpeculateAuto;
};

}  // namespace doppler
