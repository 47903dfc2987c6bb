#include "backend/gpu/batch_program.h"

#include <algorithm>

#include "backend/gpu/batch_builder.h"
#include "backend/gpu/half_shape.h"

namespace doppler::gpu {
namespace {

// Products of fewer rows go through the matrix once for each: a tile would be mostly empty.
constexpr std::uint32_t kLeastTiledRows = 9;
// Where the choice of tiles changes; each is compiled when it is first needed.
constexpr std::uint32_t kRowSteps[] = {32, 128, 512};
// Neighbours that a token has on average where attention in tiles pays.
constexpr std::uint32_t kLeastRun = 16;

void record_all(Recorder& recorder, std::span<const Dispatch> dispatches, const StepShape& step) {
  for (const Dispatch& dispatch : dispatches) {
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

Result<BatchProgram> BatchProgram::create(Context& context, std::uint32_t wanted_rows) {
  BatchProgram program;
  DOPPLER_TRY(BatchBuilder(context, program).prepare(wanted_rows));
  return program;
}

BatchProgram::Variant BatchProgram::variant_of(const Context& context, std::size_t op, const StepShape& step,
                                               const Tap* tap) const {
  const Op& o = context.plan.ops[op];
  Variant variant{.op = op};
  if ((o.kind == OpKind::kMatmul || o.kind == OpKind::kExpertMatmul) &&
      has_pass(context.plan, kPassBatchGemm)) {
    const std::uint32_t rows =
        context.plan.values[o.outputs[0]].rows == Rows::kAll ? step.tokens : step.wanted;
    if (rows >= kLeastTiledRows) {
      variant.rows = std::end(kRowSteps)[-1];
      for (const std::uint32_t most : kRowSteps) {
        if (rows <= most) variant.rows = std::min(variant.rows, most);
      }
      variant.halves = o.kind == OpKind::kMatmul && reads_halves(o.inputs[0], step);
    }
  }
  if (const auto blocks = groups_.of(op).blocks)
    variant.halves = variant.halves || reads_halves(*blocks, step);
  if (o.kind == OpKind::kAttention) variant.runs = step.runs && has_pass(context.plan, kPassBatchAttention);
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
                            const StepShape& step, const Tap* tap) {
  DOPPLER_TRY(check_halves(context, step));
  bool compiled = false;
  for (std::size_t i = begin; i < end; ++i) {
    const Variant variant = variant_of(context, i, step, tap);
    if (!compiled && !made_.contains(variant)) {
      DOPPLER_TRY(compile(context, i, end, step, tap));
      compiled = true;
    }
    DOPPLER_ASSIGN(const auto* list, dispatches(context, variant));
    record_all(recorder, *list, step);
  }
  return {};
}

Status BatchProgram::compile(Context& context, std::size_t begin, std::size_t end, const StepShape& step,
                             const Tap* tap) {
  std::vector<KernelSource> sources;
  BatchBuilder builder(context, *this, &sources);
  for (std::size_t i = begin; i < end; ++i) {
    const Variant variant = variant_of(context, i, step, tap);
    if (!made_.contains(variant)) DOPPLER_TRY(builder.make(variant));
  }
  return context.kernels.prepare(sources, context.pool);
}

bool BatchProgram::reads_halves(ValueId id, const StepShape& step) const {
  // Not for many sequences at once: what one of them reads must not depend on the others.
  return halves_ && half_reads_[id] && step.runs && step.tokens >= kLeastHalfTokens;
}

Status BatchProgram::check_halves(Context& context, const StepShape& step) {
  if (!halves_ || !step.runs || step.tokens < kLeastHalfTokens) return {};
  std::vector<KernelSource> sources;
  BatchBuilder builder(context, *this, &sources);
  for (std::size_t i = 0; i < context.plan.ops.size(); ++i) {
    const Variant variant = variant_of(context, i, step, nullptr);
    if (!variant.halves || context.plan.ops[i].kind != OpKind::kMatmul) continue;
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
  DOPPLER_ASSIGN(const auto* list, dispatches(context, variant_of(context, op, step, nullptr)));
  // A layer that reads another's keys and values appends none.
  if (list->size() == 1 && context.plan.ops[op].inputs.size() == 1) {
    if (!append) record_all(recorder, *list, step);
    return {};
  }
  if (list->size() != 2) return fail(ErrorCode::kInternal, "A part of the attention is fused.");
  record_all(recorder, append ? std::span(*list).first(1) : std::span(*list).last(1), step);
  return {};
}

Status BatchProgram::record_scores(Context& context, Recorder& recorder, std::size_t op,
                                   const StepShape& step, const Buffer& scores) {
  const bool runs = variant_of(context, op, step, nullptr).runs;
  DOPPLER_ASSIGN(Dispatch dispatch,
                 BatchBuilder(context, *this).attention(context.plan.ops[op], runs, &scores));
  record_all(recorder, std::span(&dispatch, 1), step);
  return {};
}

}  // namespace doppler::gpu
