// Whether single tokens come out right on this device: the program made for them is compared with the batch
// program, and the tokens that the device chooses with the logits that it computes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace doppler::gpu {

// Logits of a token after a prompt that is longer than a split of attention and a chunk of positions. Slot 0
// is empty afterwards.
Result<std::vector<float>> check_logits(Backend& backend);

// What is wrong with single tokens, as the end of a sentence; empty if nothing is. `expected` is the result
// of check_logits() with the batch program. The backend must be able to continue sequences. Slot 0 is empty
// afterwards.
Result<std::string> wrong_tokens(Backend& backend, std::span<const float> expected);

}  // namespace doppler::gpu
