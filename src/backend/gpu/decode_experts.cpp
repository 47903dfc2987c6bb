// The experts of a DecodeProgram: their choice, and their products with the activation between and the sum
// behind them.
#include <algorithm>
#include <array>

#include "backend/gpu/decode_builder.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// GemvSite for the products of `places` experts of a token, `sets` rows of each at a time.
GemvSite site_of_experts(std::string_view kind, std::string_view file, const ExpertMatrix& experts,
                         std::uint32_t places, std::uint32_t sets) {
  const GpuMatrix& matrix = *experts.matrix;
  GemvSite site;
  site.kind = kind;
  site.file = file;
  site.format = matrix.format;
  site.rows = experts.rows;
  site.units = matrix.units;
  site.places = places;
  site.bytes = matrix.format.row_bytes(matrix.units) * experts.rows * places * sets;
  return site;
}

}  // namespace

GemvSite experts_in_site(const ExpertMatrix& gates, std::uint32_t chosen, bool quantises) {
  GemvSite site = site_of_experts("experts_in", "expert_in.wgsl", gates, chosen, 2);
  site.gated = true;
  site.quantises = quantises;
  return site;
}

GemvSite experts_out_site(const ExpertMatrix& downs, std::uint32_t chosen) {
  GemvSite site = site_of_experts("experts_out", "expert_out.wgsl", downs, chosen, 1);
  site.sums_places = true;
  return site;
}

Status DecodeBuilder::route(const Op& op) {
  const bool chooses = op.kind == OpKind::kChoose;
  DOPPLER_TRY(place_outputs(op));
  DOPPLER_ASSIGN(KernelCall call,
                 route_kernel(context_, chooses ? &op : nullptr, chooses ? nullptr : &op,
                              values_[op.inputs[0]], values_[chooses ? op.outputs[0] : op.inputs[1]],
                              chooses ? nullptr : &values_[op.outputs[0]]));
  if (chooses) DOPPLER_TRY(leave_blocks(op.outputs[0], call));
  return add(call);
}

Status DecodeBuilder::route(const OpGroup& group) {
  const Op &choose = *group.op(plan(), Part::kChoose), &weigh = *group.op(plan(), Part::kWeigh);
  DOPPLER_TRY(place_outputs(choose));
  DOPPLER_TRY(place(weigh.outputs, std::array{choose.inputs[0], choose.outputs[0]}));
  DOPPLER_ASSIGN(KernelCall call, route_kernel(context_, &choose, &weigh, values_[choose.inputs[0]],
                                               values_[choose.outputs[0]], &values_[weigh.outputs[0]]));
  Routed routed{.body = program_.body_.size(), .ids = choose.outputs[0], .call = call, .taken = {}};
  DOPPLER_TRY(leave_blocks(choose.outputs[0], call));
  // Experts that find their blocks ready can do it themselves.
  if (call.values["QUANTISES"] == 0) routed_ = std::move(routed);
  return add(call);
}

// Products of experts that read this value, all of them or none as 8-bit blocks; null if none does.
const Op* DecodeBuilder::experts_that_read_blocks(ValueId x) const {
  for (const std::size_t reader : readers_.of(x)) {
    const Op& op = plan().ops[reader];
    if (op.kind != OpKind::kExpertMatmul || op.inputs[0] != x || context_.options.exact) continue;
    if (format_of(context_.weights[op.weights[0]].dtype).quantised()) return &op;
  }
  return nullptr;
}

// While one workgroup chooses, others quantise what the chosen experts will read, if it is there.
Status DecodeBuilder::leave_blocks(ValueId ids, KernelCall& call) {
  for (const std::size_t reader : readers_.of(ids)) {
    const Op& op = plan().ops[reader];
    if (op.kind != OpKind::kExpertMatmul || !values_.has(op.inputs[0])) continue;
    const ValueId id = op.inputs[0];
    const ValueView& x = values_[id];
    const bool made = std::ranges::any_of(blocks_, [&](const Blocks& b) { return b.of == id; });
    if (made || experts_that_read_blocks(id) == nullptr || !has_vectors(x)) return {};
    const std::uint32_t units = ceil_div(x.width, kUnitValues);
    DOPPLER_ASSIGN(Blocks * blocks, free_blocks(std::nullopt));
    blocks->of = id;
    call.values["QUANTISES"] = 1;
    call.values["WIDTH"] = x.width;
    call.values["GIVEN_OFFSET"] = x.offset;
    call.values["UNITS_K"] = units;
    call.buffers.push_back(x.bound("given"));
    call.buffers.push_back({"out8", blocks->codes});
    call.buffers.push_back({"outs", blocks->scales});
    const auto threads = static_cast<std::uint32_t>(call.values["THREADS"]);
    call.x = 1 + ceil_div(units * kUnitValues / 4, threads);
    return {};
  }
  return {};
}

// Takes back the kernel that routed the token just before, and lets the experts' kernel do it: values and
// buffers for that, or ROUTES 0.
void DecodeBuilder::take_routing(const ExpertParams& p, ValueId ids, ShaderValues& values,
                                 std::vector<Bound>& buffers) {
  values["ROUTES"] = 0;
  const bool is_last = routed_ && routed_->ids == ids && routed_->body + 1 == program_.body_.size();
  // Whole subgroups in every shape: rows are a multiple of 32. Groups of experts need the workgroup's memory.
  const Features& features = device().features();
  const bool whole = features.wide_subgroups() && 32 % features.subgroup_size == 0;
  if (!is_last || values["QUANTISE_OUT"] == 0 || !whole) return;
  ShaderValues& given = routed_->call.values;
  constexpr std::uint32_t kOthers = 8;  // codes, scales, two biases, x8, xs, out8, outs
  const bool fits = kOthers + routed_->call.buffers.size() <= device().limits().storage_buffers;
  if (!fits || given["KEPT_GROUPS"] < given["GROUPS"] || given["EXPERTS"] != p.experts) return;
  for (const char* own : {"THREADS", "WEIGH", "QUANTISES", "EXPERTS", "LOGITS_STRIDE", "OUT_STRIDE",
                          "OUT_OFFSET", "WEIGHTS_STRIDE"})
    given.erase(own);
  values.merge(given);
  values["ROUTES"] = 1;
  std::erase_if(buffers, [](const Bound& bound) { return bound.name == "ids"; });
  buffers.push_back(values_[ids].bound("ids_out"));
  for (const Bound& bound : routed_->call.buffers) {
    if (bound.name != "out") buffers.push_back(bound);
  }
  routed_->taken = std::move(program_.body_.back());
  program_.body_.pop_back();
}

Status DecodeBuilder::multiply_experts(const Op& op) {
  DOPPLER_TRY(place_outputs(op));
  std::vector<ValueView> to;
  for (const ValueId id : op.outputs) to.push_back(values_[id]);
  DOPPLER_ASSIGN(const std::vector<KernelCall> calls,
                 expert_kernels(context_, op, values_[op.inputs[0]], values_[op.inputs[1]], to));
  for (const KernelCall& call : calls) DOPPLER_TRY(add(call));
  return {};
}

Status DecodeBuilder::experts(const OpGroup& group) {
  DOPPLER_TRY(check_expert_group(context_, group));
  DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context_, *group.op(plan(), Part::kExpertsIn), 0));
  DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context_, *group.op(plan(), Part::kExpertsOut), 0));
  const bool quantises = context_.eight_bits(*downs.matrix);
  DOPPLER_TRY(experts_in(group, *gates.matrix, quantises));
  return experts_out(group, quantises);
}

Status DecodeBuilder::experts_in(const OpGroup& group, const GpuMatrix& matrix, bool quantises) {
  const Op &in = *group.op(plan(), Part::kExpertsIn), &gated = *group.op(plan(), Part::kGated);
  const auto& p = std::get<ExpertParams>(in.params);
  const ValueId gate = in.outputs[0], up = in.outputs[1], act = gated.outputs[0];
  DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context_, in, 0));
  DOPPLER_ASSIGN(const ExpertMatrix ups, expert_matrix(context_, in, 1));
  GemvSite site = experts_in_site(gates, p.chosen, quantises);
  const std::vector<GemvShape> shapes = site.shapes(device(), 1);
  if (shapes.empty())
    return fail(ErrorCode::kUnsupported, "{} x {} weights fit no workgroup", gates.rows, matrix.cols);
  site.shape = shapes[0];
  const std::vector<ValueId> read = read_by(group);
  const bool emits_parts = is_stored(gate, group) || is_stored(up, group);
  const bool emits_act = quantises && wants(act);
  const ValueView& ids = values_[in.inputs[1]];
  ShaderValues values = {{"EXPERTS", p.experts},
                         {"ROWS", gates.rows},
                         {"ACT", context_.eight_bits(matrix) ? 1 : 0},
                         {"IDS_OFFSET", ids.offset},
                         {"BIAS", gates.bias ? 1 : 0},
                         {"QUANTISE_OUT", quantises ? 1 : 0},
                         {"EMIT_PARTS", emits_parts ? 1 : 0},
                         {"EMIT_ACT", emits_act ? 1 : 0}};
  add_format(values, matrix);
  add_gated(std::get<GatedParams>(gated.params), values);
  std::vector<Bound> buffers = {ids.bound("ids")};
  take_routing(p, in.inputs[1], values, buffers);
  DOPPLER_TRY(add_given(in.inputs[0], matrix, values, buffers));
  bind_shard(buffers, matrix, matrix.shards[0]);
  if (gates.bias) {
    buffers.push_back({"gate_bias", gates.bias});
    buffers.push_back({"up_bias", ups.bias});
  }
  if (emits_act || !quantises) DOPPLER_TRY(place(gated.outputs, read));
  if (quantises) {
    buffers.push_back({"out8", expert_codes_});
    buffers.push_back({"outs", expert_scales_});
  } else {
    buffers.push_back(values_[act].bound("out"));
  }
  if (emits_parts) {
    for (const auto& [name, id] : {std::pair("gate_out", gate), std::pair("up_out", up)}) {
      DOPPLER_TRY(values_.place(std::array{id}, read));
      buffers.push_back(values_[id].bound(name));
    }
  }
  if (emits_act) buffers.push_back(values_[act].bound("act_out"));
  return add_site(std::move(site), std::move(values), std::move(buffers), program_.body_);
}

Status DecodeBuilder::experts_out(const OpGroup& group, bool quantised) {
  const Op &op = *group.op(plan(), Part::kExpertsOut), &sum = *group.op(plan(), Part::kExpertSum);
  const auto& p = std::get<ExpertParams>(op.params);
  const auto& s = std::get<ExpertSumParams>(sum.params);
  DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context_, op, 0));
  const GpuMatrix& matrix = *downs.matrix;
  GemvSite site = experts_out_site(downs, p.chosen);
  const std::vector<GemvShape> shapes = site.shapes(device(), 1);
  if (shapes.empty())
    return fail(ErrorCode::kUnsupported, "{} experts of a token fit no workgroup", p.chosen);
  site.shape = shapes[0];
  const std::vector<ValueId> read = read_by(group);
  const bool emits = is_stored(op.outputs[0], group);
  DOPPLER_TRY(place(sum.outputs, read));
  if (emits) DOPPLER_TRY(values_.place(op.outputs, read));
  const ValueView &ids = values_[op.inputs[1]], &out = values_[sum.outputs[0]];
  ShaderValues values = {{"EXPERTS", p.experts},       {"CHOSEN", p.chosen},
                         {"ROWS", downs.rows},         {"ACT", quantised ? 1 : 0},
                         {"IDS_OFFSET", ids.offset},   {"WEIGHTED", s.weighted ? 1 : 0},
                         {"BIAS", downs.bias ? 1 : 0}, {"ADDS", s.adds ? 1 : 0},
                         {"OUT_OFFSET", out.offset},   {"EMIT_PARTS", emits ? 1 : 0}};
  add_format(values, matrix);
  std::vector<Bound> buffers = {ids.bound("ids"), out.bound("out")};
  bind_shard(buffers, matrix, matrix.shards[0]);
  if (downs.bias) buffers.push_back({"bias", downs.bias});
  if (s.weighted) {
    values["WEIGHTS_OFFSET"] = values_[sum.inputs[1]].offset;
    buffers.push_back(values_[sum.inputs[1]].bound("weights"));
  }
  if (s.adds) {
    values["Z_OFFSET"] = values_[sum.inputs.back()].offset;
    buffers.push_back(values_[sum.inputs.back()].bound("z"));
  }
  if (quantised) {
    buffers.push_back({"x8", expert_codes_});
    buffers.push_back({"xs", expert_scales_});
  } else {
    values["WIDTH"] = matrix.cols;
    values["X_OFFSET"] = values_[op.inputs[0]].offset;
    buffers.push_back(values_[op.inputs[0]].bound("x"));
  }
  if (emits) buffers.push_back(values_[op.outputs[0]].bound("parts_out"));
  return add_site(std::move(site), std::move(values), std::move(buffers), program_.body_);
}

}  // namespace doppler::gpu
