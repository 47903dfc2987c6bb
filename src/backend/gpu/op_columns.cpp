// The kernels of ops that scale, join, mix or cut the columns of rows: shaders/join_columns.wgsl,
// head_matmul.wgsl and row_statistic.wgsl.
#include "backend/gpu/op_kernels.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// OP of join_columns.wgsl, and of row_statistic.wgsl.
constexpr std::int64_t kScaled = 0, kJoined = 1, kMixed = 2;
constexpr std::int64_t kMatched = 0, kCut = 1;

using Inputs = std::span<const ValueView* const>;

KernelCall combine(std::int64_t op, Inputs in, const ValueView& out) {
  ShaderValues values = {{"THREADS", kElementThreads}, {"OP", op}, {"WIDTH", out.width}};
  add_view(values, "A", *in[0]);
  add_view(values, "OUT", out);
  KernelCall call{"join_columns.wgsl", values, {in[0]->bound("a"), out.bound("out")}, groups_for(out.width)};
  if (in.size() > 1) {
    add_view(call.values, "B", *in[1]);
    call.buffers.push_back(in[1]->bound("b"));
  }
  return call;
}

Result<KernelCall> scale(Context& context, const Op& op, Inputs in, const ValueView& out) {
  KernelCall call = combine(kScaled, in, out);
  DOPPLER_ASSIGN(const Buffer factors, context.vector(op.weights[0], VectorForm::kPlain));
  const bool each = context.weights[op.weights[0]].cols() > 1;
  call.values["EACH"] = each ? 1 : 0;
  call.buffers.push_back({"b", factors});
  return call;
}

KernelCall join(const JoinParams& p, Inputs in, const ValueView& out) {
  KernelCall call = combine(kJoined, in, out);
  const std::uint32_t of_a = in[0]->width / p.parts, of_b = out.width / p.parts - of_a;
  call.values["PART"] = of_a + of_b;
  call.values["FROM"] = of_a;
  call.values["B_STEP"] = in[1]->width == of_b ? 0 : of_b;
  return call;
}

KernelCall mix(const MixParams& p, Inputs in, const ValueView& out) {
  KernelCall call = combine(kMixed, in, out);
  const std::uint32_t each = out.width / p.streams;
  call.values["PART"] = each;
  call.values["PARTS"] = in[1]->width / each;
  call.values["FIRST"] = p.first;
  call.values["OFFSET_BITS"] = float_bits(p.offset);
  call.values["COEFFICIENTS"] = in.size() > 2 ? 1 : 0;
  if (in.size() > 2) {
    add_view(call.values, "C", *in[2]);
    call.buffers.push_back(in[2]->bound("c"));
  }
  return call;
}

Result<KernelCall> head_matmul(Context& context, const Op& op, Inputs in, const ValueView& out) {
  const auto& p = std::get<HeadMatmulParams>(op.params);
  DOPPLER_ASSIGN(const Buffer weights, context.head_matrices(op));
  const auto cols = static_cast<std::uint32_t>(context.weights[op.weights[0]].cols());
  const std::uint32_t takes = p.transposed ? p.rows : cols;
  ShaderValues values = {{"THREADS", kElementThreads},
                         {"HEADS", p.heads},
                         {"TAKES", takes},
                         {"GIVES", p.transposed ? cols : p.rows},
                         {"FROM", in[0]->width == takes ? 0 : in[0]->width / p.heads},
                         {"TO", out.width / p.heads}};
  add_view(values, "X", *in[0]);
  add_view(values, "OUT", out);
  return KernelCall{"head_matmul.wgsl",
                    values,
                    {in[0]->bound("x"), {"weights", weights}, out.bound("out")},
                    groups_for(out.width)};
}

KernelCall row_statistic(const Context& context, const Op& op, Inputs in, const ValueView& out) {
  const auto* match = std::get_if<MatchRmsParams>(&op.params);
  const std::uint32_t heads = match != nullptr ? context.plan.values[op.outputs[0]].heads : 1;
  ShaderValues values = {
      {"THREADS", kElementThreads}, {"DIM", out.width / heads}, {"OP", match != nullptr ? kMatched : kCut}};
  add_view(values, "X", *in[0]);
  add_view(values, "OUT", out);
  KernelCall call{"row_statistic.wgsl", values, {in[0]->bound("x"), out.bound("out")}, heads};
  if (match == nullptr) {
    call.values["DEVIATIONS_BITS"] = float_bits(std::get<CutoffParams>(op.params).deviations);
    return call;
  }
  call.values["LEAST_BITS"] = float_bits(match->least);
  call.values["LIKE_DIM"] = in[1]->width;
  add_view(call.values, "LIKE", *in[1]);
  call.buffers.push_back(in[1]->bound("like"));
  return call;
}

}  // namespace

Result<KernelCall> column_kernel(Context& context, const Op& op, Inputs in, const ValueView& out) {
  switch (op.kind) {
    case OpKind::kScale:
      return scale(context, op, in, out);
    case OpKind::kJoin:
      return join(std::get<JoinParams>(op.params), in, out);
    case OpKind::kMix:
      return mix(std::get<MixParams>(op.params), in, out);
    case OpKind::kHeadMatmul:
      return head_matmul(context, op, in, out);
    case OpKind::kMatchRms:
    case OpKind::kCutoff:
      return row_statistic(context, op, in, out);
    default:
      return fail(ErrorCode::kInternal, "The op {} has no kernel of columns.", op_name(op.kind));
  }
}

}  // namespace doppler::gpu
