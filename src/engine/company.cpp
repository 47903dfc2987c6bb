#include "engine/company.h"

#include <utility>

namespace doppler {

Status Company::join(Backend& backend, const Continuation& continuation) {
  DOPPLER_TRY(backend.continuer()->join(continuation));
  members_[continuation.slot].clear();
  failed_.erase(continuation.slot);
  return {};
}

Result<std::vector<TokenId>> Company::next(Backend& backend, std::uint32_t slot) {
  if (const auto own = members_.find(slot); own != members_.end() && own->second.empty()) turns_.pass();
  if (const auto failed = failed_.find(slot); failed != failed_.end()) {
    Error error = std::move(failed->second);
    failed_.erase(failed);
    return std::unexpected(std::move(error));
  }
  std::vector<TokenId>& own = members_[slot];
  if (own.empty()) {
    auto tokens = backend.continuer()->tokens_of_all();
    if (!tokens) {  // of everybody
      for (const auto& [other, came] : members_) {
        if (other != slot) failed_.emplace(other, tokens.error());
      }
      members_.clear();
      return std::unexpected(std::move(tokens).error());
    }
    for (const SlotToken& token : *tokens) members_[token.slot].push_back(token.id);
  }
  return std::exchange(members_[slot], {});
}

Status Company::leave(Backend& backend, std::uint32_t slot, std::uint64_t length) {
  failed_.erase(slot);
  if (members_.erase(slot) == 0) return fail(ErrorCode::kInternal, "The sequence in slot {} is alone.", slot);
  return backend.continuer()->leave(slot, length);
}

}  // namespace doppler
