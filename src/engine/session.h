// Session: one sequence in one slot of a backend; knows which tokens its cache holds and feeds only new ones.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/tap_list.h"
#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/company.h"
#include "engine/held_tap.h"
#include "engine/logits_tap.h"

namespace doppler {

// Where a backend could choose no token after so many.
Error no_token_error(std::size_t tokens);

class Session {
 public:
  // The backend's maker has reported the fallbacks up to now; the session reports later ones.
  Session(Backend& backend, std::uint32_t slot)
      : backend_(backend), slot_(slot), told_(backend.fallbacks().size()) {}

  // Sequences that it may generate together with; outlives the session.
  void share(Company* company) { company_ = company; }
  // From now on the tap (null: none) sees every token that is fed, and only those; it must outlive the
  // session or be taken away. Tokens and logits are the same with and without a tap.
  void look(Tap* tap) { tap_ = tap; }
  // Whether shown_logits() has logits, from the next continuation on.
  void show_logits(bool show) { shows_logits_ = show; }

  // Makes the cache hold exactly `ids` and returns the last one's logits. The longest common beginning of
  // `ids` and the cached tokens is kept (but for the last of `ids`), unless windows have overwritten what it
  // needs: then it starts over; recurrent layers go back to the nearest border before it. `reused` (may be
  // null): how many were kept. Errors: kLimit for a prompt longer than the context; kUsage for an empty one.
  // A cancelled prompt gives empty logits.
  Result<std::span<const float>> prompt(std::span<const TokenId> ids, const CancelToken* cancel,
                                        std::size_t* reused);

  // Makes the cache hold what that of `other` does; the two share it until they differ.
  Status share_cache_of(const Session& other);

  // Makes the cache hold exactly `ids` as prompt() does, and computes no logits. A cancelled call leaves the
  // cache shorter.
  Status extend(std::span<const TokenId> ids, const CancelToken* cancel);

  // Keeps the first `length` of the cached tokens. False where the cache cannot go back to these: it then
  // holds fewer, or none.
  bool cut(std::size_t length);
  // Forgets everything.
  void clear();
  // To be called when the slot was filled with these tokens from outside (a file, another slot).
  void adopt(std::vector<TokenId> ids) {
    cached_ = std::move(ids);
    borders_.clear();
  }

  // Appends one token, or some (no more than a step takes), and returns their logits, row after row.
  Result<std::span<const float>> append(TokenId id) { return append(std::span(&id, 1)); }
  Result<std::span<const float>> append(std::span<const TokenId> ids);
  // Prepares the backend for check() of so many tokens. Where that fails it is a fallback.
  bool prepare_check(std::size_t tokens, const GenerateOptions& sampling);
  // The token that follows each of some, as the backend chooses it (Continuer::check). `history` is what the
  // cache holds and the first of them.
  Result<std::span<const TokenId>> check(std::span<const TokenId> ids, std::span<const TokenId> history,
                                         const GenerateOptions& sampling, std::uint64_t draw, TokenId pad_id);
  // Whether check() gives what is known: computes up to 16 of the last tokens of `history` again, of which
  // `drawn` were drawn and the last is not in the cache. Where it does not, that is a fallback. Asked once,
  // since no driver computes as another does.
  Result<bool> checks_rightly(std::span<const TokenId> history, const GenerateOptions& sampling,
                              std::uint64_t drawn, TokenId pad_id);
  bool checks_wrongly() const { return checks_rightly_ == false; }
  // Why the next tokens cannot be guessed and appended together, to be cut off again where they are wrong; a
  // sentence, empty if they can.
  std::string_view why_no_guesses() const;
  // Whether no other sequence generates together with this one, or waits for a place beside it.
  bool is_alone() const {
    return company_ == nullptr || backend_.continuer() == nullptr || !company_->is_wanted();
  }

  // Whether the backend can generate by itself with these options.
  bool can_continue(const GenerateOptions& sampling);
  // Lets the backend generate `most` tokens, or fewer if the context ends, after `history`, whose last token
  // is not in the cache yet; `draw` and `pad_id`: see Sampler; `stops`: tokens after which no more are asked
  // for; `guesses`: see Continuation; where they find no room any more, tokens come one by one. Until
  // end_continuation() nothing else may be fed. In company other calls have turns meanwhile.
  // Errors: kUnsupported where the backend cannot show what the tap wants while it continues.
  Status begin_continuation(std::span<const TokenId> history, std::uint64_t most,
                            const GenerateOptions& sampling, std::uint64_t draw, TokenId pad_id,
                            std::span<const TokenId> stops = {}, std::span<const TokenId> guesses = {});
  // Whether the backend goes on with guesses of its own.
  bool is_guessing() const { return guessing_; }
  // The next of these tokens; the token before it is then in the cache. Errors: kMismatch for logits that
  // hold NaN or +Inf, or leave no token; kLimit where other sequences fill the cache; those of the backend,
  // after which the cache is empty.
  Result<TokenId> next();
  // Lets the backend begin no more tokens: next() gives those that are under way, while more() says so.
  Status wind_down();
  std::size_t more() const { return coming_.size() - given_; }
  // The logits that next() chose from, where show_logits() or the trace category sample asks for them; else
  // none.
  std::span<const float> shown_logits() const;
  // Drops the tokens that the backend has computed beyond the last one that next() gave. Does nothing outside
  // a continuation.
  Status end_continuation();

  Backend& backend() { return backend_; }
  const Backend& backend() const { return backend_; }
  std::uint32_t slot() const { return slot_; }
  std::span<const TokenId> cached() const { return cached_; }

 private:
  Status begin(std::span<const TokenId> ids, std::size_t again);
  // `wanted`: of how many tokens at the end the logits are.
  StepInput input_of(std::span<const TokenId> ids, std::size_t wanted) const;
  Result<std::span<const float>> feed(std::span<const TokenId> ids, std::size_t wanted);
  Status fetch();
  bool may_share() const;
  Status continue_from(bool together, std::span<const TokenId> guesses = {});
  Status stop();
  // Of recurrent models: the states as they were when the cache held so many tokens, to go back to.
  struct Border {
    std::size_t length = 0;
    std::vector<std::byte> states;
  };
  std::size_t chunk_of(std::size_t left) const;
  Status keep_border(std::size_t prompt);
  void forget_continuation();
  Status forget_guesses();
  Status feed_lost();
  void begin_trace_step();
  void tell_new_fallbacks();
  Backend& backend_;
  const std::uint32_t slot_;
  std::size_t told_;  // how many of the backend's fallbacks are reported
  Tap* tap_ = nullptr;
  bool shows_logits_ = false;
  std::optional<bool> checks_rightly_;  // nothing: not tried yet
  std::size_t prompt_length_ = 0;       // trace steps are counted from its end
  std::int64_t trace_step_ = 0;
  std::optional<LogitsTap> logits_tap_;  // while the backend generates and its logits are wanted
  TapList taps_;                         // logits_tap_ and tap_
  std::optional<HeldTap> held_;          // while the backend generates and a tap looks
  std::vector<TokenId> cached_;
  std::vector<Border> borders_;  // beginnings of cached_, by length
  // While the backend generates: the newest token, which is not in cached_, and the ones to come.
  std::optional<TokenId> newest_;
  // What is left of it, should it go on alone, or in company.
  struct Wish {
    std::uint64_t most = 0, draw = 0;
    const GenerateOptions* sampling = nullptr;
    TokenId pad_id = -1;
    std::span<const TokenId> stops;
  };
  Wish wish_;
  Company* company_ = nullptr;
  bool together_ = false, guessing_ = false;
  std::vector<TokenId> coming_;
  std::size_t given_ = 0;  // how many of `coming_` next() gave
};

}  // namespace doppler
