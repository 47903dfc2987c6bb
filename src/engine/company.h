// Company: the sequences of an engine that generate at the same time, each on the thread of its own call.
// Where the backend can, they continue together: whoever needs tokens and has none takes them for all, and
// lets the others have their turns before it asks again. Whoever calls has the turn.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/turns.h"

namespace doppler {

class Company {
 public:
  explicit Company(Turns& turns) : turns_(turns) {}

  // Whether a sequence that generates had better do so in company: another call waits, or some do already.
  bool is_wanted() const { return !members_.empty() || turns_.has_waiting(); }
  std::size_t size() const { return members_.size(); }
  // Whether nobody else is there, or waits to come.
  bool is_lonely() const { return members_.size() == 1 && !turns_.has_waiting(); }

  Status join(Backend& backend, const Continuation& continuation);
  // The next tokens of the sequence in that slot; none when it has ended. Others have turns meanwhile.
  Result<std::vector<TokenId>> next(Backend& backend, std::uint32_t slot);
  Status leave(Backend& backend, std::uint32_t slot, std::uint64_t length);

 private:
  Turns& turns_;
  std::map<std::uint32_t, std::vector<TokenId>> members_;  // tokens that came, by slot
  std::map<std::uint32_t, Error> failed_;                  // those whose company broke up
};

}  // namespace doppler
