#include "backend/gpu/sequences_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/gpu/shader_values.h"
#include "backend/gpu/token_runner.h"

namespace doppler::gpu {
namespace {

// Steps whose results the host has not read yet, at most.
constexpr std::uint32_t kRingSteps = 1024;
// Words of a sequence in `rows`: what next_tokens.wgsl counts, and tokens that end it. Models have one to
// eight of these; where there are more, the host sees the others, some steps later.
constexpr std::uint32_t kRowHeader = 4, kMostStops = 12, kRowWords = kRowHeader + kMostStops;
// Sequences whose tokens one sampler chooses. More take buffers that few need: a row has 32 bytes for each
// token of the vocabulary, 8 MiB of Gemma's.
constexpr std::uint32_t kChoosers = 16;
constexpr std::uint32_t kNextThreads = 32;  // as many as LikeliestRows has candidates of a row at most

}  // namespace

Result<SequencesRunner> SequencesRunner::create(Context& context, BatchProgram& batch, std::uint32_t most) {
  SequencesRunner runner(context, batch, most);
  Device& device = *context.device;
  const std::uint32_t vocab = context.plan.vocab_size;
  DOPPLER_ASSIGN(runner.likeliest_, LikeliestRows::create(context, batch, most));
  const struct {
    Buffer* buffer;
    const char* label;
    std::uint64_t words;
  } all[] = {{&runner.ring_, "ring of sequences", std::uint64_t{kRingSteps} * most},
             {&runner.chosen_, "chosen of sequences", most},
             {&runner.table_, "sequences", std::uint64_t{most} * kRowWords}};
  for (const auto& one : all) {
    DOPPLER_ASSIGN(*one.buffer, device.make_buffer(one.label, one.words * 4));
  }
  DOPPLER_ASSIGN(auto next,
                 context.kernels.get("next_tokens.wgsl", {{"THREADS", kNextThreads},
                                                          {"CANDIDATES", runner.likeliest_.each()},
                                                          {"VOCAB", vocab},
                                                          {"RING", kRingSteps},
                                                          {"MOST", most},
                                                          {"IDS", context.layout.ids()},
                                                          {"POSITIONS", context.layout.positions()},
                                                          {"ROW_WORDS", kRowWords}}));
  DOPPLER_ASSIGN(runner.next_, BoundKernel::create(device, std::move(next),
                                                   {{"step", context.step},
                                                    {"ring", runner.ring_},
                                                    {"candidates", runner.likeliest_.candidates()},
                                                    {"chosen", runner.chosen_},
                                                    {"rows", runner.table_}}));
  return runner;
}

bool SequencesRunner::has(std::uint32_t slot) const {
  return std::ranges::any_of(rows_, [&](const Row& row) { return row.slot == slot; });
}

std::vector<std::uint32_t> SequencesRunner::slots() const {
  std::vector<std::uint32_t> slots;
  for (const Row& row : rows_) slots.push_back(row.slot);
  return slots;
}

Status SequencesRunner::join(const Continuation& c, std::uint64_t length) {
  if (has(c.slot))
    return fail(ErrorCode::kUsage, "The sequence in slot {} is being continued already.", c.slot);
  if (rows_.size() >= most_)
    return fail(ErrorCode::kLimit, "{} sequences continue together at most, and as many do.", most_);
  if (pad_ && *pad_ != c.pad_id) {
    return fail(ErrorCode::kUnsupported,
                "Sequences that continue together have one token that is never chosen.");
  }
  Row row{.slot = c.slot,
          .begin = length,
          .left = std::min(c.most, context_->options.context - length),
          .newest = c.id,
          .stops = {c.stops.begin(), c.stops.end()}};
  if (!TokenRunner::is_greedy(*c.sampling)) {
    DOPPLER_ASSIGN(row.chooser, free_chooser());
    Chooser& chooser = choosers_[*row.chooser];
    DOPPLER_TRY(samplers_[chooser.sampler].begin(chooser.row, *c.sampling, c.pad_id, c.history, c.draw));
    chooser.used = true;
  }
  pad_ = c.pad_id;
  rows_.push_back(std::move(row));
  stale_ = true;
  return {};
}

Result<std::size_t> SequencesRunner::free_chooser() {
  const auto free = std::ranges::find(choosers_, false, &Chooser::used);
  if (free != choosers_.end()) return static_cast<std::size_t>(free - choosers_.begin());
  const std::size_t first = choosers_.size();
  const Buffer& logits = batch_->value(context_->plan.logits).buffer;
  const std::uint64_t fit =
      context_->device->limits().binding_bytes / Sampling::row_bytes(context_->plan.vocab_size);
  const Sampling::Rows rows{
      .vocab = context_->plan.vocab_size,
      .count = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fit, 1, std::min(kChoosers, most_))),
      .of_logits = most_,
      .tokens = context_->options.context + 1};
  DOPPLER_ASSIGN(Sampling sampler,
                 Sampling::create(*context_->device, context_->kernels, rows, logits, chosen_));
  for (std::uint32_t row = 0; row < rows.count; ++row) choosers_.push_back({samplers_.size(), row});
  samplers_.push_back(std::move(sampler));
  return first;
}

std::uint64_t SequencesRunner::most_left() const {
  std::uint64_t most = 0;
  for (const std::size_t index : listed_) most = std::max(most, rows_[index].left);
  const std::uint64_t flying = submitted_ - received_;
  return most > flying ? most - flying : 0;
}

Result<std::vector<FixedDispatch>> SequencesRunner::body(std::uint32_t count) {
  std::vector<FixedDispatch> list;
  Recorder recorder(*context_->device, list);
  const StepShape shape{.tokens = count, .wanted = count, .runs = false, .apart = true};
  DOPPLER_TRY(batch_->record(*context_, recorder, 0, context_->plan.ops.size(), shape, nullptr));
  return list;
}

std::vector<FixedDispatch> SequencesRunner::choice(std::uint32_t count) const {
  return {likeliest_.dispatch(count), {next_, {count, 1, 1}}};
}

// Tells the samplers which of their rows choose, and from which rows of logits.
Status SequencesRunner::list_choosers() {
  std::vector<std::vector<Sampling::Listed>> lists(samplers_.size());
  for (std::size_t i = 0; i < listed_.size(); ++i) {
    if (const auto& chooser = rows_[listed_[i]].chooser)
      lists[choosers_[*chooser].sampler].push_back({choosers_[*chooser].row, static_cast<std::uint32_t>(i)});
  }
  for (std::size_t i = 0; i < samplers_.size(); ++i) DOPPLER_TRY(samplers_[i].list(lists[i]));
  return {};
}

// Lists the sequences that have not ended. Nothing may be under way.
Status SequencesRunner::write_rows() {
  listed_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!rows_[i].ended()) listed_.push_back(i);
  }
  stale_ = false;
  submitted_ = received_ = 0;
  const auto count = static_cast<std::uint32_t>(listed_.size());
  if (count == 0) return {};
  DOPPLER_TRY(list_choosers());
  if (count != step_rows_) {
    DOPPLER_ASSIGN(body_, body(count));
    choice_ = choice(count);
    step_rows_ = count;
  }
  const StepLayout& layout = context_->layout;
  std::vector<std::uint32_t> ids, positions, slots, wanted, table(std::size_t{count} * kRowWords, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Row& row = rows_[listed_[i]];
    ids.push_back(static_cast<std::uint32_t>(row.newest));
    positions.push_back(static_cast<std::uint32_t>(row.begin + row.given));
    slots.push_back(row.slot);
    wanted.push_back(i);
    const std::size_t stops = std::min<std::size_t>(row.stops.size(), kMostStops);
    std::uint32_t* words = &table[std::size_t{i} * kRowWords];
    words[1] = static_cast<std::uint32_t>(std::min<std::uint64_t>(row.left, UINT32_MAX));
    words[2] = row.chooser ? 1 : 0;
    words[3] = static_cast<std::uint32_t>(stops);
    for (std::size_t s = 0; s < stops; ++s) words[kRowHeader + s] = static_cast<std::uint32_t>(row.stops[s]);
  }
  const std::uint32_t header[] = {count, count, 0, 0, static_cast<std::uint32_t>(*pad_)};
  static_assert(StepLayout::kPad == 4);
  const auto write = [&](const Buffer& to, std::uint32_t at, std::span<const std::uint32_t> words) {
    return context_->device->write(to, std::uint64_t{at} * 4, std::as_bytes(words));
  };
  DOPPLER_TRY(write(context_->step, 0, header));
  DOPPLER_TRY(write(context_->step, layout.ids(), ids));
  DOPPLER_TRY(write(context_->step, layout.positions(), positions));
  DOPPLER_TRY(write(context_->step, layout.slots(), slots));
  DOPPLER_TRY(write(context_->step, layout.wanted(), wanted));
  return write(table_, 0, table);
}

// Pages for so many steps, or for fewer: returns how many. One that has none for the next is ended as soon as
// nothing is under way; until then none goes on.
Result<std::uint32_t> SequencesRunner::reserve(std::uint32_t steps) {
  const std::uint64_t flying = submitted_ - received_;
  const auto some_for = [&](const Row& row, std::uint32_t most) -> Result<std::uint32_t> {
    const std::uint64_t left = row.left > flying ? row.left - flying : 0;
    const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, left));
    DOPPLER_ASSIGN(const std::uint32_t got,
                   context_->reserve_some(row.slot, row.begin + row.given + flying, wanted));
    return got == wanted ? most : got;
  };
  // The next token of each comes before the later ones of any.
  bool all = true;
  for (const std::size_t index : listed_) {
    Row& row = rows_[index];
    DOPPLER_ASSIGN(const std::uint32_t got, some_for(row, 1));
    if (got > 0) continue;
    all = false;
    if (flying > 0) break;
    row.left = 0;
    stale_ = true;
    coming_.push_back({row.slot, kNoRoom});
  }
  if (!all) return 0;
  for (const std::size_t index : listed_) {
    DOPPLER_ASSIGN(steps, some_for(rows_[index], steps));
  }
  return steps;
}

Result<bool> SequencesRunner::submit() {
  const auto at = static_cast<std::uint32_t>(submitted_ % kRingSteps);
  // The first are short, so that the GPU has work while the next are recorded.
  const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {std::max(1u, context_->options.gpu.submit_tokens), submitted_ + 1, most_left(), kRingSteps - at}));
  DOPPLER_ASSIGN(const std::uint32_t steps, reserve(wanted));
  if (steps == 0) return false;
  Flight flight{.steps = steps};
  const std::uint64_t entry = std::uint64_t{most_} * 4;
  DOPPLER_ASSIGN(flight.back,
                 context_->device->take_read_back(spare_, "tokens of sequences", kRingSteps * entry));
  Recorder recorder(*context_->device);
  for (std::uint32_t s = 0; s < steps; ++s) {
    for (const FixedDispatch& dispatch : body_) recorder.dispatch(dispatch);
    for (const Sampling& sampler : samplers_) sampler.record(recorder);
    for (const FixedDispatch& dispatch : choice_) recorder.dispatch(dispatch);
  }
  recorder.copy(ring_, at * entry, flight.back, 0, steps * entry);
  DOPPLER_ASSIGN(flight.submission, recorder.submit());
  submitted_ += steps;
  flights_.push_back(std::move(flight));
  return true;
}

// Takes the oldest flight's tokens, up to each sequence's end.
Status SequencesRunner::receive() {
  Flight flight = std::move(flights_.front());
  flights_.erase(flights_.begin());
  std::vector<TokenId> tokens(std::size_t{flight.steps} * most_);
  DOPPLER_TRY(context_->device->read(
      flight.back, tokens.size() * 4, flight.submission,
      [&](std::span<const std::byte> bytes) { std::memcpy(tokens.data(), bytes.data(), bytes.size()); }));
  spare_.push_back(std::move(flight.back));
  received_ += flight.steps;
  for (std::size_t s = 0; s < flight.steps; ++s) {
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      Row& row = rows_[listed_[i]];
      if (row.ended()) continue;
      const TokenId id = tokens[s * most_ + i];
      coming_.push_back({row.slot, id});
      row.newest = id;
      ++row.given;
      --row.left;
      if (id < 0 || std::ranges::count(row.stops, id) > 0) row.left = 0;
      if (row.ended()) stale_ = true;
    }
  }
  return {};
}

Status SequencesRunner::settle() {
  while (!flights_.empty()) {
    if (Status status = receive(); !status) return fail_all(std::move(status));
  }
  stale_ = true;
  return {};
}

Status SequencesRunner::fail_all(Status status) {
  rows_.clear();
  listed_.clear();
  flights_.clear();
  coming_.clear();
  for (Chooser& chooser : choosers_) chooser.used = false;
  pad_.reset();
  stale_ = true;
  return status;
}

Result<std::span<const SlotToken>> SequencesRunner::next_tokens() {
  const auto run = [&]() -> Status {
    if (!coming_.empty()) return {};
    if (stale_) {
      DOPPLER_TRY(settle());
      if (!coming_.empty()) return {};
      DOPPLER_TRY(write_rows());
    }
    // One submission runs while the results of the one before are looked at.
    bool room = true;
    while (room && flights_.size() < 2 && most_left() > 0) {
      DOPPLER_ASSIGN(room, submit());
    }
    return flights_.empty() ? Status() : receive();
  };
  if (Status status = run(); !status) return std::unexpected(fail_all(std::move(status)).error());
  given_ = std::exchange(coming_, {});
  return std::span<const SlotToken>(given_);
}

Result<SequencesRunner::Ended> SequencesRunner::leave(std::uint32_t slot, std::uint64_t length) {
  DOPPLER_TRY(settle());
  const auto row = std::ranges::find(rows_, slot, &Row::slot);
  if (row == rows_.end())
    return fail(ErrorCode::kUsage, "The sequence in slot {} is not being continued.", slot);
  const std::uint64_t written = row->begin + row->given;
  if (length < row->begin || length > written) {
    return fail(ErrorCode::kUsage, "The slot {} cannot keep {} tokens; it has {} to {}.", slot, length,
                row->begin, written);
  }
  if (row->chooser) choosers_[*row->chooser].used = false;
  rows_.erase(row);
  std::erase_if(coming_, [&](const SlotToken& token) { return token.slot == slot; });
  if (rows_.empty()) pad_.reset();
  return Ended{length, written};
}

}  // namespace doppler::gpu
