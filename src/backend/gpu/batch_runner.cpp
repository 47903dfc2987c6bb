#include "backend/gpu/batch_runner.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/fuse.h"
#include "plan/residual.h"

namespace doppler::gpu {
namespace {

// A step has so many tokens for each row of logits, or more, where only these rows are computed behind the
// last attention: a smaller share saves less than the kernels for few rows cost.
constexpr std::size_t kTokensOfLateRow = 8;

}  // namespace

Result<BatchRunner> BatchRunner::create(Context& context, BatchProgram& program) {
  BatchRunner runner(context, program);
  const std::uint64_t bytes = std::uint64_t{program.wanted_rows()} * context.plan.vocab_size * 4;
  DOPPLER_ASSIGN(runner.logits_back_, context.device->make_read_back("logits", bytes));
  return runner;
}

Status BatchRunner::write_words(std::uint32_t at, std::span<const std::uint32_t> words) {
  return context_->device->write(context_->step, std::uint64_t{at} * 4, std::as_bytes(words));
}

Status BatchRunner::write_tokens(const StepInput& input, std::uint32_t pad) {
  const auto as_words = [](const std::vector<std::int32_t>& values) {
    return std::span(reinterpret_cast<const std::uint32_t*>(values.data()), values.size());
  };
  longest_ =
      1 + static_cast<std::uint32_t>(*std::max_element(input.positions.begin(), input.positions.end()));
  const std::uint32_t header[] = {static_cast<std::uint32_t>(input.size()),
                                  static_cast<std::uint32_t>(wanted_.size()), longest_, 0, pad};
  DOPPLER_TRY(write_words(0, header));
  DOPPLER_TRY(write_words(context_->layout.ids(), as_words(input.ids)));
  DOPPLER_TRY(write_words(context_->layout.positions(), as_words(input.positions)));
  return write_words(context_->layout.slots(), as_words(input.slots));
}

Status BatchRunner::write(const StepInput& input, std::vector<std::uint32_t> wanted, std::uint32_t pad) {
  wanted_ = std::move(wanted);
  return write_tokens(input, pad);
}

Status BatchRunner::write_wanted() {
  return write_words(context_->layout.wanted(), wanted_);
}

Status BatchRunner::run(const StepInput& input, Tap* tap, std::span<float> logits) {
  input_ = &input;
  seen_ = input;
  tap_ = tap;
  logits_ = logits;
  const Status done = run_written();
  recorder_.reset();  // with what an error left in it
  return done;
}

Status BatchRunner::run_written() {
  const std::size_t end = plan().ops.size(), select = program_->first_wanted_op();
  const bool late = goes_on_with_wanted();
  const bool plain = !late && tap_ == nullptr && options().fault == nullptr;
  const bool in_line = plain && are_in_line(*input_);
  StepShape shape{.tokens = static_cast<std::uint32_t>(input_->size()),
                  .runs = has_runs(*input_) && options().fault == nullptr,
                  .apart = in_line || (plain && are_apart(*input_)),
                  .in_line = in_line};
  DOPPLER_TRY(run_ops(0, late ? program_->late().first : select, shape));
  if (wanted_.empty()) return {};
  if (late) {
    DOPPLER_TRY(write_late_step());
    shape.of_tokens = std::exchange(shape.tokens, static_cast<std::uint32_t>(wanted_.size()));
  }
  for (std::size_t done = 0; done < wanted_.size();) {
    const std::size_t rows = std::min<std::size_t>(program_->wanted_rows(), wanted_.size() - done);
    DOPPLER_TRY(write_words(context_->layout.wanted(), std::span(wanted_).subspan(done, rows)));
    first_wanted_ = done;
    shape.wanted = static_cast<std::uint32_t>(rows);
    DOPPLER_TRY(run_ops(late && done == 0 ? program_->late().first : select, end, shape));
    done += rows;
  }
  return {};
}

// Whether the ops behind the last attention run for wanted rows only: where these are few, and nothing
// looks at the others.
bool BatchRunner::goes_on_with_wanted() const {
  const LateOps& late = program_->late();
  if (!has_pass(plan(), kPassLateRows) || options().fault != nullptr || late.first == late.select)
    return false;
  if (wanted_.size() * kTokensOfLateRow > input_->size()) return false;
  return tap_ == nullptr ||
         !is_looked_at(plan(), late, [this](Stage stage, int layer) { return tap_->wants(stage, layer); });
}

// From late().first on the step's tokens are the wanted ones.
Status BatchRunner::write_late_step() {
  const std::uint32_t count[] = {static_cast<std::uint32_t>(wanted_.size())};
  DOPPLER_TRY(write_words(StepLayout::kCount, count));
  DOPPLER_TRY(write_words(context_->layout.ids(), wanted_));
  std::iota(wanted_.begin(), wanted_.end(), 0u);
  return {};
}

// Ops [begin, end) in one submission, or in several: where a tap wants more than fits at a time, and so
// that the device begins while most of a prompt is still recorded.
Status BatchRunner::run_ops(std::size_t begin, std::size_t end, const StepShape& shape) {
  recorder_.emplace(*context_->device);
  const std::size_t wanted = shape.wanted;
  bool is_head_start = begin == 0 && shape.tokens >= kTokensOfHeadStart && tap_ == nullptr;
  if (begin > 0 && begin == program_->late().first && shape.of_tokens > 0)
    DOPPLER_TRY(program_->record_late_rows(*context_, *recorder_));
  for (std::size_t i = begin; i < end; ++i) {
    if (is_head_start && recorder_->dispatches() >= kDispatchesOfHeadStart) {
      DOPPLER_TRY(flush());
      is_head_start = false;
    }
    const Op& op = plan().ops[i];
    if (options().fault == nullptr) {
      DOPPLER_TRY(program_->record(*context_, *recorder_, i, i + 1, shape, tap_, end));
    } else {
      DOPPLER_TRY(run_faulty(i, shape));
    }
    if (tap_ == nullptr) continue;
    if (op.kind == OpKind::kAttention && tap_->wants(Stage::kAttnScores, op.layer))
      DOPPLER_TRY(emit_scores(i, shape));
    for (const ValueId id : op.outputs) DOPPLER_TRY(report(id, wanted));
  }
  const std::uint64_t bytes = std::uint64_t{wanted} * plan().vocab_size * 4;
  if (wanted > 0) recorder_->copy(program_->value(plan().logits).buffer, 0, logits_back_, 0, bytes);
  DOPPLER_ASSIGN(const std::uint64_t submission, submit());
  if (wanted == 0) return {};
  return context_->device->read(logits_back_, bytes, submission, [&](std::span<const std::byte> from) {
    std::memcpy(logits_.data() + first_wanted_ * plan().vocab_size, from.data(), from.size());
  });
}

// Submits the recorded work, and hands the tap the stages that it wanted.
Result<std::uint64_t> BatchRunner::submit() {
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder_->submit());
  if (tap_ != nullptr) DOPPLER_TRY(taps_.deliver(submission, *tap_));
  return submission;
}

// The same, and begins to record more.
Status BatchRunner::flush() {
  DOPPLER_TRY(submit());
  recorder_.emplace(*context_->device);
  return {};
}

// Runs an op with the fault around it: on the tokens that it shows the op, changing the op's values.
Status BatchRunner::run_faulty(std::size_t index, const StepShape& shape) {
  const Op& op = plan().ops[index];
  if (op.kind == OpKind::kAttention) {
    DOPPLER_TRY(look(op, Fault::Moment::kAppend));
    DOPPLER_TRY(program_->record_attention(*context_, *recorder_, index, shape, true));
    DOPPLER_TRY(look(op, Fault::Moment::kAttend));
    DOPPLER_TRY(program_->record_attention(*context_, *recorder_, index, shape, false));
  } else {
    DOPPLER_TRY(look(op, Fault::Moment::kOp));
    DOPPLER_TRY(program_->record(*context_, *recorder_, index, index + 1, shape, nullptr));
  }
  for (const ValueId id : op.outputs) {
    if (options().fault->wants(plan(), id)) DOPPLER_TRY(spoil(id, shape));
  }
  return {};
}

// The step's buffer is rewritten between submissions.
Status BatchRunner::look(const Op& op, Fault::Moment moment) {
  DOPPLER_ASSIGN(const StepInput* seen, as_seen(*options().fault, op, moment, *input_, plan(), options()));
  if (seen->ids == seen_.ids && seen->positions == seen_.positions && seen->slots == seen_.slots) return {};
  DOPPLER_TRY(flush());
  seen_ = *seen;
  return write_tokens(seen_, UINT32_MAX);
}

// Fetches the value, lets the fault change it, and puts it back.
Status BatchRunner::spoil(ValueId id, const StepShape& shape) {
  struct Fetch final : Tap {
    std::vector<float> data;
    bool wants(Stage, int) const override { return true; }
    void on_stage(const TapEvent& event) override { data.assign(event.data.begin(), event.data.end()); }
  } fetch;
  const Value& v = plan().values[id];
  const ValueView& view = program_->value(id);
  const std::size_t rows = v.rows == Rows::kAll ? shape.tokens : shape.wanted;
  if (rows == 0) return {};
  DOPPLER_TRY(flush());
  TapCopy copy(*context_->device);
  DOPPLER_TRY(copy.copy(*recorder_, view, {v.stage, v.layer, {}, rows, v.width, v.heads, input_}));
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder_->submit());
  DOPPLER_TRY(copy.deliver(submission, fetch));
  recorder_.emplace(*context_->device);
  if (!options().fault->after({plan(), id, *input_, fetch.data, rows})) return {};
  for (std::size_t row = 0; row < rows; ++row) {
    DOPPLER_TRY(context_->device->write(
        view.buffer, (row * view.stride + view.offset) * 4,
        std::as_bytes(std::span<const float>(fetch.data).subspan(row * v.width, v.width))));
  }
  return {};
}

// Makes room for a value's rows among the pending copies.
Status BatchRunner::make_room(std::uint64_t floats) {
  return taps_.has_room(floats) || taps_.empty() ? Status() : flush();
}

Status BatchRunner::report(ValueId id, std::size_t wanted) {
  const Value& v = plan().values[id];
  const bool all = v.rows == Rows::kAll;
  const TapEvent rows_of = {.rows = all ? input_->size() : wanted,
                            .width = v.width,
                            .heads = v.heads,
                            .input = input_,
                            .first_row = all ? 0 : first_wanted_};
  const auto send = [&](Stage stage, int layer) -> Status {
    DOPPLER_TRY(make_room(std::uint64_t{rows_of.rows} * v.width));
    TapEvent event = rows_of;
    event.stage = stage, event.layer = layer;
    return taps_.copy(*recorder_, program_->value(id), event);
  };
  Status status;
  for_each_name(plan(), v, [&](Stage stage, int layer) {
    if (status && tap_->wants(stage, layer)) status = send(stage, layer);
  });
  return status;
}

// Runs the attention once more with its scores stored: the same arithmetic over the same cache.
Status BatchRunner::emit_scores(std::size_t index, const StepShape& shape) {
  const Op& op = plan().ops[index];
  const std::uint32_t heads = std::get<AttentionParams>(op.params).heads;
  const std::uint64_t floats = std::uint64_t{input_->size()} * heads * longest_;
  DOPPLER_TRY(make_room(floats));
  DOPPLER_ASSIGN(const Buffer scores,
                 context_->device->make_filled("scores", floats * 4, [](std::span<std::byte> out) {
                   const float masked = -std::numeric_limits<float>::infinity();
                   for (std::size_t i = 0; i + 4 <= out.size(); i += 4) std::memcpy(&out[i], &masked, 4);
                 }));
  DOPPLER_TRY(program_->record_scores(*context_, *recorder_, index, shape, scores));
  const std::uint32_t width = heads * longest_;
  return taps_.copy(*recorder_, {scores, width, 0, width},
                    {Stage::kAttnScores, op.layer, {}, input_->size(), width, heads, input_});
}

}  // namespace doppler::gpu
