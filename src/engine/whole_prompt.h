// A prompt that is computed anew as a whole: to look at every token of it, or to score each.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/session.h"

namespace doppler {

// Feeds the whole prompt from the start, with logits of the tokens that `wants_logits` names (empty: of
// none). `on_logits` gets the rows of a step and the position of the first token of the step. A cancelled run
// stops between steps. The session's cache then holds what was fed.
Status run_whole(Session& session, std::span<const TokenId> prompt, const std::vector<bool>& wants_logits,
                 Tap* tap, const CancelToken* cancel,
                 const std::function<void(std::span<const float> rows, std::size_t first)>& on_logits);

// Engine::look and Engine::score, for a session.
Result<std::vector<StageValues>> look_at(Session& session, std::span<const TokenId> prompt,
                                         const LookRequest& request, const CancelToken* cancel = nullptr);
Result<std::vector<TokenLogprobs>> score_all(Session& session, std::span<const TokenId> ids,
                                             std::uint32_t top, Tap* tap,
                                             const CancelToken* cancel = nullptr);

}  // namespace doppler
