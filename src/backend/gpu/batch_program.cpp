#include "backend/gpu/batch_program.h"

#include <algorithm>

#include "backend/gpu/batch_builder.h"
#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/half_attention.h"
#include "backend/gpu/half_shape.h"

namespace doppler::gpu {
namespace {

// Where the choice of a product's kernel changes; each is compiled when it is first needed. Experts' products
// of fewer rows than kLeastExpertRows go through the matrix once for each: a tile would be mostly empty.
constexpr std::uint32_t kRowSteps[] = {2, 4, 8, 16, 32, 64, 128, 512}, kExpertRowSteps[] = {32, 128, 512};
constexpr std::uint32_t kLeastExpertRows = kMostColumns + 1;
// Neighbours that a token has on average where attention in tiles pays.
constexpr std::uint32_t kLeastRun = 16;

std::uint32_t row_step(std::span<const std::uint32_t> steps, std::uint32_t rows) {
  const auto found = std::ranges::lower_bound(steps, rows);
  return found == steps.end() ? steps.back() : *found;
}

void record_all(Recorder& recorder, std::span<const Dispatch> dispatches, const StepShape& step) {
  for (const Dispatch& dispatch : dispatches) {
    if (dispatch.per == Dispatch::Per::kTokenLast) {
      recorder.dispatch(dispatch.kernel, {dispatch.x, dispatch.z, step.tokens});
      continue;
    }
    const std::uint32_t rows = dispatch.per == Dispatch::Per::kToken    ? step.tokens
                               : dispatch.per == Dispatch::Per::kWanted ? step.wanted
                                                                        : 1;
    recorder.dispatch(
        dispatch.kernel,
        {dispatch.x,
         (rows * dispatch.rows_times + dispatch.rows_each - 1) / dispatch.rows_each + dispatch.more,
         dispatch.z});
  }
}

}  // namespace

bool has_runs(const StepInput& input) {
  std::size_t runs = 1;
  for (std::size_t t = 1; t < input.size(); ++t) runs += input.slots[t] != input.slots[t - 1] ? 1 : 0;
  return input.size() >= runs * kLeastRun;
}

bool are_apart(const StepInput& input) {
  if (input.size() < 2 || input.size() > kFewRows) return false;
  std::vector<std::int32_t> slots = input.slots;
  std::ranges::sort(slots);
  return std::ranges::adjacent_find(slots) == slots.end();
}

bool are_in_line(const StepInput& input) {
  return input.guesses && input.size() > 1 && input.size() <= kMostInLine &&
         std::ranges::all_of(input.wants_logits, [](std::uint8_t wants) { return wants != 0; }) &&
         std::ranges::all_of(input.slots, [&](std::int32_t slot) { return slot == input.slots[0]; });
}

Result<BatchProgram> BatchProgram::create(Context& context, std::uint32_t wanted_rows) {
  BatchProgram program;
  DOPPLER_TRY(BatchBuilder(context, program).prepare(wanted_rows));
  return program;
}

BatchProgram::Variant BatchProgram::variant_of(const Context& context, std::size_t op, const StepShape& step,
                                               const Tap* tap) const {
  const Op& o = context.plan.ops[op];
  Variant variant{.op = op};
  // Fewer guesses take the same kernels: others would have to be compiled in the middle of a text.
  const std::uint32_t least_rows = step.in_line ? kLeastInLine : 0,
                      tokens = std::max(step.tokens, least_rows);
  const bool expert = o.kind == OpKind::kExpertMatmul;
  if ((o.kind == OpKind::kMatmul || expert) && has_pass(context.plan, kPassBatchGemm)) {
    const bool all = context.plan.values[o.outputs[0]].rows == Rows::kAll;
    const std::uint32_t rows = std::max(all ? step.all_tokens() : step.wanted, least_rows);
    // The newest tokens of several sequences are multiplied as each alone would be.
    const std::uint32_t least = !expert || (step.apart && can_be_apart_[op]) ? 2
                                : step.apart                                 ? UINT32_MAX
                                                                             : kLeastExpertRows;
    if (rows >= least) variant.rows = expert ? row_step(kExpertRowSteps, rows) : row_step(kRowSteps, rows);
    variant.halves = !expert && variant.rows > 0 && reads_halves(o.inputs[0], step);
    variant.few = all && step.of_tokens > 0 && variant.rows > kFewRows;
    variant.left = op > 0 && leaves_blocks_[op - 1] && step.runs && !variant.halves &&
                   !(in_halves(step) && attends_halves(context, context.plan.ops[op - 1]));
  }
  if (const auto blocks = groups_.of(op).blocks)
    variant.halves = variant.halves || reads_halves(*blocks, step);
  variant.wide = has_wide_blocks(context, variant, step);
  variant.apart = step.apart && can_be_apart_[op];
  if (variant.apart && o.kind == OpKind::kAttention) {
    variant.rows = row_step(kRowSteps, tokens);
    variant.in_line = step.in_line;
  }
  variant.gated = step.apart && can_be_gated_[op] && tokens <= kMostColumns;
  variant.parts = leaves_parts(context, op, step, tap);
  if (variant.parts) variant.rows = row_step(kRowSteps, tokens);
  variant.by_token = step.apart && tokens <= kMostColumns && expert_groups_.contains(op);
  if (o.kind == OpKind::kAttention && !variant.apart) {
    variant.runs = step.runs && has_pass(context.plan, kPassBatchAttention);
    variant.halves = variant.runs && in_halves(step) && attends_halves(context, o);
    if (variant.halves) variant.rows = row_step(kRowSteps, step.tokens);
  }
  if (tap != nullptr) {
    for (const ValueId id : groups_.of(op).swallowed) {
      const Value& v = context.plan.values[id];
      variant.emit = variant.emit || tap->wants(v.stage, v.layer);
    }
  }
  return variant;
}

Result<const std::vector<Dispatch>*> BatchProgram::dispatches(Context& context, const Variant& variant) {
  auto found = made_.find(variant);
  if (found == made_.end()) {
    DOPPLER_ASSIGN(std::vector<Dispatch> made, BatchBuilder(context, *this).make(variant));
    found = made_.emplace(variant, std::move(made)).first;
  }
  return &found->second;
}

Status BatchProgram::record(Context& context, Recorder& recorder, std::size_t begin, std::size_t end,
                            const StepShape& step, const Tap* tap, std::size_t made_end) {
  DOPPLER_TRY(check_halves(context, step));
  for (std::size_t i = begin; i < end; ++i) {
    const Variant variant = variant_of(context, i, step, tap);
    if (!made_.contains(variant)) DOPPLER_TRY(make_all(context, i, std::max(end, made_end), step, tap));
    DOPPLER_ASSIGN(const auto* list, dispatches(context, variant));
    record_all(recorder, *list, step);
  }
  return {};
}

Result<std::vector<KernelSource>> BatchProgram::missing(Context& context, std::size_t begin, std::size_t end,
                                                        const StepShape& step, const Tap* tap) {
  std::vector<KernelSource> sources;
  BatchBuilder builder(context, *this, &sources);
  for (std::size_t i = begin; i < end; ++i) {
    const Variant variant = variant_of(context, i, step, tap);
    if (!made_.contains(variant)) DOPPLER_TRY(builder.make(variant));
  }
  return sources;
}

Status BatchProgram::make_all(Context& context, std::size_t begin, std::size_t end, const StepShape& step,
                              const Tap* tap) {
  DOPPLER_ASSIGN(const std::vector<KernelSource> sources, missing(context, begin, end, step, tap));
  DOPPLER_TRY(context.kernels.prepare(sources, context.pool));
  for (std::size_t i = begin; i < end; ++i)
    DOPPLER_TRY(dispatches(context, variant_of(context, i, step, tap)));
  return {};
}

Status BatchProgram::record_late_rows(Context& context, Recorder& recorder) {
  if (late_rows_.empty()) {
    DOPPLER_ASSIGN(late_rows_, BatchBuilder(context, *this).move_wanted());
  }
  record_all(recorder, late_rows_, {});
  return {};
}

bool BatchProgram::in_halves(const StepShape& step) const {
  // Not for many sequences at once: what one of them reads must not depend on the others.
  return halves_ && step.runs && step.all_tokens() >= kLeastHalfTokens;
}

bool BatchProgram::reads_halves(ValueId id, const StepShape& step) const {
  return in_halves(step) && half_reads_[id];
}

bool BatchProgram::leaves_parts(const Context& context, std::size_t op, const StepShape& step,
                                const Tap* tap) const {
  if (!can_leave_parts_[op]) return false;
  const std::size_t product = context.plan.ops[op].kind == OpKind::kMatmul ? op : op - 1;
  if (step.apart) return step.tokens > kMostColumns || step.in_line;
  // The sums of a prompt are nowhere then, which nobody may look at, and whose rows cannot be moved.
  return tap == nullptr && context.options.fault == nullptr && step.of_tokens == 0 &&
         step.tokens > kFewRows && late_.first != product + 1 &&
         !reads_halves(context.plan.ops[product].inputs[0], step);
}

bool BatchProgram::has_wide_blocks(const Context& context, const Variant& variant,
                                   const StepShape& step) const {
  // Fewer are multiplied as single tokens are.
  if (variant.halves || step.all_tokens() <= kFewRows) return false;
  const Op& op = context.plan.ops[variant.op];
  if (op.kind == OpKind::kExpertMatmul) return variant.rows > kFewRows && !step.apart;
  if (op.kind == OpKind::kMatmul) return wide_reads_[op.inputs[0]];
  if (op.kind == OpKind::kAttention) return leaves_blocks_[variant.op] && wide_reads_[op.outputs[0]];
  const std::optional<ValueId>& blocks = groups_.of(variant.op).blocks;
  return blocks && wide_reads_[*blocks];
}

Status BatchProgram::check_halves(Context& context, const StepShape& step) {
  if (!in_halves(step)) return {};
  std::vector<KernelSource> sources;
  BatchBuilder builder(context, *this, &sources);
  for (std::size_t i = 0; i < context.plan.ops.size(); ++i) {
    const Variant variant = variant_of(context, i, step, nullptr);
    const OpKind kind = context.plan.ops[i].kind;
    if (!variant.halves || (kind != OpKind::kMatmul && kind != OpKind::kAttention)) continue;
    if (halves_checked_.contains(variant.rows)) return {};
    DOPPLER_TRY(builder.make(variant));
  }
  DOPPLER_TRY(context.kernels.prepare(sources, context.pool));
  for (const KernelSource& source : sources) {
    const auto kernel = context.kernels.get(source.file, source.values);
    if (kernel) continue;
    if (kernel.error().code != ErrorCode::kUnsupported) return std::unexpected(kernel.error());
    halves_ = false;
    std::erase_if(made_, [](const auto& made) { return made.first.halves; });
    return {};
  }
  for (std::size_t i = 0; i < context.plan.ops.size(); ++i) {
    const Variant variant = variant_of(context, i, step, nullptr);
    if (variant.halves) halves_checked_.insert(variant.rows);
  }
  return {};
}

Status BatchProgram::record_attention(Context& context, Recorder& recorder, std::size_t op,
                                      const StepShape& step, bool append) {
  const Variant variant = variant_of(context, op, step, nullptr);
  if (variant.apart || (op > 0 && groups_.of(op - 1).pass == kPassBatchRope))
    return fail(ErrorCode::kInternal, "A part of the attention is fused.");
  DOPPLER_ASSIGN(const auto* list, dispatches(context, variant));
  // A layer that reads another's keys and values appends none.
  const std::size_t appends = context.plan.ops[op].inputs.size() > 1 ? 1 : 0;
  record_all(recorder, append ? std::span(*list).first(appends) : std::span(*list).subspan(appends), step);
  return {};
}

Status BatchProgram::record_scores(Context& context, Recorder& recorder, std::size_t op,
                                   const StepShape& step, const Buffer& scores) {
  std::vector<Dispatch> attend;
  DOPPLER_TRY(
      BatchBuilder(context, *this).attention(variant_of(context, op, step, nullptr), &scores, attend));
  record_all(recorder, attend, step);
  return {};
}

}  // namespace doppler::gpu
