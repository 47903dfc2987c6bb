// The experts of a BatchProgram. Where a step has many tokens, its rows are sorted by expert on the device,
// and those of one expert are multiplied together, tile by tile; few tokens are multiplied one by one.
#include <algorithm>

#include "backend/gpu/batch_builder.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Of expert_tiles.wgsl, one workgroup, which all that follows waits for.
constexpr std::uint32_t kSortThreads = 256;
constexpr std::uint32_t kLeastTile = 16;  // rows of the smallest tile

}  // namespace

// Uploads the experts, and makes room for their activations and for the order of a step's rows.
Status BatchBuilder::prepare_experts() {
  const Plan& plan = context_.plan;
  std::uint64_t units = 0, rows = 0, tiles = 0;
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kExpertMatmul) continue;
    const auto& p = std::get<ExpertParams>(op.params);
    for (std::size_t o = 0; o < op.outputs.size(); ++o) DOPPLER_TRY(expert_matrix(context_, op, o));
    const std::uint64_t tokens = most_rows(op.inputs[0]), all = tokens * p.chosen;
    units = std::max(units, tokens * ceil_div(info(op.inputs[0]).width, kUnitValues));
    rows = std::max(rows, all);
    tiles = std::max(tiles, (all + kLeastTile - 1) / kLeastTile + p.experts);
  }
  if (units == 0) return {};
  DOPPLER_ASSIGN(program_.expert8_, device().make_buffer("expert8", units * kUnitValues));
  DOPPLER_ASSIGN(program_.experts_, device().make_buffer("experts", units * 16));
  DOPPLER_ASSIGN(program_.order_, device().make_buffer("order", rows * 4));
  DOPPLER_ASSIGN(program_.tiles_, device().make_buffer("tiles", tiles * 16));
  return {};
}

// Experts that are one kernel for single tokens, which reads 8-bit blocks: tiles of several sequences' newest
// tokens do so, too.
Status BatchBuilder::find_experts() {
  const auto take = [&](const OpGroup& group) -> Result<bool> {
    if (group.pass.empty()) return true;
    if (!check_expert_group(context_, group)) return false;
    for (const Part part : {Part::kExpertsIn, Part::kExpertsOut})
      program_.can_be_apart_[group.index(part)] = true;
    return true;
  };
  constexpr std::string_view kPasses[] = {kPassDecodeExperts};
  DOPPLER_TRY(group_ops(context_.plan, kPasses, take));
  return {};
}

Status BatchBuilder::multiply_experts(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  if (variant.rows != 0) {
    DOPPLER_ASSIGN(const bool grouped, multiply_grouped(variant, out));
    if (grouped) return {};
  }
  std::vector<ValueView> to;
  for (const ValueId id : op.outputs) to.push_back(view(id));
  DOPPLER_ASSIGN(std::vector<KernelCall> calls,
                 expert_kernels(context_, op, view(op.inputs[0]), view(op.inputs[1]), to));
  for (KernelCall& call : calls) DOPPLER_TRY(add(std::move(call), per(op.outputs[0]), out));
  return {};
}

Status BatchBuilder::sort_rows(const Op& op, std::uint32_t tile, Dispatches& out) {
  const auto& p = std::get<ExpertParams>(op.params);
  ShaderValues values = {{"THREADS", kSortThreads},
                         {"EXPERTS", p.experts},
                         {"CHOSEN", p.chosen},
                         {"TM", tile},
                         {"COUNT", count_word(op.outputs[0])}};
  const ValueView& ids = view(op.inputs[1]);
  add_view(values, "IDS", ids);
  const std::vector<Bound> buffers = {
      {"step", context_.step}, ids.bound("ids"), {"order", program_.order_}, {"tiles", program_.tiles_}};
  DOPPLER_ASSIGN(Dispatch made, make("expert_tiles.wgsl", values, buffers, 1, Dispatch::Per::kOnce));
  out.push_back(std::move(made));
  return {};
}

// False where the device, the types or the widths do not allow it; then nothing has been added.
Result<bool> BatchBuilder::multiply_grouped(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  const auto& p = std::get<ExpertParams>(op.params);
  std::vector<ExpertMatrix> placed;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    DOPPLER_ASSIGN(ExpertMatrix matrix, expert_matrix(context_, op, i));
    placed.push_back(std::move(matrix));
  }
  const ValueView& x = view(op.inputs[0]);
  const std::uint32_t cols = placed[0].matrix->cols;
  const bool own = x.width != cols;
  if (own && cols % kUnitValues != 0) return false;
  std::vector<GemmShape> shapes;
  for (const ExpertMatrix& matrix : placed) {
    if (!context_.eight_bits(*matrix.matrix) || matrix.matrix->shards.size() != 1) return false;
    auto shape = choose_expert_shape(device().limits(), matrix.matrix->format, variant.rows * p.chosen,
                                     p.experts, matrix.matrix->units, variant.apart);
    if (!shape || (!shapes.empty() && shape->tile_tokens != shapes[0].tile_tokens)) return false;
    // Compiling unrolled code for a CPU takes longer than it saves.
    if (device().adapter().software()) shape->unrolled = false;
    shapes.push_back(*shape);
  }
  Dispatches made;
  // Ops of another format may have had other tiles.
  DOPPLER_TRY(sort_rows(op, shapes[0].tile_tokens, made));
  DOPPLER_TRY(add(quantise_kernel(x, ceil_div(x.width, kUnitValues), program_.expert8_, program_.experts_),
                  per(op.inputs[0]), made));
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const GpuMatrix& matrix = *placed[i].matrix;
    const GemmShape& shape = shapes[i];
    const ValueView& y = view(op.outputs[i]);
    ShaderValues values = gemm_values(shape, matrix.format, placed[i].rows, matrix.units);
    values["GROUPED"] = 1;
    values["FIRST"] = placed[i].first_row;
    values["CHOSEN"] = p.chosen;
    values["OWN"] = own ? 1 : 0;
    values["BIAS"] = placed[i].bias ? 1 : 0;
    add_view(values, "OUT", y);
    std::vector<Bound> buffers = {{"x8", program_.expert8_},
                                  {"xs", program_.experts_},
                                  {"order", program_.order_},
                                  {"tiles", program_.tiles_},
                                  y.bound("out")};
    bind_shard(buffers, matrix, matrix.shards[0]);
    if (placed[i].bias) buffers.push_back({"bias", placed[i].bias});
    auto tiled =
        make("gemm.wgsl", values, buffers, ceil_div(placed[i].rows, shape.tile_rows), per(op.outputs[i]));
    // A driver may compute it wrongly.
    if (!tiled && tiled.error().code == ErrorCode::kUnsupported) return false;
    DOPPLER_ASSIGN(Dispatch dispatch, std::move(tiled));
    dispatch.rows_times = p.chosen;
    dispatch.rows_each = shape.tile_tokens;
    dispatch.more = p.experts;
    made.push_back(std::move(dispatch));
  }
  for (Dispatch& dispatch : made) out.push_back(std::move(dispatch));
  return true;
}

}  // namespace doppler::gpu
