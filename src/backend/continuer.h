// Continuer: a backend's interface for generating by itself. It chooses each token where the logits are and
// feeds it to the next step, so that nothing waits for the host between tokens.
#pragma once

#include <cstdint>
#include <span>

#include "backend/tap.h"
#include "base/result.h"
#include "doppler/types.h"

namespace doppler {

// A sequence to be continued.
struct Continuation {
  std::uint32_t slot = 0;
  TokenId id = 0;                             // the newest token, which the cache does not hold yet
  std::uint64_t most = 0;                     // tokens to generate at most; the context bounds them too
  const GenerateOptions* sampling = nullptr;  // outlives the continuation
  std::span<const TokenId> history;           // the whole sequence, with `id`; read at the beginning only
  std::uint64_t draw = 0;                     // the number of the first draw, as Sampler::sample counts them
  TokenId pad_id = -1;                        // a token that is never chosen; -1: none
  Tap* tap = nullptr;  // called from next_tokens() for each token, in order; does not change the tokens
};

class Continuer {
 public:
  virtual ~Continuer() = default;
  // True where a sequence continues with these options, token for token as Backend::step() with a Sampler
  // would. Where it does not, the reason is one of Backend::fallbacks() from then on.
  virtual bool can_continue(const GenerateOptions& sampling) = 0;
  // Begins to continue a slot's sequence; next_tokens() then gives the tokens as they come, some at a time,
  // and nothing at the end (Continuation::most, or the context is full). While one continues, no other step
  // may run.
  virtual Status continue_sequence(const Continuation& continuation) = 0;
  virtual Result<std::span<const TokenId>> next_tokens() = 0;
  // Ends the continuation. The slot's cache then holds `length` tokens: those before, the continuation's
  // `id`, and those from next_tokens() that the caller keeps, at most all but the last. Where recurrent
  // layers cannot go back to that they are fewer: Backend::length() says how many.
  virtual Status stop_sequence(std::uint64_t length) = 0;
};

}  // namespace doppler
