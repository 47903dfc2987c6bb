#include "backend/gpu/guess_check.h"

#include <algorithm>
#include <cstring>

#include "backend/gpu/token_runner.h"

namespace doppler::gpu {

Result<GuessCheck> GuessCheck::create(Context& context, BatchProgram& batch) {
  GuessCheck check(context, batch);
  DOPPLER_ASSIGN(check.likeliest_, LikeliestRows::create(context, batch, kMostInLine));
  DOPPLER_ASSIGN(check.back_, context.device->make_read_back("checked guesses",
                                                             kMostInLine * check.likeliest_.row_bytes()));
  DOPPLER_ASSIGN(check.drawn_, context.device->make_buffer("drawn behind guesses", kMostInLine * 4));
  return check;
}

// The newest token and as many guesses as anybody asks for, or as there are logits of.
std::uint32_t GuessCheck::most_at_once() const {
  return std::min(1 + std::uint32_t{GenerateOptions::kMostSpeculated}, batch_->wanted_rows());
}

GuessCheck::Way GuessCheck::way_of(std::size_t tokens, const GenerateOptions& o) const {
  if (TokenRunner::is_greedy(o)) return Way::kLikeliest;
  const std::uint32_t most = most_at_once();
  const bool fit =
      most * Sampling::row_bytes(context_->plan.vocab_size) <= context_->device->limits().binding_bytes;
  return Sampling::remembers(o) || !fit || tokens > most ? Way::kInTurn : Way::kAtOnce;
}

Status GuessCheck::prepare(std::size_t tokens, const GenerateOptions& sampling) {
  const Way way = way_of(tokens, sampling);
  if (way == Way::kAtOnce && !rows_) {
    const Sampling::Rows rows{
        .vocab = context_->plan.vocab_size, .count = most_at_once(), .of_logits = most_at_once()};
    DOPPLER_ASSIGN(rows_, Sampling::create(*context_->device, context_->kernels, rows,
                                           batch_->value(context_->plan.logits).buffer, drawn_));
  }
  if (way == Way::kInTurn && !in_turn_) {
    DOPPLER_ASSIGN(in_turn_, RowSampler::create(*context_));
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

Status GuessCheck::begin(std::size_t tokens, const Continuation& c) {
  const Way way = way_of(tokens, *c.sampling);
  if (way == Way::kLikeliest) return {};
  if (way == Way::kInTurn) return in_turn_->begin(c);
  const auto count = static_cast<std::uint32_t>(tokens);
  DOPPLER_TRY(rows_->begin(0, *c.sampling, c.pad_id, c.history, c.draw, count));
  std::vector<Sampling::Listed> all;
  for (std::uint32_t row = 0; row < count; ++row) all.push_back({row, row});
  return rows_->list(all);
}

void GuessCheck::record(Recorder& recorder, std::size_t tokens, Way way) const {
  for (const FixedDispatch& dispatch : bodies_.at(tokens)) recorder.dispatch(dispatch);
  if (way == Way::kLikeliest) {
    recorder.dispatch(likeliest_.dispatch(static_cast<std::uint32_t>(tokens)));
  } else if (way == Way::kAtOnce) {
    rows_->record(recorder);
  } else {
    in_turn_->begin_guesses(recorder);
    const Buffer& logits = batch_->value(context_->plan.logits).buffer;
    for (std::size_t i = 0; i < tokens; ++i) in_turn_->record(recorder, logits, i, drawn_);
  }
}

Result<std::span<const TokenId>> GuessCheck::run(std::size_t tokens, const Continuation& c) {
  DOPPLER_TRY(prepare(tokens, *c.sampling));
  DOPPLER_TRY(begin(tokens, c));
  const Way way = way_of(tokens, *c.sampling);
  const bool draws = way != Way::kLikeliest;
  const std::uint64_t bytes = tokens * (draws ? 4 : likeliest_.row_bytes());
  Recorder recorder(*context_->device);
  record(recorder, tokens, way);
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
