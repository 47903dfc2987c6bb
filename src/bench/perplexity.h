// How well a model predicts a text: its loss in nats per token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/types.h"

namespace doppler::bench {

struct PerplexityResult {
  std::uint64_t tokens = 0;  // predicted ones
  std::uint64_t chunks = 0;
  double loss = 0;                   // mean, in nats per predicted token
  double standard_error = 0;         // of the mean, tokens taken as independent
  std::vector<double> chunk_losses;  // the mean of each chunk, in order
  double perplexity() const;
};

// Cuts ids into chunks, each to be run from an empty cache, as transformers' documentation does with a stride
// of the whole context: a chunk holds at most `context` tokens; its first token is given, every other one is
// predicted from those before it in the chunk. A BOS inside begins a new chunk, so that each document is
// predicted by itself. With `bos` >= 0 a chunk that begins without BOS gets one in front, for models that
// were trained with it; it counts towards the context. Chunks that predict nothing are dropped.
std::vector<std::vector<TokenId>> chunk_text(std::span<const TokenId> ids, std::uint64_t context,
                                             TokenId bos);

// Errors: kUsage when no token is predicted; those of Backend::step. Uses slot 0.
Result<PerplexityResult> measure_perplexity(Backend& backend, std::span<const std::vector<TokenId>> chunks,
                                            const std::function<void(double share)>& progress);

}  // namespace doppler::bench
