// The likeliest tokens of a row of logits, and log probabilities.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "doppler/doppler.h"

namespace doppler {

struct Likely {
  TokenId id = -1;
  float logit = 0;
  double probability = 0;  // of the softmax at the temperature asked for
};
// At most `most` tokens, the likeliest of a row, best first; of equals the lower id. NaN never wins. At
// temperature 0, which draws nothing, the probabilities are those of temperature 1.
std::vector<Likely> likeliest(std::span<const float> logits, std::size_t most, double temperature = 1);

// The log probability of the token `id`, which is in the row, and the `top` likeliest tokens in its place.
TokenLogprobs logprobs_of(std::span<const float> logits, TokenId id, std::size_t top);

// -log softmax(logits)[target], in double; NaN where a logit is.
double token_loss(std::span<const float> logits, TokenId target);

}  // namespace doppler
