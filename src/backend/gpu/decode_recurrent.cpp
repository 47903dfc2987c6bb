// Recurrent layers of a DecodeProgram: what a delta rule reads in one kernel, and the gated norm of what it
// gives, with the 8-bit blocks that the next product reads.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/gpu/batch_groups.h"
#include "backend/gpu/decode_builder.h"
#include "backend/gpu/recurrent_kernels.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Threads of a head, of which a value of a key of published models is one each.
constexpr std::uint32_t kHeadThreads = 128;

// Where a slice begins.
std::uint32_t first_of(const Op& op) {
  return std::get<ColumnsParams>(op.params).ranges[0].first;
}

ValueView part_of(ValueView view, std::uint32_t first, std::uint32_t width) {
  view.offset += first;
  view.width = width;
  return view;
}

}  // namespace

Status DecodeBuilder::recurrent(const Op& op) {
  if (op.kind == OpKind::kColumns &&
      std::get<ColumnsParams>(op.params).is_slice()) {  // it lies there already
    values_.set(op.outputs[0], part_of(values_[op.inputs[0]], first_of(op), info(op.outputs[0]).width));
    return {};
  }
  DOPPLER_TRY(place_outputs(op));
  const PlaceOf at = [this](ValueId id) -> const ValueView& { return values_[id]; };
  DOPPLER_ASSIGN(const RecurrentKernel kernel, recurrent_kernel(context_, op, at, false));
  return add(kernel.call);
}

// A workgroup for each head of q and k, some for v, and one for what a head has one value of.
Status DecodeBuilder::delta(const OpGroup& group) {
  const Op &beta = *group.op(plan(), Part::kActivation), &step = *group.op(plan(), Part::kTimeStep),
           &decay = *group.op(plan(), Part::kDecay), &convolution = *group.op(plan(), Part::kConvolution),
           &q = *group.op(plan(), Part::kQColumns), &k = *group.op(plan(), Part::kKColumns),
           &v = *group.op(plan(), Part::kVColumns), &q_norm = *group.op(plan(), Part::kQNorm),
           &k_norm = *group.op(plan(), Part::kKNorm);
  const auto& taps = std::get<ConvolutionParams>(convolution.params);
  const auto& limits = std::get<TimeStepParams>(step.params);
  const auto& kv = context_.kv[static_cast<std::size_t>(convolution.layer)];
  const Value& keys = info(q_norm.outputs[0]);
  const std::uint32_t channels = info(convolution.outputs[0]).width, heads = info(beta.outputs[0]).width;
  const std::uint32_t key_width = keys.width, value_width = info(v.outputs[0]).width;
  const bool neighbours = first_of(q) == 0 && first_of(k) == key_width && first_of(v) == 2 * key_width &&
                          info(k_norm.outputs[0]).width == key_width &&
                          2 * key_width + value_width == channels;
  if (!neighbours || info(decay.outputs[0]).width != heads || info(k_norm.outputs[0]).heads != keys.heads)
    return fail(ErrorCode::kUnsupported,
                "q, k and v are not all that a convolution gives, one after the other");
  const std::vector<ValueId> read = read_by(group);
  for (const Op* op : {&beta, &decay, &convolution, &q_norm, &k_norm})
    DOPPLER_TRY(values_.place(op->outputs, read));
  values_.set(v.outputs[0], part_of(values_[convolution.outputs[0]], 2 * key_width, value_width));

  const bool limited = std::isfinite(limits.high),
             bias = !convolution.biases.empty() && convolution.biases[0] != kNoWeight;
  ShaderValues values = {
      {"THREADS", kHeadThreads},
      {"CHANNELS", channels},
      {"KEPT", taps.taps - 1},
      {"SILU", taps.activation == Activation::kSilu ? 1 : 0},
      {"BIAS", bias ? 1 : 0},
      {"BATCH", 0},
      {"POSITIONS", context_.layout.positions()},
      {"SLOTS", context_.layout.slots()},
      {"KEY_HEADS", keys.heads},
      {"KEY_DIM", key_width / keys.heads},
      {"VALUES", value_width},
      {"HEADS", heads},
      {"Q_EPS_BITS", float_bits(std::get<NormParams>(q_norm.params).eps)},
      {"K_EPS_BITS", float_bits(std::get<NormParams>(k_norm.params).eps)},
      {"ACTIVATION", static_cast<std::int64_t>(std::get<GatedParams>(beta.params).activation)},
      {"LOW_BITS", float_bits(limits.low)},
      {"LIMITED", limited ? 1 : 0}};
  if (limited) values["HIGH_BITS"] = float_bits(limits.high);
  std::vector<Bound> buffers = {{"step", context_.step}, {"state", kv.conv_state}};
  const auto bind = [&](const char* name, std::string_view binding, ValueId id) {
    values[std::string(name) + "_OFFSET"] = values_[id].offset;
    buffers.push_back(values_[id].bound(binding));
  };
  bind("X", "x", convolution.inputs[0]);
  bind("BETA_IN", "beta_in", beta.inputs[0]);
  bind("STEP_IN", "step_in", step.inputs[0]);
  bind("OUT", "out", convolution.outputs[0]);
  bind("Q", "q", q_norm.outputs[0]);
  bind("K", "k", k_norm.outputs[0]);
  bind("BETA", "beta", beta.outputs[0]);
  bind("DECAY", "decay", decay.outputs[0]);
  const auto bind_weight = [&](std::string_view binding, WeightId weight, VectorForm form) -> Status {
    DOPPLER_ASSIGN(Buffer buffer, context_.vector(weight, form));
    buffers.push_back({binding, std::move(buffer)});
    return {};
  };
  DOPPLER_TRY(bind_weight("weight", convolution.weights[0], VectorForm::kByTap));
  if (bias) DOPPLER_TRY(bind_weight("bias", convolution.biases[0], VectorForm::kPlain));
  DOPPLER_TRY(bind_weight("step_bias", step.weights[0], VectorForm::kPlain));
  DOPPLER_TRY(bind_weight("rates", decay.weights[0], VectorForm::kRates));
  DOPPLER_ASSIGN(Buffer q_weight, context_.norm_weights(q_norm));
  DOPPLER_ASSIGN(Buffer k_weight, context_.norm_weights(k_norm));
  buffers.push_back({"q_weight", std::move(q_weight)});
  buffers.push_back({"k_weight", std::move(k_weight)});
  if (buffers.size() > device().limits().storage_buffers)
    return fail(ErrorCode::kUnsupported, "a kernel may have {} buffers, not {}",
                device().limits().storage_buffers, buffers.size());
  return add("delta_prepare.wgsl", values, buffers,
             {2 * keys.heads + ceil_div(value_width, kHeadThreads) + ceil_div(heads, kHeadThreads), 1, 1});
}

Status DecodeBuilder::gated_norm(const OpGroup& group) {
  const Op &norm = *group.op(plan(), Part::kNorm), &gated = *group.op(plan(), Part::kGated);
  const ValueId gate = gated.inputs[0], x = norm.inputs[0], out = gated.outputs[0];
  const Value& v = info(norm.outputs[0]);
  const std::uint32_t dim = v.width / v.heads;
  if (dim % 4 != 0 || !has_vectors(values_[x]) || !has_vectors(values_[gate]))
    return fail(ErrorCode::kUnsupported, "heads of {} values do not lie in fours", dim);
  const ReadAs read = read_as(context_, out);
  // Whole blocks of 32 to a head, and whole units of 64, since nothing else clears what would be left.
  const bool blocks = read.blocks && dim % 32 == 0 && v.width % kUnitValues == 0;
  const bool floats = !blocks || read.floats || wants(out);
  const std::uint32_t subgroup = std::max(device().features().subgroup_size, 8u);
  ShaderValues values = {
      {"THREADS", std::clamp((dim / 4 + subgroup - 1) / subgroup * subgroup, subgroup, kHeadThreads)},
      {"DIM", dim},
      {"EPS_BITS", float_bits(std::get<NormParams>(norm.params).eps)},
      {"ACTIVATION", static_cast<std::int64_t>(std::get<GatedParams>(gated.params).activation)},
      {"FLOATS", floats ? 1 : 0},
      {"BLOCKS", blocks ? 1 : 0},
      {"X_OFFSET", values_[x].offset},
      {"GATE_OFFSET", values_[gate].offset}};
  DOPPLER_ASSIGN(Buffer weight, context_.norm_weights(norm));
  std::vector<Bound> buffers = {
      values_[x].bound("x"), values_[gate].bound("gate"), {"weight", std::move(weight)}};
  if (floats) {
    DOPPLER_TRY(values_.place(gated.outputs, read_by(group)));
    values["OUT_OFFSET"] = values_[out].offset;
    buffers.push_back(values_[out].bound("out"));
  }
  if (blocks) {
    DOPPLER_ASSIGN(Blocks * made, free_blocks(std::nullopt));
    made->of = out;
    buffers.push_back({"x8", made->codes});
    buffers.push_back({"xs", made->scales});
  }
  return add("gated_norm.wgsl", values, buffers, {v.heads, 1, 1});
}

}  // namespace doppler::gpu
