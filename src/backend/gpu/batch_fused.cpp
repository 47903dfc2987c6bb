// The kernels of a BatchProgram that run several ops, or many tokens, at a time.
#include <algorithm>

#include "backend/gpu/attention_shape.h"
#include "backend/gpu/batch_builder.h"
#include "backend/gpu/half_attention.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// How an attention of a prompt is cut into tiles, if it can be.
std::optional<AttentionShape> tiles_of(const Limits& limits, const AttentionParams& a) {
  return a.value_dim == 0 ? choose_attention_shape(limits, a.head_dim) : std::nullopt;
}

}  // namespace

Status BatchBuilder::fused_norm(const BatchGroup& group, const Variant& variant, Dispatches& out) {
  const bool emit = variant.emit;
  const Plan& plan = context_.plan;
  const Op *post = group.op(plan, Part::kPostNorm), *add = group.op(plan, Part::kAdd),
           *norm = group.op(plan, Part::kNorm);
  const ValueId from = add != nullptr ? add->inputs[0] : norm->inputs[0];
  const std::uint32_t width = info(from).width;
  ShaderValues values = {{"THREADS", norm_threads(device(), width)},
                         {"WIDTH", width},
                         {"ADD", add != nullptr ? 1 : 0},
                         {"POST", post != nullptr ? 1 : 0},
                         {"NORM", norm != nullptr ? 1 : 0}};
  values["QUANT"] = !group.blocks ? 0 : variant.halves ? 2 : 1;
  add_view(values, "RESIDUAL", view(from));
  std::vector<Bound> buffers = {{"residual", view(from).buffer}};
  if (add != nullptr) {
    const ValueId branch = post != nullptr ? post->inputs[0] : add->inputs[1];
    const std::optional<GemmShape> parts =
        variant.parts ? parts_of(group.first - 1, variant.rows) : std::optional<GemmShape>();
    values["PARTS"] = parts ? parts->splits : 1;
    if (parts) {
      values["BRANCH_STRIDE"] = width;
      values["BRANCH_OFFSET"] = 0;
      values["PART_STRIDE"] = static_cast<std::int64_t>(rows_of_part(variant.rows, branch) * width);
    } else {
      add_view(values, "BRANCH", view(branch));
    }
    add_view(values, "H", view(add->outputs[0]));
    buffers.push_back({"branch", parts ? program_.parts_ : view(branch).buffer});
    buffers.push_back({"h_out", view(add->outputs[0]).buffer});
  }
  if (post != nullptr) {
    const auto& p = std::get<NormParams>(post->params);
    DOPPLER_ASSIGN(const Buffer weight, context_.norm_weights(*post));
    values["POST_EPS_BITS"] = float_bits(p.eps);
    values["EMIT"] = emit ? 1 : 0;
    buffers.push_back({"post_weight", weight});
    if (emit) {
      add_view(values, "POST", view(post->outputs[0]));
      buffers.push_back({"post_out", view(post->outputs[0]).buffer});
    }
  }
  if (norm != nullptr) {
    const auto& p = std::get<NormParams>(norm->params);
    DOPPLER_ASSIGN(const Buffer weight, context_.norm_weights(*norm));
    const bool floats = group.floats || emit;
    values["EPS_BITS"] = float_bits(p.eps);
    values["FLOATS"] = floats ? 1 : 0;
    buffers.push_back({"weight", weight});
    if (floats) {
      add_view(values, "X", view(norm->outputs[0]));
      buffers.push_back({"x_out", view(norm->outputs[0]).buffer});
    }
    if (group.blocks) {
      values["UNITS_K"] = (width + kUnitValues - 1) / kUnitValues;
      add_blocks(variant, values, buffers);
    }
  }
  DOPPLER_ASSIGN(Dispatch made, make("batch_norm.wgsl", values, buffers, 1, per(from)));
  out.push_back(std::move(made));
  return {};
}

// Where activations go that products read.
void BatchBuilder::add_blocks(const Variant& variant, ShaderValues& values,
                              std::vector<Bound>& buffers) const {
  if (variant.halves) return add_halves(values, buffers);
  if (variant.wide) values["WIDE"] = 1;
  bind_blocks(variant, buffers);
}

Status BatchBuilder::fused_gated(const BatchGroup& group, const Variant& variant, Dispatches& out) {
  const bool emit = variant.emit;
  const Op& op = op_at(group.first);
  const ValueView &gate = view(op.inputs[0]), &up = view(op.inputs[1]), &act = view(op.outputs[0]);
  const std::uint32_t units = (act.width + kUnitValues - 1) / kUnitValues;
  const bool floats = group.floats || emit;
  ShaderValues values = {
      {"THREADS", kElementThreads},
      {"WIDTH", act.width},
      {"UNITS_K", units},
      {"GATED", 1},
      {"EMIT", floats ? 1 : 0},
      {"ACTIVATION", static_cast<std::int64_t>(std::get<GatedParams>(op.params).activation)}};
  add_view(values, "A", gate);
  add_view(values, "B", up);
  std::vector<Bound> buffers = {{"a", gate.buffer}, {"b", up.buffer}};
  add_blocks(variant, values, buffers);
  if (floats) {
    add_view(values, "OUT", act);
    buffers.push_back({"out", act.buffer});
  }
  DOPPLER_ASSIGN(Dispatch made,
                 make(variant.halves ? "batch_halves.wgsl" : "batch_quantise.wgsl", values, buffers,
                      groups_for(std::uint64_t{units} * kUnitValues / 4), per(op.outputs[0])));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::fused_rope(const BatchGroup& group, bool emit, Dispatches& out) {
  const Plan& plan = context_.plan;
  const Op& attention = op_at(group.first + group.count);
  const Op &q_rope = *group.op(plan, Part::kQRope), &k_rope = *group.op(plan, Part::kKRope);
  const Op *q_norm = group.op(plan, Part::kQNorm), *k_norm = group.op(plan, Part::kKNorm);
  const auto& a = std::get<AttentionParams>(attention.params);
  const auto& p = std::get<RopeParams>(q_rope.params);
  const KvBuffers& kv = context_.kv[a.cache_of(attention.layer)];
  const ValueView& q = view(q_norm != nullptr ? q_norm->inputs[0] : q_rope.inputs[0]);
  const ValueView& k = view(k_norm != nullptr ? k_norm->inputs[0] : k_rope.inputs[0]);
  const ValueView& v = view(attention.inputs[2]);
  const std::uint32_t head_threads = std::clamp<std::uint32_t>((a.head_dim / 2 + 31) / 32 * 32, 32, 128);
  // A norm sums over the workgroup, so that has one head then.
  const std::uint32_t heads_each = q_norm != nullptr ? 1 : kElementThreads / head_threads;
  ShaderValues values;
  add_cache(context_, attention, values);
  add_rotation(context_, p, values);
  values["TPH"] = head_threads;
  values["HPW"] = heads_each;
  values["HEADS"] = a.heads;
  values["NORM"] = q_norm != nullptr ? 1 : 0;
  values["EMIT"] = emit ? 1 : 0;
  values["QKV_STRIDE"] = q.stride;
  values["Q_OFFSET"] = q.offset;
  values["K_OFFSET"] = k.offset;
  values["V_OFFSET"] = v.offset;
  add_view(values, "Q_OUT", view(q_rope.outputs[0]));
  std::vector<Bound> buffers = {{"step", context_.step},
                                {"qkv", q.buffer},
                                {"angles", context_.angles[p.table]},
                                {"q_out", view(q_rope.outputs[0]).buffer},
                                {"keys", kv.keys},
                                {"values", kv.values}};
  if (emit) {
    add_view(values, "K_OUT", view(k_rope.outputs[0]));
    buffers.push_back({"k_out", view(k_rope.outputs[0]).buffer});
  }
  if (q_norm != nullptr) {
    const auto& qn = std::get<NormParams>(q_norm->params);
    DOPPLER_ASSIGN(const Buffer q_weight, context_.norm_weights(*q_norm));
    DOPPLER_ASSIGN(const Buffer k_weight, context_.norm_weights(*k_norm));
    values["EPS_BITS"] = float_bits(qn.eps);
    buffers.push_back({"q_weight", q_weight});
    buffers.push_back({"k_weight", k_weight});
    if (emit) {
      add_view(values, "QN", view(q_norm->outputs[0]));
      add_view(values, "KN", view(k_norm->outputs[0]));
      buffers.push_back({"q_normed", view(q_norm->outputs[0]).buffer});
      buffers.push_back({"k_normed", view(k_norm->outputs[0]).buffer});
    }
  }
  const std::uint32_t total = a.heads + 2 * a.kv_heads;
  DOPPLER_ASSIGN(Dispatch made, make("rope_append.wgsl", values, buffers,
                                     (total + heads_each - 1) / heads_each, Dispatch::Per::kToken));
  out.push_back(std::move(made));
  return {};
}

Status BatchBuilder::attention(const Variant& variant, const Buffer* scores, Dispatches& out) {
  const Op& op = op_at(variant.op);
  const auto& a = std::get<AttentionParams>(op.params);
  DOPPLER_ASSIGN(const KernelCall alone,
                 attention_kernel(context_, op, view(op.inputs[0]), view(op.outputs[0]), scores));
  const Limits& limits = device().limits();
  KernelCall call = alone;
  call.values.erase("THREADS");  // follow from the cut
  call.values.erase("VALUE_DIM");
  call.values["COUNT"] = StepLayout::kCount;
  if (variant.halves) {
    const std::uint32_t tokens = std::min(variant.rows, context_.layout.tokens);
    const auto shape = choose_half_attention(limits, a, tokens);
    if (!shape) return fail(ErrorCode::kInternal, "There is no cut of an attention for tensor cores.");
    call.file = "attention_half.wgsl";
    add_half_attention(device(), call.values, *shape);
    return add_tiles(call, shape->tokens(), 1, out);
  }
  std::optional<AttentionShape> shape = variant.runs ? tiles_of(limits, a) : std::nullopt;
  if (!shape) return add(alone, Dispatch::Per::kToken, out);
  // Compiling unrolled code for a CPU takes longer than it saves.
  if (device().adapter().software()) shape->unrolled = false;
  call.file = "attention_tiled.wgsl";
  add_attention_cut(call.values, *shape, *cut_attention(limits, *shape, a.head_dim));
  // A driver may compute a kernel wrongly; then the next simpler way.
  const std::size_t before = out.size();
  if (const auto parts = prompt_parts(op, shape->tokens)) {
    Status parted = attention_in_parts(variant, call, *parts, shape->tokens, scores, out);
    if (parted || parted.error().code != ErrorCode::kUnsupported) return parted;
    out.resize(before);
    program_.leaves_blocks_[variant.op] = false;
  }
  Status whole = add_tiles(call, shape->tokens, 1, out);
  if (whole || whole.error().code != ErrorCode::kUnsupported) return whole;
  return add(alone, Dispatch::Per::kToken, out);
}

// A kernel whose workgroups take so many tokens each, and `z` of them the same ones.
Status BatchBuilder::add_tiles(KernelCall call, std::uint32_t tokens, std::uint32_t z, Dispatches& out) {
  call.z = z;
  DOPPLER_TRY(add(std::move(call), Dispatch::Per::kToken, out));
  out.back().rows_each = tokens;
  return {};
}

// An attention in tiles of tokens, whose positions are dealt out to workgroups, and what puts their results
// together.
Status BatchBuilder::attention_in_parts(const Variant& variant, KernelCall call, const PromptParts& parts,
                                        std::uint32_t tokens, const Buffer* scores, Dispatches& out) {
  const Op& op = op_at(variant.op);
  DOPPLER_TRY(
      make_room_for_splits(std::get<AttentionParams>(op.params), context_.layout.tokens, parts.places));
  for (const char* name : {"OUT_STRIDE", "OUT_OFFSET"}) call.values.erase(name);
  call.values["SINKS"] = 0;  // count when the parts are put together
  std::erase_if(call.buffers,
                [](const Bound& bound) { return bound.name == "out" || bound.name == "sinks"; });
  call.values["PARTED"] = 1;
  call.values["PART"] = parts.part;
  call.values["MOST_SPLITS"] = parts.places;
  call.buffers.push_back({"parts", program_.split_parts_});
  call.buffers.push_back({"marks", program_.split_marks_});
  DOPPLER_TRY(add_tiles(std::move(call), tokens, parts.places, out));
  if (scores != nullptr) return {};
  return combine(op, &parts,
                 {.floats = true, .blocks = program_.leaves_blocks_[variant.op], .wide = variant.wide}, out);
}

// The parts in which an attention of a prompt takes its positions, if it does.
std::optional<PromptParts> BatchBuilder::prompt_parts(const Op& op, std::uint32_t tile) const {
  const auto& a = std::get<AttentionParams>(op.params);
  const KvBuffers& kv = context_.kv[a.cache_of(op.layer)];
  const std::uint64_t positions = std::uint64_t{kv.capacity} * (kv.paged ? context_.layout.page_row : 1);
  if (!has_vectors(view(op.outputs[0]))) return std::nullopt;
  return choose_prompt_parts(a, tile, context_.layout.tokens, positions);
}

// The attentions in parts of which the next op, a product, reads blocks: what puts the parts together makes
// these.
void BatchBuilder::find_parted() {
  const Plan& plan = context_.plan;
  program_.leaves_blocks_.assign(plan.ops.size(), false);
  if (!has_pass(plan, kPassBatchAttention)) return;
  for (std::size_t i = 0; i + 1 < plan.ops.size(); ++i) {
    const Op &op = plan.ops[i], &next = plan.ops[i + 1];
    if (op.kind != OpKind::kAttention || next.kind != OpKind::kMatmul || next.inputs[0] != op.outputs[0])
      continue;
    // Blocks are not moved with their rows.
    if (program_.late_.first == i + 1 || !read_as(context_, op.outputs[0]).blocks) continue;
    const auto& a = std::get<AttentionParams>(op.params);
    const auto shape = tiles_of(context_.device->limits(), a);
    program_.leaves_blocks_[i] = shape && prompt_parts(op, shape->tokens);
  }
}

}  // namespace doppler::gpu
