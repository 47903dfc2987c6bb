#include "backend/gpu/batch_builder.h"

#include <algorithm>

#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/gemv_shape.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

constexpr std::uint32_t kThreads = kElementThreads;

}  // namespace

std::uint32_t groups_for(std::uint64_t items) {
  return static_cast<std::uint32_t>((items + kThreads - 1) / kThreads);
}

void add_view(ShaderValues& values, const std::string& name, const ValueView& view) {
  values[name + "_STRIDE"] = view.stride;
  values[name + "_OFFSET"] = view.offset;
}

Status BatchBuilder::prepare(std::uint32_t wanted_rows) {
  const Plan& plan = context_.plan;
  program_.wanted_rows_ = wanted_rows;
  program_.groups_ = group_ops(context_);
  DOPPLER_ASSIGN(program_.values_, ValueBuffers::create(device(), plan, context_.layout.tokens, wanted_rows,
                                                        program_.groups_.times()));
  DOPPLER_TRY(make_shared_buffers());
  program_.placed_.resize(plan.ops.size());
  program_.has_blocks_.resize(plan.ops.size());
  program_.first_wanted_op_ = plan.ops.size();
  std::optional<ValueId> in_blocks;  // what x8_ holds at that time
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::kSelect) program_.first_wanted_op_ = i;
    const BatchGroup& group = program_.groups_.of(i);
    if (group.first == i && group.blocks) in_blocks = group.blocks;
    if (op.kind == OpKind::kEmbed) DOPPLER_TRY(context_.matrix(op.weights));
    if (op.kind != OpKind::kMatmul) continue;
    DOPPLER_ASSIGN(program_.placed_[i], context_.place(op));
    program_.has_blocks_[i] = in_blocks == op.inputs[0];
    for (const PlacedMatrix& part : program_.placed_[i]) {
      if (context_.eight_bits(*part.matrix)) in_blocks = op.inputs[0];
    }
  }
  return {};
}

// Room for the widest activations in 8 bits; gemm.wgsl reads whole tiles of tokens.
Status BatchBuilder::make_shared_buffers() {
  constexpr std::uint64_t kTileTokens = 64;
  std::uint64_t units = 0;
  for (const Op& op : context_.plan.ops) {
    if (op.kind != OpKind::kMatmul || !readers_of(context_, op.inputs[0]).blocks) continue;
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
  switch (group.kind) {
    case BatchGroup::Kind::kSingle:
      DOPPLER_TRY(single(variant, out));
      break;
    case BatchGroup::Kind::kNorm:
      if (variant.op == group.first) DOPPLER_TRY(fused_norm(group, variant.emit, out));
      break;
    case BatchGroup::Kind::kGated:
      DOPPLER_TRY(fused_gated(group, variant.emit, out));
      break;
    case BatchGroup::Kind::kRope:
      if (variant.op == group.first) DOPPLER_TRY(fused_rope(group, variant.emit, out));
      break;
  }
  return out;
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

Status BatchBuilder::single(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  switch (op.kind) {
    case OpKind::kEmbed:
      return embed(op, out);
    case OpKind::kRmsNorm:
      return norm(op, out);
    case OpKind::kMatmul:
      return matmul(variant, out);
    case OpKind::kRope:
      return rope(op, out);
    case OpKind::kAttention: {
      bool appended = false;
      for (const BatchGroup& group : program_.groups_.groups)
        appended = appended || (group.kind == BatchGroup::Kind::kRope && group.attention == variant.op);
      if (!appended) DOPPLER_TRY(append(op, out));
      DOPPLER_ASSIGN(Dispatch attend, attention(op, variant.runs, nullptr));
      out.push_back(std::move(attend));
      return {};
    }
    case OpKind::kAdd:
    case OpKind::kGated:
    case OpKind::kSelect:
    case OpKind::kSoftcap:
      return combine(op, out);
    case OpKind::kGatedMatmul:
    case OpKind::kCount:
      break;
  }
  return fail(ErrorCode::kInternal, "The gpu backend does not run the op {}.", op_name(op.kind));
}

Status BatchBuilder::embed(const Op& op, Dispatches& out) {
  DOPPLER_ASSIGN(const GpuMatrix* table, context_.matrix(op.weights));
  const ValueView& to = view(op.outputs[0]);
  for (const Shard& shard : table->shards) {
    ShaderValues values;
    std::vector<Bound> buffers = {{"out", to.buffer}};
    add_embed(context_, op, *table, shard, kThreads, values, buffers);
    DOPPLER_ASSIGN(Dispatch made, make("embed.wgsl", values, buffers, groups_for((to.width + 3) / 4),
                                       Dispatch::Per::kToken));
    out.push_back(std::move(made));
  }
  return {};
}

Status BatchBuilder::norm(const Op& op, Dispatches& out) {
  const auto& p = std::get<NormParams>(op.params);
  const Value& v = info(op.outputs[0]);
  ShaderValues values = {{"THREADS", kThreads}, {"DIM", v.width / v.heads}, {"EPS_BITS", float_bits(p.eps)}};
  add_view(values, "X", view(op.inputs[0]));
  add_view(values, "OUT", view(op.outputs[0]));
  DOPPLER_ASSIGN(const Buffer weight, context_.norm_weights(op));
  DOPPLER_ASSIGN(
      Dispatch made,
      make("norm.wgsl", values,
           {{"x", view(op.inputs[0]).buffer}, {"weight", weight}, {"out", view(op.outputs[0]).buffer}},
           v.heads, per(op.outputs[0])));
  out.push_back(std::move(made));
  return {};
}

// For a product that follows, where no fused op has done it.
Status BatchBuilder::quantise(ValueId id, Dispatches& out) {
  const ValueView& x = view(id);
  const std::uint32_t units = (x.width + kUnitValues - 1) / kUnitValues;
  ShaderValues values = {{"THREADS", kThreads}, {"UNITS_K", units}, {"WIDTH", x.width}};
  std::vector<Bound> buffers = {{"x8", program_.x8_}, {"xs", program_.xs_}};
  const bool vecs = x.width % 4 == 0 && x.stride % 4 == 0 && x.offset % 4 == 0;
  add_view(values, vecs ? "A" : "X", x);
  buffers.push_back({vecs ? "a" : "x", x.buffer});
  if (vecs) {
    values["GATED"] = 0;
    values["EMIT"] = 0;
  }
  DOPPLER_ASSIGN(Dispatch made,
                 make(vecs ? "batch_quantise.wgsl" : "quantise.wgsl", values, buffers,
                      groups_for(std::uint64_t{units} * (vecs ? kUnitValues / 4 : 2)), per(id)));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::matmul(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  bool quantised = program_.has_blocks_[variant.op];
  for (const PlacedMatrix& part : program_.placed_[variant.op]) {
    const bool eight_bits = context_.eight_bits(*part.matrix);
    if (eight_bits && !quantised) {
      quantised = true;
      DOPPLER_TRY(quantise(op.inputs[0], out));
    }
    for (const Shard& shard : part.matrix->shards) {
      if (variant.rows == 0) {
        DOPPLER_TRY(gemv(op, part, shard, out));
      } else if (eight_bits) {
        DOPPLER_TRY(gemm(op, part, shard, variant.rows, out));
      } else {
        DOPPLER_TRY(gemm_float(op, part, shard, out));
      }
    }
  }
  return {};
}

Status BatchBuilder::gemm(const Op& op, const PlacedMatrix& part, const Shard& shard, std::uint32_t rows,
                          Dispatches& out) {
  const GpuMatrix& matrix = *part.matrix;
  const ValueView& y = view(op.outputs[0]);
  std::optional<GemmShape> shape =
      choose_gemm_shape(device().limits(), matrix.format, rows, shard.rows, matrix.units);
  if (!shape) return gemv(op, part, shard, out);
  // Compiling for a CPU takes longer than what it wins.
  if (device().adapter().software()) shape->unrolled = false;
  const bool split = shape->splits > 1;
  const std::uint64_t split_stride = most_rows(op.outputs[0]) * shard.rows;
  const std::uint32_t offset = y.offset + part.first_row + shard.first_row;
  ShaderValues values = gemm_values(*shape, matrix.format, shard.rows, matrix.units);
  values["BIAS"] = part.bias && !split ? 1 : 0;
  values["COUNT"] = count_word(op.outputs[0]);
  values["OUT_STRIDE"] = split ? shard.rows : y.stride;
  values["OUT_OFFSET"] = split ? 0 : offset;
  if (split) {
    values["SPLIT_STRIDE"] = static_cast<std::int64_t>(split_stride);
    const std::uint64_t bytes = shape->splits * split_stride * 4;
    // Kernels made before keep what they are bound to.
    if (program_.parts_.bytes() < bytes) {
      DOPPLER_ASSIGN(program_.parts_, device().make_buffer("parts", bytes));
    }
  }
  std::vector<Bound> buffers = {{"step", context_.step},
                                {"x8", program_.x8_},
                                {"xs", program_.xs_},
                                {"out", split ? program_.parts_ : y.buffer}};
  bind_shard(buffers, matrix, shard);
  const Bound bias{"bias", part.bias, std::uint64_t{shard.first_row} * 4, 0};
  if (part.bias && !split) buffers.push_back(bias);
  const Dispatch::Per rows_of = per(op.outputs[0]);
  auto tiled =
      make("gemm.wgsl", values, buffers, (shard.rows + shape->tile_rows - 1) / shape->tile_rows, rows_of);
  // A driver may compute it wrongly.
  if (!tiled && tiled.error().code == ErrorCode::kUnsupported) return gemv(op, part, shard, out);
  DOPPLER_ASSIGN(Dispatch made, std::move(tiled));
  made.rows_each = shape->tile_tokens;
  made.z = shape->splits;
  out.push_back(std::move(made));
  if (!split) return {};
  values = {{"THREADS", kThreads},       {"ROWS", shard.rows},
            {"SPLITS", shape->splits},   {"SPLIT_STRIDE", static_cast<std::int64_t>(split_stride)},
            {"BIAS", part.bias ? 1 : 0}, {"OUT_STRIDE", y.stride},
            {"OUT_OFFSET", offset}};
  buffers = {{"parts", program_.parts_}, {"out", y.buffer}};
  if (part.bias) buffers.push_back(bias);
  DOPPLER_ASSIGN(Dispatch sum, make("gemm_sum.wgsl", values, buffers, groups_for(shard.rows), rows_of));
  out.push_back(std::move(sum));
  return {};
}

Status BatchBuilder::gemm_float(const Op& op, const PlacedMatrix& part, const Shard& shard, Dispatches& out) {
  const GpuMatrix& matrix = *part.matrix;
  const ValueView &x = view(op.inputs[0]), &y = view(op.outputs[0]);
  const bool vecs = x.stride % 4 == 0 && x.offset % 4 == 0 && x.width % 4 == 0;
  ShaderValues values = {
      {"TM", kFloatTileTokens}, {"TN", kFloatTileRows},
      {"RM", kFloatTokensEach}, {"RN", kFloatRowsEach},
      {"KV", kFloatVecs},       {"ROWS", shard.rows},
      {"WIDTH", x.width},       {"COUNT", count_word(op.outputs[0])},
      {"OUT_STRIDE", y.stride}, {"OUT_OFFSET", y.offset + part.first_row + shard.first_row},
      {"X_VEC", vecs ? 1 : 0}};
  add_format(values, matrix);
  add_view(values, "X", x);
  std::vector<Bound> buffers = {{"step", context_.step}, {"x", x.buffer}, {"out", y.buffer}};
  bind_shard(buffers, matrix, shard);
  bind_bias(part, shard, values, buffers);
  DOPPLER_ASSIGN(Dispatch made, make("gemm_float.wgsl", values, buffers,
                                     (shard.rows + kFloatTileRows - 1) / kFloatTileRows, per(op.outputs[0])));
  made.rows_each = kFloatTileTokens;
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::gemv(const Op& op, const PlacedMatrix& part, const Shard& shard, Dispatches& out) {
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
    buffers.push_back({"x8", program_.x8_});
    buffers.push_back({"xs", program_.xs_});
  } else {
    const bool whole = x.stride % 4 == 0 && x.offset % 4 == 0 && x.width % 4 == 0;
    values["X_VEC"] = whole ? 1 : 0;
    values["WIDTH"] = x.width;
    add_view(values, "X", x);
    buffers.push_back({"x", x.buffer});
  }
  DOPPLER_ASSIGN(Dispatch made, make("gemv.wgsl", values, buffers, (shard.rows + shape.rows - 1) / shape.rows,
                                     per(op.outputs[0])));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::rope(const Op& op, Dispatches& out) {
  const auto& p = std::get<RopeParams>(op.params);
  const Value& v = info(op.outputs[0]);
  ShaderValues values = {{"THREADS", kThreads},
                         {"HEADS", v.heads},
                         {"DIM", v.width / v.heads},
                         {"POSITIONS", context_.layout.positions()}};
  add_rotation(context_, p, values);
  add_view(values, "X", view(op.inputs[0]));
  add_view(values, "OUT", view(op.outputs[0]));
  DOPPLER_ASSIGN(Dispatch made, make("rope.wgsl", values,
                                     {{"step", context_.step},
                                      {"x", view(op.inputs[0]).buffer},
                                      {"angles", context_.angles[p.table]},
                                      {"out", view(op.outputs[0]).buffer}},
                                     groups_for(v.width), Dispatch::Per::kToken));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::combine(const Op& op, Dispatches& out) {
  const ValueView &a = view(op.inputs[0]), &y = view(op.outputs[0]);
  ShaderValues values = {{"THREADS", kThreads}, {"WIDTH", y.width}};
  std::vector<Bound> buffers = {{"a", a.buffer}, {"out", y.buffer}};
  add_view(values, "A", a);
  add_view(values, "OUT", y);
  if (op.kind == OpKind::kAdd || op.kind == OpKind::kGated) {
    values["OP"] = op.kind == OpKind::kAdd ? 0 : 1;
    add_view(values, "B", view(op.inputs[1]));
    buffers.push_back({"b", view(op.inputs[1]).buffer});
    // Inputs that lie in one buffer (gate and up) are bound twice, which reading allows.
    if (op.kind == OpKind::kGated)
      values["ACTIVATION"] = static_cast<std::int64_t>(std::get<GatedParams>(op.params).activation);
  } else if (op.kind == OpKind::kSelect) {
    values["OP"] = 4;
    values["WANTED"] = context_.layout.wanted();
    buffers.push_back({"step", context_.step});
  } else {
    const double cap = std::get<SoftcapParams>(op.params).cap;
    values["OP"] = cap > 0 ? 2 : 3;
    if (cap > 0) values["CAP_BITS"] = float_bits(cap);
  }
  DOPPLER_ASSIGN(Dispatch made,
                 make("combine.wgsl", values, buffers, groups_for(y.width), per(op.outputs[0])));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::append(const Op& op, Dispatches& out) {
  const auto& a = std::get<AttentionParams>(op.params);
  const KvBuffers& kv = context_.kv[static_cast<std::size_t>(op.layer)];
  ShaderValues values = {{"THREADS", kThreads}};
  add_cache(context_, op, values);
  add_view(values, "K", view(op.inputs[1]));
  add_view(values, "V", view(op.inputs[2]));
  const std::uint32_t words = a.kv_heads * a.head_dim / (context_.options.kv_type == KvType::kF16 ? 2 : 1);
  DOPPLER_ASSIGN(Dispatch append, make("kv_append.wgsl", values,
                                       {{"step", context_.step},
                                        {"k", view(op.inputs[1]).buffer},
                                        {"v", view(op.inputs[2]).buffer},
                                        {"keys", kv.keys},
                                        {"values", kv.values}},
                                       groups_for(words), Dispatch::Per::kToken));
  out.push_back(std::move(append));
  return {};
}

}  // namespace doppler::gpu
