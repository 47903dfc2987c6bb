#include "engine/session.h"

#include <algorithm>

namespace doppler {

Result<std::span<const float>> Session::feed(std::span<const TokenId> ids, bool wants_logits) {
  StepInput input;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    input.add(ids[i], cached_.size() + i, slot_, wants_logits && i + 1 == ids.size());
  }
  DOPPLER_ASSIGN(const auto logits, backend_.step(input, nullptr));
  cached_.insert(cached_.end(), ids.begin(), ids.end());
  return logits;
}

Result<std::span<const float>> Session::prompt(std::span<const TokenId> ids, const CancelToken* cancel,
                                               std::size_t* reused) {
  if (ids.empty()) return fail(ErrorCode::kUsage, "The prompt has no tokens. Give at least one.");
  const std::uint64_t context = backend_.options().context;
  if (ids.size() > context) {
    return fail(ErrorCode::kLimit,
                "The prompt has {} tokens, but the context holds {}. Shorten it or raise --context.",
                ids.size(), context);
  }
  // A cache cannot be cut back (rings have overwritten what lies behind), so
  // it helps only if the prompt continues it.
  const bool continues =
      cached_.size() < ids.size() && std::equal(cached_.begin(), cached_.end(), ids.begin());
  if (!continues) {
    backend_.clear(slot_);
    cached_.clear();
  }
  if (reused != nullptr) *reused = cached_.size();
  std::span<const float> logits;
  while (cached_.size() < ids.size()) {
    if (cancel != nullptr && cancel->cancelled()) return std::span<const float>();
    const std::size_t count =
        std::min<std::size_t>(backend_.options().max_step_tokens, ids.size() - cached_.size());
    DOPPLER_ASSIGN(logits, feed(ids.subspan(cached_.size(), count), cached_.size() + count == ids.size()));
  }
  return logits;
}

Result<std::span<const float>> Session::append(TokenId id) {
  return feed(std::span(&id, 1), true);
}

}  // namespace doppler
