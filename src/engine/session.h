// Session: one sequence in one slot of a backend; knows which tokens
// its cache holds and feeds only what is new.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/tap_list.h"
#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/held_tap.h"
#include "engine/logits_tap.h"

namespace doppler {

class Session {
 public:
  // What the backend's fallbacks are by now was told by who made it; later ones the session tells.
  Session(Backend& backend, std::uint32_t slot)
      : backend_(backend), slot_(slot), told_(backend.fallbacks().size()) {}

  // From now on the tap (null: none) sees every token that is fed, and no other; it must outlive the session
  // or be taken away. Tokens and logits are the same with and without.
  void look(Tap* tap) { tap_ = tap; }
  // From the next continuation on shown_logits() has them.
  void show_logits(bool show) { shows_logits_ = show; }

  // Makes the cache hold exactly `ids` and returns the last one's logits. What it already holds of
  // them from before is kept, if `ids` only continue it; else it starts over. `reused` (may be
  // null) tells how many were kept. Errors: kLimit for a prompt longer than the context; kUsage for
  // none. A cancelled prompt gives empty logits.
  Result<std::span<const float>> prompt(std::span<const TokenId> ids, const CancelToken* cancel,
                                        std::size_t* reused);

  // Makes the cache hold exactly `ids` as prompt() does, and computes no logits. A cancelled one leaves the
  // cache shorter.
  Status extend(std::span<const TokenId> ids, const CancelToken* cancel);

  // Keeps the first `length` of the cached tokens. False where the cache cannot go back so far: it is then
  // empty.
  bool cut(std::size_t length);
  // Forgets everything.
  void clear();
  // The slot was filled with these from elsewhere.
  void adopt(std::vector<TokenId> ids) { cached_ = std::move(ids); }

  // Appends one token and returns its logits.
  Result<std::span<const float>> append(TokenId id);

  // Whether the backend can generate by itself with these options.
  bool can_continue(const GenerateOptions& sampling);
  // Lets it generate `most` tokens, or fewer if the context ends, after `history`, whose last token is not in
  // the cache yet; `draw` and `pad_id` are the continuation's. Until end_continuation() nothing else may be
  // fed. Errors: kUnsupported where the backend cannot show what the tap wants while it continues.
  Status begin_continuation(std::span<const TokenId> history, std::uint64_t most,
                            const GenerateOptions& sampling, std::uint64_t draw, TokenId pad_id);
  // The next of these tokens; the one before it is then in the cache. Errors: kMismatch for logits that hold
  // NaN or +Inf, or leave no token; the backend's own, after which the cache is empty.
  Result<TokenId> next();
  // The logits that next() chose from, where show_logits() or the trace category sample asks for them; else
  // none.
  std::span<const float> shown_logits() const;
  // Drops what the backend has computed beyond the last token that next() gave. Does nothing if nothing is
  // continued.
  Status end_continuation();

  Backend& backend() { return backend_; }
  const Backend& backend() const { return backend_; }
  std::uint32_t slot() const { return slot_; }
  bool full() const { return cached_.size() >= backend_.options().context; }
  std::span<const TokenId> cached() const { return cached_; }

 private:
  // Makes room for `ids`: drops what they do not continue.
  Status begin(std::span<const TokenId> ids);
  Result<std::span<const float>> feed(std::span<const TokenId> ids, bool wants_logits);
  Status fetch();
  void forget_continuation();
  void begin_trace_step();
  void tell_new_fallbacks();
  Backend& backend_;
  const std::uint32_t slot_;
  std::size_t told_;  // of the backend's fallbacks
  Tap* tap_ = nullptr;
  bool shows_logits_ = false;
  std::size_t prompt_length_ = 0;  // trace steps are counted from its end
  std::int64_t trace_step_ = 0;
  std::optional<LogitsTap> logits_tap_;  // while the backend generates and its logits are wanted
  TapList taps_;                         // that one and tap_
  std::optional<HeldTap> held_;          // while the backend generates and a tap looks
  std::vector<TokenId> cached_;
  // While the backend generates: the newest token, which is not in cached_, and the ones to come.
  std::optional<TokenId> newest_;
  std::vector<TokenId> coming_;
  std::size_t given_ = 0;  // of `coming_`
};

}  // namespace doppler
