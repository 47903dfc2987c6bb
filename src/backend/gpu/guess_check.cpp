#include "backend/gpu/guess_check.h"

#include <cstring>

#include "backend/gpu/token_runner.h"

namespace doppler::gpu {

Result<GuessCheck> GuessCheck::create(Context& context, BatchProgram& batch) {
  GuessCheck check(context, batch);
  DOPPLER_ASSIGN(check.likeliest_, LikeliestRows::create(context, batch, kMostInLine));
  DOPPLER_ASSIGN(check.back_, context.device->make_read_back("checked guesses",
                                                             kMostInLine * check.likeliest_.row_bytes()));
  return check;
}

Status GuessCheck::prepare(std::size_t tokens, const GenerateOptions& sampling) {
  if (!TokenRunner::is_greedy(sampling) && !sampler_) {
    DOPPLER_ASSIGN(drawn_, context_->device->make_buffer("drawn behind guesses", kMostInLine * 4));
    DOPPLER_ASSIGN(sampler_, RowSampler::create(*context_, true));
  }
  std::vector<FixedDispatch>& body = bodies_[tokens];
  if (!body.empty()) return {};
  const auto rows = static_cast<std::uint32_t>(tokens);
  Recorder recorder(*context_->device, body);
  Status recorded = batch_->record(*context_, recorder, 0, context_->plan.ops.size(),
                                   {.tokens = rows, .wanted = rows, .apart = true, .in_line = true}, nullptr);
  if (!recorded) body.clear();
  return recorded;
}

void GuessCheck::record(Recorder& recorder, std::size_t tokens, bool draws) const {
  for (const FixedDispatch& dispatch : bodies_.at(tokens)) recorder.dispatch(dispatch);
  if (!draws) return recorder.dispatch(likeliest_.dispatch(static_cast<std::uint32_t>(tokens)));
  sampler_->begin_rows(recorder);
  const Buffer& logits = batch_->value(context_->plan.logits).buffer;
  for (std::size_t i = 0; i < tokens; ++i) sampler_->record(recorder, logits, i, drawn_);
}

Result<std::span<const TokenId>> GuessCheck::run(std::size_t tokens, const Continuation& c) {
  DOPPLER_TRY(prepare(tokens, *c.sampling));
  const bool draws = !TokenRunner::is_greedy(*c.sampling);
  if (draws) DOPPLER_TRY(begin(c));
  const std::uint64_t bytes = tokens * (draws ? 4 : likeliest_.row_bytes());
  Recorder recorder(*context_->device);
  record(recorder, tokens, draws);
  recorder.copy(draws ? drawn_ : likeliest_.candidates(), 0, back_, 0, bytes);
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  std::vector<std::uint32_t> words(bytes / 4);
  DOPPLER_TRY(context_->device->read(back_, bytes, submission, [&](std::span<const std::byte> from) {
    std::memcpy(words.data(), from.data(), from.size());
  }));
  chosen_.clear();
  const std::size_t each = words.size() / tokens;
  for (std::size_t row = 0; row < tokens; ++row) {
    const auto of_row = std::span(words).subspan(row * each, each);
    chosen_.push_back(draws ? static_cast<TokenId>(of_row[0]) : likeliest_.best_of(of_row));
  }
  return std::span<const TokenId>(chosen_);
}

}  // namespace doppler::gpu
