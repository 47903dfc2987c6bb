#include "engine/whole_prompt.h"

#include <algorithm>
#include <set>

#include "backend/backend.h"
#include "engine/logprobs.h"
#include "engine/look.h"

namespace doppler {

Status run_whole(Session& session, std::span<const TokenId> prompt, const std::vector<bool>& wants_logits,
                 Tap* tap, const CancelToken* cancel,
                 const std::function<void(std::span<const float> rows, std::size_t first)>& on_logits) {
  // Logits are wide, so tokens that want them come in smaller steps: 32 rows of 262144 are 32 MB.
  constexpr std::size_t kLogitTokens = 32;
  const std::size_t fits = step_tokens(session.backend().options());
  const std::size_t most = wants_logits.empty() ? fits : std::min(kLogitTokens, fits);
  session.clear();
  std::vector<TokenId> fed;
  for (std::size_t first = 0; first < prompt.size(); first += most) {
    if (cancel != nullptr && cancel->cancelled()) break;
    StepInput input;
    const std::size_t end = std::min(prompt.size(), first + most);
    for (std::size_t i = first; i < end; ++i)
      input.add(prompt[i], i, session.slot(), !wants_logits.empty() && wants_logits[i]);
    DOPPLER_ASSIGN(const auto rows, session.backend().step(input, tap));
    fed.insert(fed.end(), input.ids.begin(), input.ids.end());
    session.adopt(fed);
    if (on_logits) on_logits(rows, first);
  }
  return {};
}

namespace {

Status check_whole(std::span<const TokenId> prompt, std::uint64_t context) {
  if (prompt.empty()) return fail(ErrorCode::kUsage, "The prompt has no tokens. Give at least one.");
  if (prompt.size() <= context) return {};
  return fail(ErrorCode::kLimit, "The prompt has {} tokens, but the context holds {}.", prompt.size(),
              context);
}

}  // namespace

Result<std::vector<StageValues>> look_at(Session& session, std::span<const TokenId> prompt,
                                         const LookRequest& request, const CancelToken* cancel) {
  DOPPLER_TRY(check_whole(prompt, session.backend().options().context));
  DOPPLER_ASSIGN(const Looked looked, Looked::create(request, session.backend().plan()));
  DOPPLER_ASSIGN(std::set<std::int64_t> positions, looked.tokens(prompt.size()));
  if (!positions.empty() && *positions.rbegin() >= static_cast<std::int64_t>(prompt.size())) {
    return fail(ErrorCode::kUsage, "The look asks for the token {}, but the prompt has {} tokens.",
                *positions.rbegin(), prompt.size());
  }
  const std::size_t rows = positions.empty() ? prompt.size() : positions.size();
  if (const std::uint64_t bytes = looked.bytes(rows, prompt.size());
      request.values && bytes > request.most_bytes) {
    return fail(
        ErrorCode::kLimit,
        "The look would keep {} bytes, more than its bound of {}. Ask for fewer stages, layers, tokens "
        "or dims, for statistics instead of values, or raise LookRequest::most_bytes.",
        bytes, request.most_bytes);
  }
  std::vector<bool> wants_logits;
  if (looked.wants_logit_rows()) {
    wants_logits.resize(prompt.size(), positions.empty());
    for (const std::int64_t token : positions) wants_logits[static_cast<std::size_t>(token)] = true;
  }
  LookCollector collector;
  LookTap tap(looked, std::move(positions), [&](StageValues values) { collector.add(std::move(values)); });
  DOPPLER_TRY(run_whole(session, prompt, wants_logits, &tap, cancel, {}));
  return collector.take();
}

Result<std::vector<TokenLogprobs>> score_all(Session& session, std::span<const TokenId> ids,
                                             std::uint32_t top, Tap* tap, const CancelToken* cancel) {
  DOPPLER_TRY(check_whole(ids, session.backend().options().context));
  std::vector<TokenLogprobs> scores;
  const std::size_t vocab = session.backend().plan().vocab_size;
  const auto on_logits = [&](std::span<const float> rows, std::size_t first) {
    for (std::size_t row = 0; row * vocab < rows.size() && first + row + 1 < ids.size(); ++row)
      scores.push_back(logprobs_of(rows.subspan(row * vocab, vocab), ids[first + row + 1], top));
  };
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < vocab) continue;
    return fail(ErrorCode::kMismatch, "The token id {} is outside the vocabulary of {} tokens.", id, vocab);
  }
  DOPPLER_TRY(run_whole(session, ids, std::vector<bool>(ids.size(), true), tap, cancel, on_logits));
  return scores;
}

}  // namespace doppler
