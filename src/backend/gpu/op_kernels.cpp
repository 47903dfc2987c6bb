#include "backend/gpu/op_kernels.h"

#include <algorithm>
#include <bit>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// OP of combine.wgsl.
constexpr std::int64_t kAddition = 0, kGatedProduct = 1, kCapped = 2, kCopied = 3, kSelected = 4,
                       kActivated = 5, kScaledByPosition = 6, kClipped = 7;

void add_scale(ShaderValues& values, double scale) {
  values["SCALED"] = scale != 1 ? 1 : 0;
  if (scale != 1) values["SCALE_BITS"] = float_bits(scale);
}

void add_plain_activation(const GatedParams& p, ShaderValues& values) {
  values["ACTIVATION"] = static_cast<std::int64_t>(p.activation);
  if (p.activation != Activation::kXielu) return;
  values["ALPHA_P_BITS"] = float_bits(p.xielu.alpha_p);
  values["ALPHA_N_BITS"] = float_bits(p.xielu.alpha_n);
  values["LINE_BITS"] = float_bits(p.xielu.beta);
  values["LIMIT_BITS"] = float_bits(p.xielu.eps);
}

// What choosing and weighing have in common.
ShaderValues route_values(const Context& context, const RouterSpec& r, std::uint32_t experts, bool chooses,
                          bool weighs) {
  const Features& features = context.device->features();
  // A subgroup needs no barriers; without, as many experts at a time.
  const std::uint32_t threads = features.wide_subgroups() ? features.subgroup_size : 64;
  ShaderValues values = {{"THREADS", threads}, {"WEIGH", weighs ? (chooses ? 2 : 1) : 0},
                         {"QUANTISES", 0},     {"EXPERTS", experts},
                         {"CHOSEN", r.top_k},  {"SCORE", static_cast<std::int64_t>(r.score)}};
  if (chooses) {
    values["GROUPS"] = r.groups;
    values["KEPT_GROUPS"] = r.kept_groups;
    if (r.kept_groups < r.groups) values["GROUP_BEST"] = r.group_best;
  }
  if (!weighs) return values;
  values["NORMALISE"] = r.normalise ? 1 : 0;
  values["SCALE_BITS"] = float_bits(r.scale);
  if (r.normalise) {
    values["NORM_EPS_BITS"] = float_bits(r.norm_eps);
    values["NORM_FLOOR_BITS"] = float_bits(r.norm_floor);
  }
  if (r.score == RouterScore::kSparseMixer) values["BAND_BITS"] = float_bits(2 * r.jitter);
  return values;
}

}  // namespace

void add_gated(const GatedParams& p, ShaderValues& values) {
  values["SHAPED"] = p.is_plain() ? 0 : 1;
  if (p.is_plain()) return add_plain_activation(p, values);
  values["GATE_LIMIT_BITS"] = float_bits(p.clamp > 0 ? p.clamp : 3e38);
  values["ALPHA_BITS"] = float_bits(p.alpha);
  values["UP_OFFSET_BITS"] = float_bits(p.up_offset);
}

std::uint32_t groups_for(std::uint64_t items) {
  return static_cast<std::uint32_t>((items + kElementThreads - 1) / kElementThreads);
}

void add_view(ShaderValues& values, const std::string& name, const ValueView& view) {
  values[name + "_STRIDE"] = view.stride;
  values[name + "_OFFSET"] = view.offset;
}

bool has_vectors(const ValueView& view) {
  return view.width % 4 == 0 && view.stride % 4 == 0 && view.offset % 4 == 0;
}

std::uint32_t norm_threads(const Device& device, std::uint32_t width) {
  constexpr std::uint32_t kWhole = 64, kMost = 512;  // more have too few registers
  if (device.adapter().software()) return kElementThreads;
  const std::uint32_t most = std::min(kMost, device.limits().workgroup_invocations) / kWhole * kWhole;
  return std::min(most, ceil_div(width / 4, kWhole) * kWhole);
}

namespace {

// By the kernel that adds up as the fused norms do, which a token may have in another step.
Result<KernelCall> row_norm_kernel(Context& context, const Op& op, const ValueView& x, const ValueView& out) {
  ShaderValues values = {{"THREADS", norm_threads(*context.device, x.width)},
                         {"WIDTH", x.width},
                         {"EPS_BITS", float_bits(std::get<NormParams>(op.params).eps)},
                         {"ADD", 0},
                         {"POST", 0},
                         {"NORM", 1},
                         {"QUANT", 0},
                         {"FLOATS", 1}};
  add_view(values, "RESIDUAL", x);
  add_view(values, "X", out);
  DOPPLER_ASSIGN(const Buffer weight, context.norm_weights(op));
  return KernelCall{
      "batch_norm.wgsl", values, {x.bound("residual"), {"weight", weight}, out.bound("x_out")}, 1};
}

}  // namespace

Result<KernelCall> norm_kernel(Context& context, const Op& op, const ValueView& x, const ValueView& out) {
  const Value& v = context.plan.values[op.outputs[0]];
  const auto& p = std::get<NormParams>(op.params);
  if (p.kind == NormKind::kRms && v.heads == 1 && op.biases.empty() && has_vectors(x) && has_vectors(out))
    return row_norm_kernel(context, op, x, out);
  const std::uint32_t parts = p.span == NormSpan::kProjection ? 1 : v.heads;
  ShaderValues values = {{"THREADS", kElementThreads},
                         {"DIM", v.width / parts},
                         {"EPS_BITS", float_bits(p.eps)},
                         {"LAYER", p.kind == NormKind::kLayer ? 1 : 0},
                         {"OWN", p.span == NormSpan::kOwnHead ? 1 : 0}};
  add_view(values, "X", x);
  add_view(values, "OUT", out);
  DOPPLER_ASSIGN(const Buffer weight, context.norm_weights(op));
  DOPPLER_ASSIGN(const Buffer bias, context.bias(op, 0, 1));
  values["BIAS"] = bias ? 1 : 0;
  KernelCall call{"norm.wgsl", values, {x.bound("x"), {"weight", weight}, out.bound("out")}, parts};
  if (bias) call.buffers.push_back({"bias", bias});
  return call;
}

KernelCall rope_kernel(const Context& context, const Op& op, const ValueView& x, const ValueView& out) {
  const auto& p = std::get<RopeParams>(op.params);
  const Value& v = context.plan.values[op.outputs[0]];
  ShaderValues values = {{"THREADS", kElementThreads},
                         {"HEADS", v.heads},
                         {"DIM", v.width / v.heads},
                         {"BEGIN", p.begin},
                         {"TO_HALF", p.layout == RopeLayout::kInterleavedToHalf ? 1 : 0},
                         {"POSITIONS", context.layout.positions()}};
  add_rotation(context, p, values);
  add_view(values, "X", x);
  add_view(values, "OUT", out);
  return {"rope.wgsl",
          values,
          {{"step", context.step}, x.bound("x"), {"angles", context.angles[p.table]}, out.bound("out")},
          groups_for(v.width)};
}

KernelCall append_kernel(const Context& context, const Op& op, const ValueView& k, const ValueView* v) {
  const auto& a = std::get<AttentionParams>(op.params);
  const KvBuffers& kv = context.kv[a.cache_of(op.layer)];
  ShaderValues values = {{"THREADS", kElementThreads}, {"HAS_VALUES", v != nullptr ? 1 : 0}};
  add_cache(context, op, values);
  add_view(values, "K", k);
  const std::uint32_t words = a.kv_heads * a.head_dim / (context.options.kv_type == KvType::kF16 ? 2 : 1);
  KernelCall call{
      "kv_append.wgsl", values, {{"step", context.step}, k.bound("k"), {"keys", kv.keys}}, groups_for(words)};
  if (v != nullptr) {
    add_view(call.values, "V", *v);
    call.buffers.push_back(v->bound("v"));
    call.buffers.push_back({"values", kv.values});
  }
  return call;
}

Result<KernelCall> attention_kernel(Context& context, const Op& op, const ValueView& q, const ValueView& out,
                                    const Buffer* scores) {
  const auto& a = std::get<AttentionParams>(op.params);
  const KvBuffers& kv = context.kv[a.cache_of(op.layer)];
  KernelCall call{.file = "attention.wgsl", .values = {}, .buffers = {}};
  add_cache(context, op, call.values);
  add_scores(op, call.values);
  call.values["THREADS"] = 64;  // as many positions at a time, and a head's dimensions in a few rounds
  call.values["VALUE_DIM"] = a.out_dim();
  call.values["EMIT_SCORES"] = scores != nullptr ? 1 : 0;
  add_view(call.values, "Q", q);
  add_view(call.values, "OUT", out);
  call.buffers = {{"step", context.step},
                  q.bound("q"),
                  {"keys", kv.keys},
                  {"values", kv.values ? kv.values : kv.keys},
                  out.bound("out")};
  if (scores != nullptr) call.buffers.push_back({"scores", *scores});
  DOPPLER_TRY(bind_sinks(context, op, call.buffers));
  call.x = a.heads;
  return call;
}

KernelCall element_kernel(const Context& context, const Op& op, const ValueView& a, const ValueView* b,
                          const ValueView& out) {
  KernelCall call = copy_kernel(a, out);
  ShaderValues& values = call.values;
  if (op.kind == OpKind::kSelect) {
    values["OP"] = kSelected;
    values["WANTED"] = context.layout.wanted();
    call.buffers.push_back({"step", context.step});
  } else if (op.kind == OpKind::kSoftcap) {
    const auto& p = std::get<SoftcapParams>(op.params);
    values["OP"] = p.cap > 0 ? (p.hard ? kClipped : kCapped) : kCopied;
    if (p.cap > 0) values["CAP_BITS"] = float_bits(p.cap);
    add_scale(values, p.scale);
  } else if (op.kind == OpKind::kGated) {
    const auto& p = std::get<GatedParams>(op.params);
    values["OP"] = b != nullptr ? kGatedProduct : kActivated;
    values["ONE_GATE"] = a.width != out.width ? 1 : 0;
    if (b != nullptr)
      add_gated(p, values);
    else
      add_plain_activation(p, values);
  } else if (op.kind == OpKind::kScaleQuery) {
    const auto& p = std::get<PositionScale>(op.params);
    values["OP"] = kScaledByPosition;
    values["BETA_BITS"] = float_bits(p.beta);
    values["EVERY"] = p.every;
    values["AHEAD"] = p.offset;
    values["POSITIONS"] = context.layout.positions();
    call.buffers.push_back({"step", context.step});
  } else {
    values["OP"] = kAddition;
    add_scale(values, std::get<AddParams>(op.params).scale);
  }
  if (b != nullptr) {
    // Inputs that lie in one buffer (gate and up) are bound twice, which reading allows.
    add_view(values, "B", *b);
    call.buffers.push_back(b->bound("b"));
  }
  return call;
}

Result<KernelCall> route_kernel(Context& context, const Op* choose, const Op* weigh, const ValueView& logits,
                                const ValueView& ids, const ValueView* weights) {
  const Op& op = choose != nullptr ? *choose : *weigh;
  ShaderValues values = route_values(context, std::get<RouteParams>(op.params).router, logits.width,
                                     choose != nullptr, weigh != nullptr);
  add_view(values, "LOGITS", logits);
  KernelCall call{"route.wgsl", {}, {logits.bound("logits")}};
  add_view(values, choose != nullptr ? "OUT" : "IDS", ids);
  call.buffers.push_back(ids.bound(choose != nullptr ? "out" : "ids"));
  if (choose != nullptr) {
    values["CORRECTED"] = choose->weights.empty() ? 0 : 1;
    if (!choose->weights.empty()) {
      DOPPLER_ASSIGN(const Buffer corrections, context.vectors(choose->weights[0], 1));
      call.buffers.push_back({"corrections", corrections});
    }
  }
  if (weigh != nullptr) {
    add_view(values, "WEIGHTS", *weights);
    call.buffers.push_back(weights->bound("weights_out"));
    values["EACH"] = weigh->weights.empty() ? 0 : 1;
    if (!weigh->weights.empty()) {
      DOPPLER_ASSIGN(const Buffer each, context.vectors(weigh->weights[0], 1));
      call.buffers.push_back({"each", each});
    }
  }
  call.values = std::move(values);
  return call;
}

Result<ExpertMatrix> expert_matrix(Context& context, const Op& op, std::size_t output) {
  const auto& p = std::get<ExpertParams>(op.params);
  const auto format = [&](std::size_t i) { return format_of(context.weights[op.weights[i]].dtype); };
  std::size_t first = output, end = output + 1;
  while (first > 0 && format(first - 1) == format(output)) --first;
  while (end < op.weights.size() && format(end) == format(output)) ++end;
  std::vector<WeightId> experts;
  for (std::size_t i = first; i < end; ++i) {
    for (WeightId e = 0; e < p.experts; ++e) experts.push_back(op.weights[i] + e);
  }
  ExpertMatrix made;
  DOPPLER_ASSIGN(made.matrix, context.matrix(experts));
  made.rows = made.matrix->rows / static_cast<std::uint32_t>(experts.size());
  made.first_row = static_cast<std::uint32_t>(output - first) * p.experts * made.rows;
  if (!op.biases.empty() && op.biases[output] != kNoWeight) {
    DOPPLER_ASSIGN(made.bias, context.vectors(op.biases[output], p.experts));
  }
  return made;
}

Result<std::vector<KernelCall>> expert_kernels(Context& context, const Op& op, const ValueView& x,
                                               const ValueView& ids, std::span<const ValueView> outs) {
  const auto& p = std::get<ExpertParams>(op.params);
  std::vector<KernelCall> calls;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    DOPPLER_ASSIGN(const ExpertMatrix placed, expert_matrix(context, op, i));
    const GpuMatrix* matrix = placed.matrix;
    const Buffer& bias = placed.bias;
    const std::uint32_t rows = placed.rows;
    const bool own_rows = x.width != matrix->cols;
    // A tile of rows is as many threads wide; the rest of a workgroup shares the columns, a part of the tree
    // over units each.
    const std::uint32_t tile = 16, lanes = 8, units = std::bit_ceil(ceil_div(matrix->units, lanes));
    for (const Shard& shard : matrix->shards) {
      if (shard.first_row >= placed.first_row + p.experts * rows ||
          shard.first_row + shard.rows <= placed.first_row)
        continue;
      ShaderValues values = {{"R", tile},
                             {"LANES", lanes},
                             {"UNITS", units},
                             {"AT_ONCE", 1},
                             {"ACT", 0},
                             {"EXPERTS", p.experts},
                             {"ROWS", rows},
                             {"FIRST", placed.first_row},
                             {"ROW0", shard.first_row},
                             {"SHARD_ROWS", shard.rows},
                             {"WIDTH", matrix->cols},
                             {"OWN", own_rows ? 1 : 0},
                             {"BIAS", bias ? 1 : 0}};
      const ValueView read = {
          .buffer = x.buffer, .stride = x.stride, .offset = x.offset, .width = matrix->cols};
      values["X_VEC"] = has_vectors(read) ? 1 : 0;
      add_format(values, *matrix);
      add_view(values, "X", x);
      add_view(values, "IDS", ids);
      add_view(values, "OUT", outs[i]);
      KernelCall call{"experts.wgsl", values, {x.bound("x"), ids.bound("ids"), outs[i].bound("out")}};
      bind_shard(call.buffers, *matrix, shard);
      if (bias) call.buffers.push_back({"bias", bias});
      call.x = (rows + tile - 1) / tile;
      call.z = p.chosen;
      calls.push_back(std::move(call));
    }
  }
  return calls;
}

Status check_expert_group(Context& context, const OpGroup& group) {
  const Plan& plan = context.plan;
  const Op &in = *group.op(plan, Part::kExpertsIn), &out = *group.op(plan, Part::kExpertsOut);
  const auto& gated = std::get<GatedParams>(group.op(plan, Part::kGated)->params);
  DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context, in, 0));
  DOPPLER_ASSIGN(const ExpertMatrix ups, expert_matrix(context, in, 1));
  DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context, out, 0));
  if (gates.matrix != ups.matrix || gates.matrix->shards.size() != 1 || downs.matrix->shards.size() != 1)
    return fail(ErrorCode::kUnsupported,
                "experts' gates and ups differ in type or are too large for a binding");
  if (static_cast<bool>(gates.bias) != static_cast<bool>(ups.bias) || gated.activation == Activation::kXielu)
    return fail(ErrorCode::kUnsupported, "experts' gates and ups have an odd activation or one bias");
  if (plan.values[in.inputs[0]].width != gates.matrix->cols)
    return fail(ErrorCode::kUnsupported, "experts read rows of their own");
  if (context.eight_bits(*downs.matrix) && gates.rows % kUnitValues != 0)
    return fail(ErrorCode::kUnsupported, "experts of {} rows are no multiple of {}", gates.rows, kUnitValues);
  return {};
}

KernelCall parts_kernel(const Op& op, const ValueView& a, const ValueView* b, const ValueView* z,
                        const ValueView& out) {
  const bool sum = op.kind == OpKind::kExpertSum;
  const std::uint32_t chosen =
      sum ? std::get<ExpertSumParams>(op.params).chosen : std::get<SpreadParams>(op.params).chosen;
  ShaderValues values = {{"THREADS", kElementThreads},
                         {"SUM", sum ? 1 : 0},
                         {"CHOSEN", chosen},
                         {"WIDTH", sum ? out.width : a.width},
                         {"WEIGHTED", b != nullptr ? 1 : 0},
                         {"ADDS", z != nullptr ? 1 : 0}};
  KernelCall call{"expert_parts.wgsl", {}, {a.bound("a"), out.bound("out")}, groups_for(out.width)};
  add_view(values, "A", a);
  add_view(values, "OUT", out);
  if (b != nullptr) {
    add_view(values, "B", *b);
    call.buffers.push_back(b->bound("b"));
  }
  if (z != nullptr) {
    add_view(values, "Z", *z);
    call.buffers.push_back(z->bound("z"));
  }
  call.values = std::move(values);
  return call;
}

KernelCall copy_kernel(const ValueView& from, const ValueView& to) {
  ShaderValues values = {
      {"THREADS", kElementThreads}, {"WIDTH", to.width}, {"OP", kCopied}, {"SCALED", 0}, {"ONE_GATE", 0}};
  add_view(values, "A", from);
  add_view(values, "OUT", to);
  return {"combine.wgsl", values, {from.bound("a"), to.bound("out")}, groups_for(to.width)};
}

bool can_be_wide(const ValueView& x, std::uint32_t width) {
  constexpr std::uint32_t kWide = 256;
  return has_vectors(x) && width % kWide == 0;
}

KernelCall quantise_kernel(const ValueView& x, std::uint32_t units, const Buffer& x8, const Buffer& xs,
                           bool wide) {
  ShaderValues values = {{"THREADS", kElementThreads}, {"UNITS_K", units}, {"WIDTH", x.width}};
  const bool vecs = has_vectors(x);
  add_view(values, vecs ? "A" : "X", x);
  if (vecs) {
    values["GATED"] = 0;
    values["EMIT"] = 0;
    if (wide) values["WIDE"] = 1;
  }
  return {vecs ? "batch_quantise.wgsl" : "quantise.wgsl",
          values,
          {{"x8", x8}, {"xs", xs}, x.bound(vecs ? "a" : "x")},
          groups_for(std::uint64_t{units} * (vecs ? kUnitValues / 4 : 2))};
}

}  // namespace doppler::gpu
