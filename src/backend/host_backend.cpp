#include "backend/host_backend.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "backend/step_trace.h"
#include "plan/fuse.h"
#include "plan/residual.h"

namespace doppler {

HostBackend::HostBackend(Plan plan, const Weights& weights, BackendOptions options, KvCache cache)
    : plan_(std::move(plan)),
      weights_(weights),
      options_(std::move(options)),
      cache_(std::move(cache)),
      lengths_(plan_.kv_layers, options_.context, options_.slots, ring_reach(options_), cache_.pages()),
      cache_access_(plan_, options_, cache_, lengths_),
      late_(find_late_ops(plan_, [](std::size_t) { return true; })) {
  options_.cache_positions = cache_.positions();
  if (cache_.is_short()) note(fewer_positions(options_));
}

Result<std::span<const float>> HostBackend::step(const StepInput& input, Tap* tap) {
  using Clock = std::chrono::steady_clock;
  DOPPLER_TRY(check_step(input, plan_, options_, lengths_.all()));
  DOPPLER_TRY(reserve(input));
  trace_kv(plan_, options_, input, lengths_.all());
  wanted_.clear();
  for (std::size_t t = 0; t < input.size(); ++t) {
    if (input.wants_logits[t]) wanted_.push_back(t);
  }
  step_ = input_ = &input;
  tap_ = tap;
  DOPPLER_TRY(begin_step());
  auto last = observer() == nullptr ? Clock::time_point() : Clock::now();
  const bool late = goes_on_with_wanted();
  for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
    const Op& op = plan_.ops[i];
    if (late && i == late_.first) keep_wanted();
    DOPPLER_TRY(look(op, Fault::Moment::kOp));
    const bool nobody_reads = late && wanted_.empty() && i >= late_.first;
    if (!nobody_reads) DOPPLER_TRY(execute(i));
    for (const ValueId id : op.outputs) {
      spoil(id);
      report(info(id), value_of(id), info(id).width);
    }
    if (observer() == nullptr) continue;
    const auto now = Clock::now();
    observer()->on_op(i, std::chrono::duration<double>(now - last).count());
    last = now;
  }
  for (const std::int32_t slot : input.slots) lengths_.grow(static_cast<std::size_t>(slot));
  return value_of(plan_.logits);
}

// Pages for the step's tokens; where they run out, no slot keeps any for tokens that it did not get.
Status HostBackend::reserve(const StepInput& input) {
  if (cache_.pages().empty()) return {};
  const auto tokens = tokens_by_slot(input);
  for (const auto& [slot, count] : tokens) {
    const auto copy = cache_.pages().reserve(slot, lengths_[slot], lengths_[slot] + count);
    if (!copy) {
      for (const auto& [other, unused] : tokens) cache_.pages().cut(other, lengths_[other]);
      return std::unexpected(copy.error());
    }
    if (*copy) cache_.copy(**copy);
  }
  return {};
}

bool HostBackend::goes_on_with_wanted() const {
  if (!has_pass(plan_, kPassLateRows) || options_.fault != nullptr || wanted_.size() == step_->size())
    return false;
  return tap_ == nullptr ||
         !is_looked_at(plan_, late_, [this](Stage stage, int layer) { return tap_->wants(stage, layer); });
}

void HostBackend::keep_wanted() {
  for (const ValueId id : late_.read) {
    const std::span<float> values = value_of(id);
    const std::size_t width = info(id).width;
    // A row moves to the front, where no row is that is still to move.
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      std::ranges::copy_n(values.data() + wanted_[i] * width, static_cast<std::ptrdiff_t>(width),
                          values.data() + i * width);
  }
  kept_ = {.trace_step = step_->trace_step};
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const std::size_t t = std::exchange(wanted_[i], i);
    kept_.add(step_->ids[t], static_cast<std::uint64_t>(step_->positions[t]),
              static_cast<std::uint32_t>(step_->slots[t]), true);
  }
  input_ = &kept_;
}

Status HostBackend::look(const Op& op, Fault::Moment moment) {
  if (options_.fault == nullptr) return {};
  DOPPLER_ASSIGN(input_, as_seen(*options_.fault, op, moment, *step_, plan_, options_));
  see_other_tokens();
  return {};
}

void HostBackend::spoil(ValueId id) {
  if (options_.fault == nullptr || !options_.fault->wants(plan_, id)) return;
  options_.fault->after({plan_, id, *step_, value_of(id), rows(info(id))});
}

void HostBackend::report(const Value& v, std::span<const float> data, std::size_t width) {
  if (tap_ == nullptr) return;
  for_each_name(plan_, v, [&](Stage stage, int layer) {
    if (tap_->wants(stage, layer)) tap_->on_stage({stage, layer, data, rows(v), width, v.heads, step_});
  });
}

std::size_t HostBackend::longest() const {
  return 1 + static_cast<std::size_t>(std::ranges::max(input_->positions));
}

Result<std::span<float>> HostBackend::scores_for(const Op& op) {
  if (!wants(Stage::kAttnScores, op.layer)) return std::span<float>();
  const std::uint64_t floats =
      std::uint64_t{input_->size()} * std::get<AttentionParams>(op.params).heads * longest();
  if (scores_.size() < floats) {
    DOPPLER_ASSIGN(scores_, LazyFloats::allocate(floats));
  }
  const std::span<float> scores(scores_.data(), floats);
  std::ranges::fill(scores, -std::numeric_limits<float>::infinity());
  return scores;
}

void HostBackend::report_scores(const Op& op, std::span<const float> scores) {
  if (scores.empty()) return;
  const std::uint32_t heads = std::get<AttentionParams>(op.params).heads;
  const Value shown{
      .width = 0, .heads = heads, .rows = Rows::kAll, .stage = Stage::kAttnScores, .layer = op.layer};
  report(shown, scores, heads * longest());
}

}  // namespace doppler
