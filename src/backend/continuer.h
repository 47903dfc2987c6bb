// Continuer: a backend's interface for generating by itself. It chooses each token where the logits are and
// feeds it to the next step, so that nothing waits for the host between tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/step_input.h"
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
  std::span<const TokenId> stops;             // of join(): a token after which no more are computed
  Tap* tap = nullptr;  // called from next_tokens() for each token, in order; does not change the tokens
  // Of continue_sequence(), where can_guess(): guesses for the tokens behind `id`. The backend checks them,
  // and from then on as many of its own at a time. None: tokens come one by one.
  std::span<const TokenId> guesses;
};

// In place of a token that was chosen: none could be, since its logits are not finite; or the sequence has no
// room left in the cache, and ends without it.
inline constexpr TokenId kNoToken = -1, kNoRoom = -2;

// A token that was chosen for the sequence in a slot.
struct SlotToken {
  std::uint32_t slot = 0;
  TokenId id = 0;
  bool operator==(const SlotToken&) const = default;
};

class Continuer {
 public:
  virtual ~Continuer() = default;
  // True where a sequence continues with these options, token for token as Backend::step() with a Sampler
  // would. Where it does not, the reason is one of Backend::fallbacks() from then on.
  virtual bool can_continue(const GenerateOptions& sampling) = 0;
  // Begins to continue a slot's sequence; next_tokens() then gives the tokens as they come, some at a time,
  // and nothing at the end (Continuation::most, or the context is full; with guesses perhaps some more than
  // that, and nothing as well where these find no room); kNoRoom where the cache has no room for it any more.
  // While one continues, no other step may run. Errors of next_tokens(): kMismatch where the device went on
  // with other guesses than its tokens say; what the slot's cache holds is unknown then.
  virtual Status continue_sequence(const Continuation& continuation) = 0;
  virtual Result<std::span<const TokenId>> next_tokens() = 0;
  // Ends the continuation. The slot's cache then holds `length` tokens: those before, the continuation's
  // `id`, and those from next_tokens() that the caller keeps, at most all but the last. Where recurrent
  // layers cannot go back to that they are fewer: Backend::length() says how many.
  virtual Status stop_sequence(std::uint64_t length) = 0;

  // Begins no more tokens: next_tokens() gives those that are under way, and then nothing. False where that
  // does not work: they are lost when the continuation is stopped.
  virtual bool wind_down() { return false; }

  // --- guesses

  // Whether the backend guesses by itself with these options, so many tokens at a time.
  virtual bool can_guess(const GenerateOptions&, std::size_t /*guesses*/) { return false; }
  // Whether check() chooses with these options.
  virtual bool can_check(const GenerateOptions&) { return false; }
  // Makes what a check of so many tokens needs, so that the first takes no longer than the others.
  virtual Status prepare_check(std::size_t /*tokens*/, const GenerateOptions&) { return {}; }
  // A step of StepInput::guesses, no more than Backend::rows_that_agree(): the token that follows each, as
  // the continuation of the first would choose it if all before it are right; kNoToken where none could be
  // chosen. Valid until the next call.
  virtual Result<std::span<const TokenId>> check(const StepInput&, const Continuation& /*first*/) {
    return fail(ErrorCode::kUnsupported, "Guesses are checked by their logits here.");
  }

  // --- several sequences, each step one token of every one

  // How many sequences may continue together; 0 where they do not. Where a kind of model does not, the reason
  // is one of Backend::fallbacks() from then on.
  virtual std::uint32_t most_together() { return 0; }
  // A sequence more, also while others are under way. Errors: kUsage for a slot that is in already or while a
  // single sequence continues; kLimit if there is no room for another; kUnsupported for a continuation with a
  // tap.
  virtual Status join(const Continuation&) { return alone(); }
  // The next tokens of all sequences, of each in order, those that end it included, kNoRoom among these;
  // nothing when all have ended. Steps with tokens of other slots may run between the calls. An error ends
  // all sequences, and their slots are empty then.
  virtual Result<std::span<const SlotToken>> tokens_of_all() { return std::unexpected(alone().error()); }
  // Takes a sequence out; `length` as for stop_sequence(). The others go on.
  virtual Status leave(std::uint32_t /*slot*/, std::uint64_t /*length*/) { return alone(); }

 private:
  static Status alone() { return fail(ErrorCode::kUnsupported, "Sequences continue one at a time here."); }
};

// Continues a sequence by itself to its end, and stops it there. `length`: tokens that its cache holds
// before.
Result<std::vector<TokenId>> continue_to_end(Continuer& continuer, const Continuation& continuation,
                                             std::uint64_t length);

}  // namespace doppler
