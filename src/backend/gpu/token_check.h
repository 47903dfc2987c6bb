// Whether single tokens come out right on this device: the program made for them is compared with the batch
// program, and the tokens that the device chooses with the logits that it computes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace doppler::gpu {

// What a token came to: its logits, and in each layer with experts what its router gave and whom it chose.
struct CheckedToken {
  struct Routing {
    std::vector<float> logits, ids;
  };
  std::vector<float> logits;
  std::map<int, Routing> routing;  // by layer
};

// Each by itself after a prompt that is longer than a split of attention and a chunk of positions: one token,
// or with experts several, because one may stand between two experts. Slot 0 is empty afterwards.
Result<std::vector<CheckedToken>> check_tokens(Backend& backend);

// The steps that check_tokens() takes with the batch program, as far as they differ: the prompt's, which may
// be empty, and a token's.
std::pair<StepInput, StepInput> checked_steps(const Backend& backend);

// What is wrong with single tokens, as the end of a sentence; empty if nothing is. `expected` is the result
// of check_tokens() with the batch program. The backend must be able to continue sequences. Slot 0 is empty
// afterwards.
Result<std::string> wrong_tokens(Backend& backend, const std::vector<CheckedToken>& expected);

// What differs between two runs of one token, as the end of a sentence. `share`: how far a value may be off,
// as a share of the largest. Where both choose other experts although their routers agree, the token stood
// between two, and all that follows is another computation that says nothing: `tied` becomes true.
std::string token_difference(const CheckedToken& expected, const CheckedToken& got, double share, bool& tied);

}  // namespace doppler::gpu
