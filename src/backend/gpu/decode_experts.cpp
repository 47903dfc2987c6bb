// The experts of a DecodeProgram: their choice, and their products with the activation between and the sum
// behind them.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/gpu/decode_builder.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// A cut of expert_out.wgsl: `lanes` threads of a row at each place, `units` of 64 values a thread.
std::optional<GemvShape> shape_of_places(const Device& device, const WeightFormat& format, std::uint32_t rows,
                                         std::uint32_t units, std::uint32_t places) {
  const std::uint32_t most_threads = std::min<std::uint32_t>(device.limits().workgroup_invocations, 512);
  const std::uint32_t subgroup = device.features().subgroup_size;
  std::optional<GemvShape> best;
  double least = 0;
  for (std::uint32_t per_row = 1; per_row <= 32; per_row *= 2) {
    for (std::uint32_t share = 1; share <= units; ++share) {
      const GemvShape shape{.rows = per_row, .lanes = ceil_div(units, share), .units = share};
      const std::uint32_t threads = shape.threads() * places;
      if (threads > most_threads) continue;
      // As best_fused_shapes() has it: workgroups of 256 to 512 threads, some loads in flight in each, and
      // some hundreds of workgroups, each of which reads at least 64 bytes side by side.
      double cost = std::max(0.0, std::abs(std::log2(threads / 320.0)) - 0.4) +
                    0.6 * std::abs(std::log2(share * format.pieces() / 4.0)) +
                    0.5 * std::max(0.0, 132.0 * per_row / rows - 1);
      if (threads % subgroup != 0) cost += 1;
      if (shape.lanes * share != units) cost += 0.2;
      if (per_row < 4) cost += 1;
      if (best && cost >= least) continue;
      best = shape;
      least = cost;
    }
  }
  return best;
}

}  // namespace

Status DecodeBuilder::route(const Op& op) {
  const bool chooses = op.kind == OpKind::kChoose;
  DOPPLER_TRY(place_outputs(op));
  DOPPLER_ASSIGN(const KernelCall call,
                 route_kernel(context_, chooses ? &op : nullptr, chooses ? nullptr : &op,
                              values_[op.inputs[0]], values_[chooses ? op.outputs[0] : op.inputs[1]],
                              chooses ? nullptr : &values_[op.outputs[0]]));
  return add(call);
}

Status DecodeBuilder::route(const OpGroup& group) {
  const Op &choose = *group.op(plan(), Part::kChoose), &weigh = *group.op(plan(), Part::kWeigh);
  DOPPLER_TRY(place_outputs(choose));
  DOPPLER_TRY(place(weigh.outputs, std::array{choose.inputs[0], choose.outputs[0]}));
  DOPPLER_ASSIGN(const KernelCall call, route_kernel(context_, &choose, &weigh, values_[choose.inputs[0]],
                                                     values_[choose.outputs[0]], &values_[weigh.outputs[0]]));
  return add(call);
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
  const Op &in = *group.op(plan(), Part::kExpertsIn), &out = *group.op(plan(), Part::kExpertsOut);
  const auto& gated = std::get<GatedParams>(group.op(plan(), Part::kGated)->params);
  DOPPLER_TRY(check_subgroups());
  DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context_, in, 0));
  DOPPLER_ASSIGN(const ExpertMatrix ups, expert_matrix(context_, in, 1));
  DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context_, out, 0));
  if (gates.matrix != ups.matrix || gates.matrix->shards.size() != 1 || downs.matrix->shards.size() != 1)
    return fail(ErrorCode::kUnsupported,
                "experts' gates and ups differ in type or are too large for a binding");
  if (static_cast<bool>(gates.bias) != static_cast<bool>(ups.bias) || gated.activation == Activation::kXielu)
    return fail(ErrorCode::kUnsupported, "experts' gates and ups have an odd activation or one bias");
  if (info(in.inputs[0]).width != gates.matrix->cols || gates.matrix->cols % 4 != 0)
    return fail(ErrorCode::kUnsupported, "experts read rows of their own, or rows that are no multiple of 4");
  const bool quantises = context_.eight_bits(*downs.matrix);
  if (quantises && gates.rows % kUnitValues != 0)
    return fail(ErrorCode::kUnsupported, "experts of {} rows are no multiple of {}", gates.rows, kUnitValues);
  DOPPLER_TRY(experts_in(group, *gates.matrix, quantises));
  return experts_out(group, quantises);
}

Status DecodeBuilder::experts_in(const OpGroup& group, const GpuMatrix& matrix, bool quantises) {
  const Op &in = *group.op(plan(), Part::kExpertsIn), &gated = *group.op(plan(), Part::kGated);
  const auto& p = std::get<ExpertParams>(in.params);
  const ValueId gate = in.outputs[0], up = in.outputs[1], act = gated.outputs[0];
  DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context_, in, 0));
  DOPPLER_ASSIGN(const ExpertMatrix ups, expert_matrix(context_, in, 1));
  const auto shapes =
      best_fused_shapes(device(), matrix.format, gates.rows, matrix.units, true, quantises, 1);
  if (shapes.empty())
    return fail(ErrorCode::kUnsupported, "{} x {} weights fit no workgroup", gates.rows, matrix.cols);
  const std::vector<ValueId> read = read_by(group);
  const bool emits_parts = is_stored(gate, group) || is_stored(up, group);
  const bool emits_act = quantises && wants(act);
  const ValueView& ids = values_[in.inputs[1]];
  ShaderValues values = {{"R", shapes[0].rows},
                         {"LANES", shapes[0].lanes},
                         {"UNITS", shapes[0].units},
                         {"EXPERTS", p.experts},
                         {"ROWS", gates.rows},
                         {"WIDTH", matrix.cols},
                         {"ACT", context_.eight_bits(matrix) ? 1 : 0},
                         {"IDS_OFFSET", ids.offset},
                         {"BIAS", gates.bias ? 1 : 0},
                         {"QUANTISE_OUT", quantises ? 1 : 0},
                         {"EMIT_PARTS", emits_parts ? 1 : 0},
                         {"EMIT_ACT", emits_act ? 1 : 0}};
  add_format(values, matrix);
  add_gated(std::get<GatedParams>(gated.params), values);
  DOPPLER_ASSIGN(const Bound x, whole("x", in.inputs[0]));
  std::vector<Bound> buffers = {x, ids.bound("ids")};
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
  return add("expert_in.wgsl", values, buffers, {gates.rows / shapes[0].rows, 1, p.chosen});
}

Status DecodeBuilder::experts_out(const OpGroup& group, bool quantised) {
  const Op &op = *group.op(plan(), Part::kExpertsOut), &sum = *group.op(plan(), Part::kExpertSum);
  const auto& p = std::get<ExpertParams>(op.params);
  const auto& s = std::get<ExpertSumParams>(sum.params);
  DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context_, op, 0));
  const GpuMatrix& matrix = *downs.matrix;
  const auto shape = shape_of_places(device(), matrix.format, downs.rows, matrix.units, p.chosen);
  if (!shape) return fail(ErrorCode::kUnsupported, "{} experts of a token fit no workgroup", p.chosen);
  const std::vector<ValueId> read = read_by(group);
  const bool emits = is_stored(op.outputs[0], group);
  DOPPLER_TRY(place(sum.outputs, read));
  if (emits) DOPPLER_TRY(values_.place(op.outputs, read));
  const ValueView &ids = values_[op.inputs[1]], &out = values_[sum.outputs[0]];
  ShaderValues values = {
      {"R", shape->rows},           {"PLACE_LANES", shape->lanes}, {"UNITS", shape->units},
      {"EXPERTS", p.experts},       {"CHOSEN", p.chosen},          {"ROWS", downs.rows},
      {"ACT", quantised ? 1 : 0},   {"IDS_OFFSET", ids.offset},    {"WEIGHTED", s.weighted ? 1 : 0},
      {"BIAS", downs.bias ? 1 : 0}, {"ADDS", s.adds ? 1 : 0},      {"OUT_OFFSET", out.offset},
      {"EMIT_PARTS", emits ? 1 : 0}};
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
  return add("expert_out.wgsl", values, buffers, {ceil_div(downs.rows, shape->rows), 1, 1});
}

}  // namespace doppler::gpu
