// Log probabilities of tokens, from a row of logits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "doppler/doppler.h"

namespace doppler {

// At most `most` tokens, the likeliest of a softmax over the row at temperature 1, best first; of equals the
// lower id. NaN never wins.
std::vector<LikelyToken> likeliest_tokens(std::span<const float> logits, std::size_t most);

// The log probability of the token `id`, which is in the row, and the `top` likeliest tokens in its place.
TokenLogprobs logprobs_of(std::span<const float> logits, TokenId id, std::size_t top);

}  // namespace doppler
