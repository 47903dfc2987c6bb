// The products of a BatchProgram on tensor cores: which values they read in halves, their kernels, and the
// choice of another way where those compute something else.
#include <algorithm>

#include "backend/gpu/batch_builder.h"
#include "backend/gpu/half_shape.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {

Status BatchBuilder::prepare_halves() {
  const Plan& plan = context_.plan;
  std::vector<bool>& reads = program_.half_reads_;
  reads.assign(plan.values.size(), false);
  program_.has_halves_.assign(plan.ops.size(), false);
  program_.half_tokens_ = (context_.layout.tokens + kHalfTileTokens - 1) / kHalfTileTokens * kHalfTileTokens;
  program_.halves_ = multiplies_halves(device()) && !context_.options.exact &&
                     has_pass(plan, kPassBatchHalves) && has_pass(plan, kPassBatchGemm);
  if (!program_.halves_) return {};
  reads = values_read_in_form([&](ValueId x) { return has_vectors(view(x)); },
                              [](const GpuMatrix& matrix) { return multiplies_halves(matrix.format); });
  std::uint64_t units = 0;
  std::optional<ValueId> in_halves;  // the value in x16_ at that time
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const BatchGroup& group = program_.groups_.of(i);
    if (group.first == i && group.blocks && reads[*group.blocks]) in_halves = group.blocks;
    const Op& op = plan.ops[i];
    if (op.kind != OpKind::kMatmul || !reads[op.inputs[0]]) continue;
    program_.has_halves_[i] = in_halves == op.inputs[0];
    in_halves = op.inputs[0];
    units = std::max<std::uint64_t>(units, ceil_div(info(op.inputs[0]).width, kUnitValues));
  }
  program_.halves_ = units > 0;
  if (units == 0) return {};
  const std::uint64_t bytes = program_.half_tokens_ * units * kUnitValues * 2;
  if (bytes > device().limits().binding_bytes) {
    program_.halves_ = false;
    return {};
  }
  DOPPLER_ASSIGN(program_.x16_, device().make_buffer("x16", bytes));
  return {};
}

void BatchBuilder::add_halves(ShaderValues& values, std::vector<Bound>& buffers) const {
  values["HALF_TOKENS"] = program_.half_tokens_;
  buffers.push_back({"x16", program_.x16_});
}

Status BatchBuilder::leave_halves(ValueId id, Dispatches& out) {
  const ValueView& x = view(id);
  const std::uint32_t units = ceil_div(x.width, kUnitValues);
  ShaderValues values = {
      {"THREADS", kElementThreads}, {"WIDTH", x.width}, {"UNITS_K", units}, {"GATED", 0}, {"EMIT", 0}};
  add_view(values, "A", x);
  std::vector<Bound> buffers = {x.bound("a")};
  add_halves(values, buffers);
  DOPPLER_ASSIGN(Dispatch made, make("batch_halves.wgsl", values, buffers,
                                     groups_for(std::uint64_t{units} * kUnitValues / 4), per(id)));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::matmul_halves(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  if (!program_.has_halves_[variant.op]) DOPPLER_TRY(leave_halves(op.inputs[0], out));
  for (const PlacedMatrix& part : program_.placed_[variant.op]) {
    for (const Shard& shard : part.matrix->shards) DOPPLER_TRY(gemm_half(op, part, shard, variant.rows, out));
  }
  return {};
}

Status BatchBuilder::gemm_half(const Op& op, const PlacedMatrix& part, const Shard& shard, std::uint32_t rows,
                               Dispatches& out) {
  const GpuMatrix& matrix = *part.matrix;
  const ValueView& y = view(op.outputs[0]);
  const std::optional<HalfShape> shape =
      choose_half_shape(device().limits(), std::min(rows, context_.layout.tokens), shard.rows, matrix.units);
  if (!shape) return fail(ErrorCode::kInternal, "There is no cut for tensor cores.");
  const bool split = shape->splits > 1;
  const std::uint64_t split_stride = most_rows(op.outputs[0]) * shard.rows;
  const std::uint32_t offset = y.offset + part.first_row + shard.first_row;
  ShaderValues values =
      half_values(device(), *shape, matrix.format, shard.rows, matrix.units, program_.half_tokens_);
  values["COUNT"] = count_word(op.outputs[0]);
  values["OUT_STRIDE"] = split ? shard.rows : y.stride;
  values["OUT_OFFSET"] = split ? 0 : offset;
  values["BIAS"] = 0;
  if (split) {
    values["SPLIT_STRIDE"] = static_cast<std::int64_t>(split_stride);
    const std::uint64_t bytes = shape->splits * split_stride * 4;
    // Kernels made before keep the buffers that they are bound to.
    if (program_.parts_.bytes() < bytes) {
      DOPPLER_ASSIGN(program_.parts_, device().make_buffer("parts", bytes));
    }
  }
  std::vector<Bound> buffers = {
      {"step", context_.step}, {"x16", program_.x16_}, {"out", split ? program_.parts_ : y.buffer}};
  bind_shard(buffers, matrix, shard);
  if (!split) bind_bias(part, shard, values, buffers);
  DOPPLER_ASSIGN(Dispatch made,
                 make("gemm_half.wgsl", values, buffers,
                      (shard.rows + shape->tile_rows - 1) / shape->tile_rows, per(op.outputs[0])));
  made.rows_each = shape->tile_tokens;
  made.z = shape->splits;
  out.push_back(std::move(made));
  return split ? sum_parts(op, part, shard, shape->splits, split_stride, out) : Status{};
}

}  // namespace doppler::gpu
