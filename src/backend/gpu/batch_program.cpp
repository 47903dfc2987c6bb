#include "backend/gpu/batch_program.h"

#include <algorithm>

#include "backend/gpu/gemv_shape.h"

namespace doppler::gpu {
namespace {

// Threads of the kernels that touch each value once.
constexpr std::uint32_t kThreads = 128;

std::uint32_t groups_for(std::uint64_t items) {
  return static_cast<std::uint32_t>((items + kThreads - 1) / kThreads);
}

void add_view(ShaderValues& values, const std::string& name, const ValueView& view) {
  values[name + "_STRIDE"] = view.stride;
  values[name + "_OFFSET"] = view.offset;
}

void add_format(ShaderValues& values, const GpuMatrix& matrix) {
  values["FORM"] = static_cast<std::int64_t>(matrix.format.codes);
  values["SCALES"] = static_cast<std::int64_t>(matrix.format.scales);
  values["UNITS_K"] = matrix.units;
}

void bind_weights_of(std::vector<Bound>& buffers, const GpuMatrix& matrix, const Shard& shard) {
  buffers.push_back({"codes", shard.codes});
  if (matrix.format.quantised()) buffers.push_back({"scales", shard.scales});
}

}  // namespace

class BatchBuilder {
 public:
  BatchBuilder(Context& context, BatchProgram& program) : context_(context), program_(program) {}

  Status build(std::uint32_t wanted_rows) {
    const Plan& plan = context_.plan;
    program_.wanted_rows_ = wanted_rows;
    DOPPLER_ASSIGN(program_.values_,
                   ValueBuffers::create(device(), plan, context_.layout.tokens, wanted_rows));
    DOPPLER_TRY(make_quantised_buffers());
    program_.ops_.resize(plan.ops.size());
    program_.first_wanted_op_ = plan.ops.size();
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      if (plan.ops[i].kind == OpKind::kSelect) program_.first_wanted_op_ = i;
      DOPPLER_TRY(add(plan.ops[i], program_.ops_[i]));
    }
    return {};
  }

  Result<Dispatch> attention(const Op& op, const Buffer* scores) {
    const auto& a = std::get<AttentionParams>(op.params);
    const KvBuffers& kv = context_.kv[static_cast<std::size_t>(op.layer)];
    ShaderValues values = kv_values(op);
    values["THREADS"] = 64;  // as many positions at a time, and a head's dimensions in a few rounds
    values["WINDOW"] = a.window;
    values["HEADS"] = a.heads;
    values["SCALE_BITS"] = float_bits(a.scale);
    values["SOFTCAP"] = a.softcap > 0 ? 1 : 0;
    if (a.softcap > 0) values["SOFTCAP_BITS"] = float_bits(a.softcap);
    values["EMIT_SCORES"] = scores != nullptr ? 1 : 0;
    add_view(values, "Q", view(op.inputs[0]));
    add_view(values, "OUT", view(op.outputs[0]));
    values["SLOTS"] = context_.layout.slots();
    values["POSITIONS"] = context_.layout.positions();
    std::vector<Bound> buffers = {{"step", context_.step},
                                  {"q", view(op.inputs[0]).buffer},
                                  {"keys", kv.keys},
                                  {"values", kv.values},
                                  {"out", view(op.outputs[0]).buffer}};
    if (scores != nullptr) buffers.push_back({"scores", *scores});
    return make("attention.wgsl", values, buffers, a.heads, Dispatch::Per::kToken);
  }

 private:
  using Dispatches = std::vector<Dispatch>;

  Device& device() { return *context_.device; }
  const Value& info(ValueId id) const { return context_.plan.values[id]; }
  const ValueView& view(ValueId id) const { return program_.values_[id]; }
  Dispatch::Per per(ValueId id) const {
    return info(id).rows == Rows::kAll ? Dispatch::Per::kToken : Dispatch::Per::kWanted;
  }

  Result<Dispatch> make(std::string_view file, const ShaderValues& values, const std::vector<Bound>& buffers,
                        std::uint32_t x, Dispatch::Per per) {
    DOPPLER_ASSIGN(auto kernel, context_.kernels.get(file, values));
    DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(device(), std::move(kernel), buffers));
    return Dispatch{std::move(bound), x, per};
  }

  // Room for the widest activations in 8 bits.
  Status make_quantised_buffers() {
    std::uint64_t units = 0;
    for (const Op& op : context_.plan.ops) {
      if (op.kind != OpKind::kMatmul || context_.options.exact) continue;
      for (const WeightId id : op.weights) {
        if (!format_of(context_.weights[id].dtype).quantised()) continue;
        const std::uint64_t rows =
            info(op.inputs[0]).rows == Rows::kAll ? context_.layout.tokens : program_.wanted_rows_;
        units = std::max(units, rows * ((info(op.inputs[0]).width + kUnitValues - 1) / kUnitValues));
      }
    }
    if (units == 0) return {};
    DOPPLER_ASSIGN(x8_, device().make_buffer("x8", units * kUnitValues));
    DOPPLER_ASSIGN(xs_, device().make_buffer("xs", units * 16));
    return {};
  }

  Status add(const Op& op, Dispatches& out) {
    switch (op.kind) {
      case OpKind::kEmbed:
        return embed(op, out);
      case OpKind::kRmsNorm:
        return norm(op, out);
      case OpKind::kMatmul:
        return matmul(op, out);
      case OpKind::kRope:
        return rope(op, out);
      case OpKind::kAttention:
        return append_and_attend(op, out);
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

  Status embed(const Op& op, Dispatches& out) {
    DOPPLER_ASSIGN(const GpuMatrix* table, context_.matrix(op.weights));
    const ValueView& to = view(op.outputs[0]);
    for (const Shard& shard : table->shards) {
      ShaderValues values = {
          {"THREADS", kThreads}, {"IDS", context_.layout.ids()},
          {"WIDTH", to.width},   {"ROW0", shard.first_row},
          {"ROWS", shard.rows},  {"FACTOR_BITS", float_bits(std::get<EmbedParams>(op.params).scale)}};
      add_format(values, *table);
      std::vector<Bound> buffers = {{"step", context_.step}, {"out", to.buffer}};
      bind_weights_of(buffers, *table, shard);
      DOPPLER_ASSIGN(Dispatch made, make("embed.wgsl", values, buffers, groups_for((to.width + 3) / 4),
                                         Dispatch::Per::kToken));
      out.push_back(std::move(made));
    }
    return {};
  }

  Status norm(const Op& op, Dispatches& out) {
    const auto& p = std::get<NormParams>(op.params);
    const Value& v = info(op.outputs[0]);
    ShaderValues values = {
        {"THREADS", kThreads}, {"DIM", v.width / v.heads}, {"EPS_BITS", float_bits(p.eps)}};
    add_view(values, "X", view(op.inputs[0]));
    add_view(values, "OUT", view(op.outputs[0]));
    DOPPLER_ASSIGN(const Buffer weight, context_.norm_weight(op.weights[0], p.weight_offset));
    DOPPLER_ASSIGN(
        Dispatch made,
        make("norm.wgsl", values,
             {{"x", view(op.inputs[0]).buffer}, {"weight", weight}, {"out", view(op.outputs[0]).buffer}},
             v.heads, per(op.outputs[0])));
    out.push_back(std::move(made));
    return {};
  }

  Status quantise(ValueId id, std::uint32_t units, Dispatches& out) {
    const ValueView& x = view(id);
    ShaderValues values = {{"THREADS", kThreads}, {"UNITS_K", units}, {"WIDTH", x.width}};
    add_view(values, "X", x);
    DOPPLER_ASSIGN(Dispatch made, make("quantise.wgsl", values, {{"x", x.buffer}, {"x8", x8_}, {"xs", xs_}},
                                       groups_for(units * 2), per(id)));
    out.push_back(std::move(made));
    return {};
  }

  Status matmul(const Op& op, Dispatches& out) {
    DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(op));
    bool quantised = false;
    for (const PlacedMatrix& part : placed) {
      if (context_.eight_bits(*part.matrix) && !quantised) {
        quantised = true;
        DOPPLER_TRY(quantise(op.inputs[0], part.matrix->units, out));
      }
      for (const Shard& shard : part.matrix->shards) DOPPLER_TRY(gemv(op, part, shard, out));
    }
    return {};
  }

  Status gemv(const Op& op, const PlacedMatrix& part, const Shard& shard, Dispatches& out) {
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
                           {"BIAS", part.bias ? 1 : 0},
                           {"OUT_STRIDE", y.stride},
                           {"OUT_OFFSET", y.offset + part.first_row + shard.first_row},
                           {"QUANTISE_OUT", 0},
                           {"EMIT_PARTS", 0},
                           {"EMIT_ACT", 0}};
    add_format(values, matrix);
    std::vector<Bound> buffers = {{"out", y.buffer}};
    bind_weights_of(buffers, matrix, shard);
    if (part.bias) {
      // A shard's part of it; shards begin at multiples of 64 floats, as bindings must.
      buffers.push_back({"bias", part.bias, std::uint64_t{shard.first_row} * 4, 0});
    }
    if (eight_bits) {
      buffers.push_back({"x8", x8_});
      buffers.push_back({"xs", xs_});
    } else {
      const bool whole = x.stride % 4 == 0 && x.offset % 4 == 0 && x.width % 4 == 0;
      values["X_VEC"] = whole ? 1 : 0;
      values["WIDTH"] = x.width;
      add_view(values, "X", x);
      buffers.push_back({"x", x.buffer});
    }
    DOPPLER_ASSIGN(Dispatch made, make("gemv.wgsl", values, buffers,
                                       (shard.rows + shape.rows - 1) / shape.rows, per(op.outputs[0])));
    out.push_back(std::move(made));
    return {};
  }

  Status rope(const Op& op, Dispatches& out) {
    const auto& p = std::get<RopeParams>(op.params);
    const Value& v = info(op.outputs[0]);
    ShaderValues values = {
        {"THREADS", kThreads},
        {"HEADS", v.heads},
        {"DIM", v.width / v.heads},
        {"PAIRS", static_cast<std::int64_t>(context_.plan.rope_tables[p.table].inverse_frequency.size())},
        {"HIGH_ROWS", context_.high_rows()},
        {"INTERLEAVED", p.layout == RopeLayout::kInterleaved ? 1 : 0},
        {"POSITIONS", context_.layout.positions()}};
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

  ShaderValues kv_values(const Op& op) const {
    const auto& a = std::get<AttentionParams>(op.params);
    return {{"KV_HALF", context_.options.kv_type == KvType::kF16 ? 1 : 0},
            {"DIM", a.head_dim},
            {"KV_HEADS", a.kv_heads},
            {"CAPACITY", context_.kv[static_cast<std::size_t>(op.layer)].capacity}};
  }

  Status append_and_attend(const Op& op, Dispatches& out) {
    const auto& a = std::get<AttentionParams>(op.params);
    const KvBuffers& kv = context_.kv[static_cast<std::size_t>(op.layer)];
    ShaderValues values = kv_values(op);
    values["THREADS"] = kThreads;
    values["SLOTS"] = context_.layout.slots();
    values["POSITIONS"] = context_.layout.positions();
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
    DOPPLER_ASSIGN(Dispatch attend, attention(op, nullptr));
    out.push_back(std::move(attend));
    return {};
  }

  // As shaders/combine.wgsl numbers them.
  Status combine(const Op& op, Dispatches& out) {
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

  Context& context_;
  BatchProgram& program_;
  Buffer x8_, xs_;
};

Result<BatchProgram> BatchProgram::create(Context& context, std::uint32_t wanted_rows) {
  BatchProgram program;
  DOPPLER_TRY(BatchBuilder(context, program).build(wanted_rows));
  return program;
}

void BatchProgram::record(Recorder& recorder, std::size_t begin, std::size_t end, std::uint32_t tokens,
                          std::uint32_t wanted) const {
  for (std::size_t i = begin; i < end; ++i) {
    for (const Dispatch& dispatch : ops_[i]) {
      const std::uint32_t y = dispatch.per == Dispatch::Per::kToken    ? tokens
                              : dispatch.per == Dispatch::Per::kWanted ? wanted
                                                                       : 1;
      recorder.dispatch(dispatch.kernel, {dispatch.x, y, 1});
    }
  }
}

Result<Dispatch> BatchProgram::attention_with_scores(Context& context, std::size_t op,
                                                     const Buffer& scores) const {
  BatchProgram copy = *this;
  return BatchBuilder(context, copy).attention(context.plan.ops[op], &scores);
}

}  // namespace doppler::gpu
