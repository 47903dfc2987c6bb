// Session: one sequence in one slot of a backend; knows which tokens
// its cache holds and feeds only what is new.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "doppler/doppler.h"

namespace doppler {

class Session {
 public:
  Session(Backend& backend, std::uint32_t slot) : backend_(backend), slot_(slot) {}

  // Makes the cache hold exactly `ids` and returns the last one's logits. What it already holds of
  // them from before is kept, if `ids` only continue it; else it starts over. `reused` (may be
  // null) tells how many were kept. Errors: kLimit for a prompt longer than the context; kUsage for
  // none. A cancelled prompt gives empty logits.
  Result<std::span<const float>> prompt(std::span<const TokenId> ids, const CancelToken* cancel,
                                        std::size_t* reused);

  // Appends one token and returns its logits.
  Result<std::span<const float>> append(TokenId id);

  bool full() const { return cached_.size() >= backend_.options().context; }
  std::span<const TokenId> cached() const { return cached_; }

 private:
  Result<std::span<const float>> feed(std::span<const TokenId> ids, bool wants_logits);
  Backend& backend_;
  const std::uint32_t slot_;
  std::vector<TokenId> cached_;
};

}  // namespace doppler
