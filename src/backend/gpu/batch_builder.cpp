#include "backend/gpu/batch_builder.h"

#include <algorithm>

#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/gemv_shape.h"
#include "backend/gpu/recurrent_kernels.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
Status BatchBuilder::prepare(std::uint32_t wanted_rows) {
  const Plan& plan = context_.plan;
  program_.wanted_rows_ = wanted_rows;
  DOPPLER_ASSIGN(program_.groups_, make_batch_groups(context_));
  program_.can_be_apart_.assign(plan.ops.size(), false);
  DOPPLER_TRY(find_experts());
  std::vector<std::size_t> times = program_.groups_.times();
  // Experts' downs and their sum may be one kernel.
  for (const auto& [op, group] : program_.expert_groups_)
    times[group.index(Part::kExpertSum)] = times[group.index(Part::kExpertsOut)];
  DOPPLER_ASSIGN(program_.values_,
                 ValueBuffers::create(device(), plan, context_.layout.tokens, wanted_rows, times));
  DOPPLER_TRY(make_shared_buffers());
  DOPPLER_TRY(prepare_experts());
  program_.placed_.resize(plan.ops.size());
  program_.has_blocks_.resize(plan.ops.size());
  std::vector<std::size_t> blocks_from(plan.ops.size());  // of products: the op that left them
  std::size_t from = 0;
  program_.first_wanted_op_ = plan.ops.size();
  std::optional<ValueId> in_blocks;  // the value in x8_ at that time
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::kSelect) program_.first_wanted_op_ = i;
    const BatchGroup& group = program_.groups_.of(i);
    if (group.first == i && group.blocks) in_blocks = group.blocks, from = i;
    if (op.kind == OpKind::kEmbed) {
      for (const WeightId& table : op.weights) DOPPLER_TRY(context_.matrix(std::span(&table, 1)));
    }
    if (op.kind != OpKind::kMatmul) continue;
    DOPPLER_ASSIGN(program_.placed_[i], context_.place(op));
    program_.has_blocks_[i] = in_blocks == op.inputs[0];
    blocks_from[i] = program_.has_blocks_[i] ? from : i;
    for (const PlacedMatrix& part : program_.placed_[i]) {
      if (context_.eight_bits(*part.matrix) && !program_.has_blocks_[i]) in_blocks = op.inputs[0], from = i;
    }
  }
  // Blocks are not moved with their rows.
  program_.late_ = find_late_ops(plan, [&](std::size_t op) {
    if (program_.groups_.of(op).first != op) return false;
    for (std::size_t i = op; i < plan.ops.size(); ++i) {
      if (plan.ops[i].kind == OpKind::kMatmul && blocks_from[i] < op) return false;
    }
    return true;
  });
  find_parted();
  DOPPLER_TRY(find_apart());
  find_gated();
  find_parts();
  find_wide();
  return prepare_halves();
}

std::vector<bool> BatchBuilder::values_read_in_form(
    const std::function<bool(ValueId)>& can_leave,
    const std::function<bool(const GpuMatrix&)>& can_take) const {
  const Plan& plan = context_.plan;
  std::vector<bool> reads(plan.values.size());
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::kMatmul)
      reads[op.inputs[0]] = info(op.inputs[0]).rows == Rows::kAll && can_leave(op.inputs[0]);
  }
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (const PlacedMatrix& part : program_.placed_[i]) {
      if (!can_take(*part.matrix)) reads[plan.ops[i].inputs[0]] = false;
    }
  }
  return reads;
}

// The values whose 8-bit blocks share scales in prompts: all products that read them have weights of super
// blocks, which have one scale for as many values. It makes these products 6 % faster (gemm.wgsl) and rounds
// as llama.cpp's processors do for these weights.
void BatchBuilder::find_wide() {
  const Plan& plan = context_.plan;
  program_.wide_reads_.assign(plan.values.size(), false);
  if (!has_pass(plan, kPassBatchGemm)) return;
  program_.wide_reads_ = values_read_in_form(
      [&](ValueId x) { return can_be_wide(view(x), info(x).width); },
      [&](const GpuMatrix& matrix) { return context_.eight_bits(matrix) && matrix.format.super_blocks(); });
  program_.wide_ = std::ranges::any_of(plan.ops, [&](const Op& op) {
    if (op.kind == OpKind::kMatmul) return bool{program_.wide_reads_[op.inputs[0]]};
    return op.kind == OpKind::kExpertMatmul && !context_.options.exact &&
           format_of(context_.weights[op.weights[0]].dtype).super_blocks();
  });
}

Result<BatchBuilder::Dispatches> BatchBuilder::move_wanted() {
  Dispatches out;
  for (const ValueId id : program_.late_.read) {
    const ValueView& rows = view(id);
    ShaderValues values = {{"THREADS", kElementThreads},
                           {"WIDTH", rows.width},
                           {"COUNT", StepLayout::kCount},
                           {"LIST", context_.layout.ids()}};
    add_view(values, "ROWS", rows);
    DOPPLER_TRY(add({.file = "front_rows.wgsl",
                     .values = std::move(values),
                     .buffers = {{"step", context_.step}, rows.bound("rows")},
                     .x = groups_for(rows.width)},
                    Dispatch::Per::kOnce, out));
  }
  return out;
}

// Room for the widest activations in 8 bits; gemm.wgsl reads whole tiles of tokens.
Status BatchBuilder::make_shared_buffers() {
  constexpr std::uint64_t kTileTokens = 64;
  std::uint64_t units = 0;
  for (const Op& op : context_.plan.ops) {
    if (op.kind != OpKind::kMatmul || !read_as(context_, op.inputs[0]).blocks) continue;
    const std::uint64_t rows = (most_rows(op.inputs[0]) + kTileTokens - 1) / kTileTokens * kTileTokens;
    units = std::max(units, rows * ((info(op.inputs[0]).width + kUnitValues - 1) / kUnitValues));
  }
  if (units == 0) return {};
  DOPPLER_ASSIGN(program_.x8_, device().make_buffer("x8", units * kUnitValues));
  DOPPLER_ASSIGN(program_.xs_, device().make_buffer("xs", units * 16));
  return {};
}

Result<BatchBuilder::Dispatches> BatchBuilder::make(const Variant& variant) {
  Dispatches out;
  const BatchGroup& group = program_.groups_.of(variant.op);
  // Norms and turns of heads are part of the attention then.
  const OpKind kind = op_at(variant.op).kind;
  if (variant.apart && (kind == OpKind::kRmsNorm || kind == OpKind::kRope)) return out;
  // Activations are part of the experts' gates and ups, sums of their downs.
  if (variant.by_token && kind != OpKind::kExpertMatmul) return out;
  // All that a group computes is there when its first op has run.
  if (group.pass.empty()) {
    DOPPLER_TRY(single(variant, out));
  } else if (variant.op == group.first && !variant.gated) {  // gate and up may have done it
    DOPPLER_TRY(grouped(group, variant, out));
  }
  return out;
}

Status BatchBuilder::grouped(const BatchGroup& group, const Variant& variant, Dispatches& out) {
  const std::size_t before = out.size();
  Status fused = group.pass == kPassBatchGated  ? fused_gated(group, variant, out)
                 : group.pass == kPassBatchNorm ? fused_norm(group, variant, out)
                                                : fused_rope(group, variant.emit, out);
  if (fused || fused.error().code != ErrorCode::kUnsupported) return fused;
  // A driver may compute it wrongly: then op by op.
  out.resize(before);
  // Only prompts have halves and blocks that share scales: whether newest tokens are computed as one alone
  // does not hang on these.
  program_.refused_ = program_.refused_ || !(variant.halves || variant.wide);
  const std::size_t end = group.first + group.count;
  if (variant.parts) DOPPLER_TRY(sum_left_parts(group.first - 1, variant.rows, out));
  for (std::size_t i = group.first; i < end; ++i) DOPPLER_TRY(single(Variant{.op = i}, out));
  if (group.pass == kPassBatchRope) DOPPLER_TRY(append(op_at(end), out));
  return group.blocks ? leave_blocks(*group.blocks, variant, out) : Status{};
}

// For products: a value's rows in 8-bit blocks, or in halves.
Status BatchBuilder::leave_blocks(ValueId id, const Variant& variant, Dispatches& out) {
  if (variant.halves) return leave_halves(id, out);
  const ValueView& x = view(id);
  return add(quantise_kernel(x, ceil_div(x.width, kUnitValues), program_.x8_, program_.xs_, variant.wide),
             per(id), out);
}

Status BatchBuilder::append(const Op& attention, Dispatches& out) {
  const ValueView* values = attention.inputs.size() > 2 ? &view(attention.inputs[2]) : nullptr;
  return add(append_kernel(context_, attention, view(attention.inputs[1]), values), Dispatch::Per::kToken,
             out);
}

Result<Dispatch> BatchBuilder::make(std::string_view file, const ShaderValues& values,
                                    const std::vector<Bound>& buffers, std::uint32_t x, Dispatch::Per per) {
  if (only_sources_ != nullptr) {
    only_sources_->push_back({file, values});
    return Dispatch{};
  }
  DOPPLER_ASSIGN(auto kernel, context_.kernels.get(file, values));
  DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(device(), std::move(kernel), buffers));
  return Dispatch{std::move(bound), x, per};
}

Status BatchBuilder::add(KernelCall call, Dispatch::Per per, Dispatches& out) {
  DOPPLER_ASSIGN(Dispatch made, make(call.file, call.values, call.buffers, call.x, per));
  made.z = call.z;
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::single(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  switch (op.kind) {
    case OpKind::kEmbed:
      return embed(op, out);
    case OpKind::kRmsNorm: {
      DOPPLER_ASSIGN(KernelCall call, norm_kernel(context_, op, view(op.inputs[0]), view(op.outputs[0])));
      return add(std::move(call), per(op.outputs[0]), out);
    }
    case OpKind::kMatmul:
      return matmul(variant, out);
    case OpKind::kRope:
      return add(rope_kernel(context_, op, view(op.inputs[0]), view(op.outputs[0])), Dispatch::Per::kToken,
                 out);
    case OpKind::kAttention: {
      if (variant.apart) return attend_apart(variant, out);
      const std::size_t before = variant.op == 0 ? 0 : variant.op - 1;
      const bool appended = program_.groups_.of(before).pass == kPassBatchRope;
      if (!appended && op.inputs.size() > 1) DOPPLER_TRY(append(op, out));
      return attention(variant, nullptr, out);
    }
    case OpKind::kAdd:
    case OpKind::kGated:
    case OpKind::kSelect:
    case OpKind::kSoftcap:
    case OpKind::kScaleQuery:
      if (keeps_its_input(op)) return {};
      return add(element_kernel(context_, op, view(op.inputs[0]),
                                op.inputs.size() > 1 ? &view(op.inputs[1]) : nullptr, view(op.outputs[0])),
                 per(op.outputs[0]), out);
    case OpKind::kChoose:
    case OpKind::kWeigh: {
      const bool chooses = op.kind == OpKind::kChoose;
      DOPPLER_ASSIGN(KernelCall call,
                     route_kernel(context_, chooses ? &op : nullptr, chooses ? nullptr : &op,
                                  view(op.inputs[0]), view(chooses ? op.outputs[0] : op.inputs[1]),
                                  chooses ? nullptr : &view(op.outputs[0])));
      return add(std::move(call), per(op.outputs[0]), out);
    }
    case OpKind::kExpertMatmul:
      return multiply_experts(variant, out);
    case OpKind::kSpread:
    case OpKind::kExpertSum:
      return add(parts_call(op, [&](ValueId id) { return &view(id); }), per(op.outputs[0]), out);
    case OpKind::kScale:
    case OpKind::kJoin:
    case OpKind::kHeadMatmul:
    case OpKind::kMix:
    case OpKind::kMatchRms:
    case OpKind::kCutoff: {
      std::vector<const ValueView*> in;
      for (const ValueId id : op.inputs) in.push_back(&view(id));
      DOPPLER_ASSIGN(KernelCall call, column_kernel(context_, op, in, view(op.outputs[0])));
      return add(std::move(call), per(op.outputs[0]), out);
    }
    case OpKind::kColumns:
    case OpKind::kTimeStep:
    case OpKind::kDecay:
    case OpKind::kConvolution:
    case OpKind::kDeltaRule:
    case OpKind::kScan:
    case OpKind::kChannelScan:
      return recurrent(op, out);
    case OpKind::kGatedMatmul:
    case OpKind::kCount:
      break;
  }
  return fail(ErrorCode::kInternal, "The gpu backend does not run the op {}.", op_name(op.kind));
}

Status BatchBuilder::recurrent(const Op& op, Dispatches& out) {
  const PlaceOf place = [this](ValueId id) -> const ValueView& { return view(id); };
  DOPPLER_ASSIGN(RecurrentKernel kernel, recurrent_kernel(context_, op, place, true));
  const Dispatch::Per rows = kernel.each_token ? Dispatch::Per::kToken : Dispatch::Per::kOnce;
  DOPPLER_TRY(add(std::move(kernel.call), rows, out));
  out.back().z = kernel.z;
  return {};
}

Status BatchBuilder::embed(const Op& op, Dispatches& out) {
  const ValueView& to = view(op.outputs[0]);
  for (std::size_t i = 0; i < op.weights.size(); ++i) {
    DOPPLER_ASSIGN(const GpuMatrix* table, context_.matrix(std::span(op.weights).subspan(i, 1)));
    for (const Shard& shard : table->shards) {
      ShaderValues values;
      std::vector<Bound> buffers = {{"out", to.buffer}};
      add_embed(context_, op, i, *table, shard, kElementThreads, values, buffers);
      DOPPLER_ASSIGN(Dispatch made, make("embed.wgsl", values, buffers, groups_for((to.width + 3) / 4),
                                         Dispatch::Per::kToken));
      out.push_back(std::move(made));
    }
  }
  return {};
}

Status BatchBuilder::matmul(const Variant& variant, Dispatches& out) {
  if (variant.halves) return matmul_halves(variant, out);
  const Op& op = op_at(variant.op);
  if (variant.gated && op.outputs.size() == 2) return gated_columns(variant, out);
  bool quantised = program_.has_blocks_[variant.op] || variant.apart || variant.left;
  for (const PlacedMatrix& part : program_.placed_[variant.op]) {
    const bool eight_bits = context_.eight_bits(*part.matrix);
    if (eight_bits && !quantised) {
      quantised = true;
      DOPPLER_TRY(leave_blocks(op.inputs[0], variant, out));
    }
    for (const Shard& shard : part.matrix->shards) {
      DOPPLER_TRY(product(op, part, shard, variant, out));
    }
  }
  return {};
}

// By the number of rows, and the weights' form.
Status BatchBuilder::product(const Op& op, const PlacedMatrix& part, const Shard& shard,
                             const Variant& variant, Dispatches& out) {
  const std::uint32_t rows = variant.rows;
  if (rows == 0) return gemv(op, part, shard, variant, out);
  const bool eight_bits = context_.eight_bits(*part.matrix);
  // Of weights in blocks that are to be multiplied as floats (`exact`), tiles add up otherwise than columns.
  const bool adds_as_columns = eight_bits || !part.matrix->format.quantised();
  if (rows <= (adds_as_columns ? kMostColumns : kFewRows)) return columns(op, part, shard, variant, out);
  return eight_bits ? gemm(variant, part, shard, out) : gemm_float(variant, part, shard, out);
}

// The cut of a product of so many tokens with so many rows of that matrix.
std::optional<GemmShape> BatchBuilder::tiles_for(const GpuMatrix& matrix, std::uint32_t tokens,
                                                 std::uint32_t rows) const {
  const Limits& limits = context_.device->limits();
  return tokens <= kFewRows
             ? choose_few_rows_shape(limits, matrix.format, few_rows_tile(tokens), rows, matrix.units)
             : choose_gemm_shape(limits, matrix.format, tokens, rows, matrix.units);
}

// Rows that a part of a split product has room for.
std::uint64_t BatchBuilder::rows_of_part(std::uint32_t rows, ValueId id) const {
  return rows <= kFewRows ? rows : most_rows(id);
}

Status BatchBuilder::gemm(const Variant& variant, const PlacedMatrix& part, const Shard& shard,
                          Dispatches& out) {
  const GpuMatrix& matrix = *part.matrix;
  const Limits& limits = device().limits();
  std::optional<GemmShape> shape = tiles_for(matrix, variant.rows, shard.rows);
  if (!shape) return gemv(op_at(variant.op), part, shard, variant, out);
  if (variant.few) {
    const GemmShape few = for_few_tokens(*shape);
    if (gemm_fits(limits, few, matrix.format)) shape = few;
  }
  // Compiling unrolled code for a CPU takes longer than it saves.
  if (device().adapter().software()) shape->unrolled = false;
  KernelCall call = {.file = "gemm.wgsl",
                     .values = gemm_values(*shape, matrix.format, shard.rows, matrix.units),
                     .buffers = {{"x8", program_.x8_}, {"xs", program_.xs_}}};
  if (variant.wide) call.values["WIDE"] = 1;
  return tiled(variant, part, shard, *shape, std::move(call), out);
}

Status BatchBuilder::gemm_float(const Variant& variant, const PlacedMatrix& part, const Shard& shard,
                                Dispatches& out) {
  const Op& op = op_at(variant.op);
  const GpuMatrix& matrix = *part.matrix;
  std::optional<GemmShape> shape = choose_float_shape(device().limits(), matrix.format, variant.rows,
                                                      shard.rows, matrix.units, variant.rows <= kFewRows);
  if (!shape) return gemv(op, part, shard, variant, out);
  if (variant.few) shape = for_few_tokens(*shape);
  // Compiling unrolled code for a CPU takes longer than it saves.
  shape->unrolled = !device().adapter().software();
  const ValueView& x = view(op.inputs[0]);
  KernelCall call = {.file = "gemm_float.wgsl",
                     .values = float_gemm_values(*shape, matrix.format, shard.rows, matrix.units),
                     .buffers = {x.bound("x")}};
  call.values["WIDTH"] = x.width;
  call.values["X_VEC"] = has_vectors(x) ? 1 : 0;
  add_view(call.values, "X", x);
  return tiled(variant, part, shard, *shape, std::move(call), out);
}

Status BatchBuilder::tiled(const Variant& variant, const PlacedMatrix& part, const Shard& shard,
                           const GemmShape& shape, KernelCall call, Dispatches& out) {
  const Op& op = op_at(variant.op);
  const GpuMatrix& matrix = *part.matrix;
  const ValueView& y = view(op.outputs[0]);
  const bool split = shape.splits > 1;
  const std::uint64_t split_stride = rows_of_part(variant.rows, op.outputs[0]) * shard.rows;
  const std::uint32_t offset = y.offset + part.first_row + shard.first_row;
  call.values["BIAS"] = part.bias && !split ? 1 : 0;
  call.values["COUNT"] = count_word(op.outputs[0]);
  call.values["OUT_STRIDE"] = split ? shard.rows : y.stride;
  call.values["OUT_OFFSET"] = split ? 0 : offset;
  if (split) {
    call.values["SPLIT_STRIDE"] = static_cast<std::int64_t>(split_stride);
    const std::uint64_t bytes = shape.splits * split_stride * 4;
    // Kernels made before keep the buffers that they are bound to.
    if (program_.parts_.bytes() < bytes) {
      DOPPLER_ASSIGN(program_.parts_, device().make_buffer("parts", bytes));
    }
  }
  call.buffers.push_back({"step", context_.step});
  call.buffers.push_back({"out", split ? program_.parts_ : y.buffer});
  bind_shard(call.buffers, matrix, shard);
  const Bound bias{"bias", part.bias, std::uint64_t{shard.first_row} * 4, 0};
  if (part.bias && !split) call.buffers.push_back(bias);
  const Dispatch::Per rows_of = per(op.outputs[0]);
  auto product = make(call.file, call.values, call.buffers, ceil_div(shard.rows, shape.tile_rows), rows_of);
  // A driver may compute it wrongly.
  if (!product && product.error().code == ErrorCode::kUnsupported) {
    program_.can_leave_parts_[variant.op] = false;
    return gemv(op, part, shard, variant, out);
  }
  DOPPLER_ASSIGN(Dispatch made, std::move(product));
  made.rows_each = shape.tile_tokens;
  made.z = shape.splits;
  out.push_back(std::move(made));
  return split && !variant.parts ? sum_parts(op, part, shard, shape.splits, split_stride, out) : Status{};
}

// What a product in splits has left in parts_, so many floats apart.
Status BatchBuilder::sum_parts(const Op& op, const PlacedMatrix& part, const Shard& shard,
                               std::uint32_t splits, std::uint64_t split_stride, Dispatches& out) {
  const ValueView& y = view(op.outputs[0]);
  ShaderValues values = {
      {"THREADS", kElementThreads}, {"ROWS", shard.rows},
      {"SPLITS", splits},           {"SPLIT_STRIDE", static_cast<std::int64_t>(split_stride)},
      {"OUT_STRIDE", y.stride},     {"OUT_OFFSET", y.offset + part.first_row + shard.first_row}};
  std::vector<Bound> buffers = {{"parts", program_.parts_}, {"out", y.buffer}};
  bind_bias(part, shard, values, buffers);
  DOPPLER_ASSIGN(Dispatch sum,
                 make("gemm_sum.wgsl", values, buffers, groups_for(shard.rows), per(op.outputs[0])));
  out.push_back(std::move(sum));
  return {};
}

// The same of so many rows, where the norm behind the product was to add them.
Status BatchBuilder::sum_left_parts(std::size_t product, std::uint32_t rows, Dispatches& out) {
  const std::optional<GemmShape> shape = parts_of(product, rows);
  if (!shape) return {};
  const Op& op = op_at(product);
  const PlacedMatrix& part = program_.placed_[product][0];
  const Shard& shard = part.matrix->shards[0];
  return sum_parts(op, part, shard, shape->splits, rows_of_part(rows, op.outputs[0]) * shard.rows, out);
}

// The activations in 8 bits that a product reads.
void BatchBuilder::bind_blocks(const Variant& variant, std::vector<Bound>& buffers) const {
  buffers.push_back({"x8", variant.gated ? program_.act8_ : program_.x8_});
  buffers.push_back({"xs", variant.gated ? program_.act_scales_ : program_.xs_});
}

Status BatchBuilder::gemv(const Op& op, const PlacedMatrix& part, const Shard& shard, const Variant& variant,
                          Dispatches& out) {
  const GpuMatrix& matrix = *part.matrix;
  const ValueView &x = view(op.inputs[0]), &y = view(op.outputs[0]);
  const GemvShape shape = choose_gemv_shape(device().limits(), matrix.format, shard.rows, matrix.units);
  const bool eight_bits = context_.eight_bits(matrix);
  ShaderValues values = {{"R", shape.rows},
                         {"LANES", shape.lanes},
                         {"UNITS", shape.units},
                         {"ROWS", shard.rows},
                         {"PRO", 0},
                         {"EPI", 0},
                         {"ACT", eight_bits ? 1 : 0},
                         {"OUT_STRIDE", y.stride},
                         {"OUT_OFFSET", y.offset + part.first_row + shard.first_row},
                         {"QUANTISE_OUT", 0},
                         {"EMIT_PARTS", 0},
                         {"EMIT_ACT", 0}};
  add_format(values, matrix);
  std::vector<Bound> buffers = {{"out", y.buffer}};
  bind_shard(buffers, matrix, shard);
  bind_bias(part, shard, values, buffers);
  if (eight_bits) {
    bind_blocks(variant, buffers);
  } else {
    values["X_VEC"] = has_vectors(x) ? 1 : 0;
    values["WIDTH"] = x.width;
    add_view(values, "X", x);
    buffers.push_back({"x", x.buffer});
  }
  DOPPLER_ASSIGN(Dispatch made, make("gemv.wgsl", values, buffers, (shard.rows + shape.rows - 1) / shape.rows,
                                     per(op.outputs[0])));
  out.push_back(std::move(made));
  return {};
}

}  // namespace doppler::gpu
