// The experts of a BatchProgram. Where a step has many tokens, its rows are sorted by expert on the device,
// and those of one expert are multiplied together, tile by tile; few tokens are multiplied one by one, those
// of several sequences by the kernels of single tokens.
#include <algorithm>

#include "backend/gpu/batch_builder.h"
#include "backend/gpu/decode_program.h"
#include "backend/gpu/few_rows_shape.h"
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

// Experts that have kernels together for single tokens, which read 8-bit blocks: the newest tokens of several
// sequences are multiplied by those, each by itself, or in tiles that read blocks, too.
Status BatchBuilder::find_experts() {
  const Plan& plan = context_.plan;
  const auto take = [&](const OpGroup& group) -> Result<bool> {
    if (group.pass.empty()) return true;
    if (const Status status = check_expert_group(context_, group); !status) {
      if (status.error().code != ErrorCode::kUnsupported) return std::unexpected(status.error());
      return false;
    }
    for (const Part part : {Part::kExpertsIn, Part::kExpertsOut})
      program_.can_be_apart_[group.index(part)] = true;
    DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context_, *group.op(plan, Part::kExpertsIn), 0));
    DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context_, *group.op(plan, Part::kExpertsOut), 0));
    if (!context_.eight_bits(*gates.matrix) || !context_.eight_bits(*downs.matrix)) return true;
    for (const Part part : {Part::kExpertsIn, Part::kGated, Part::kExpertsOut, Part::kExpertSum})
      program_.expert_groups_.emplace(group.index(part), group);
    return true;
  };
  constexpr std::string_view kPasses[] = {kPassDecodeExperts};
  DOPPLER_TRY(group_ops(plan, kPasses, take));
  return {};
}

// A product of a token's experts in the shape that was measured for single tokens, or the first in rank.
Status BatchBuilder::add_places(GemvSite site, const ShaderValues& values, const std::vector<Bound>& buffers,
                                Dispatch::Per per, Dispatches& out) {
  if (const auto tuned = context_.tuned.find(site.key()); tuned != context_.tuned.end()) {
    site.shape = tuned->second.shape;
  } else {
    const std::vector<GemvShape> shapes = site.shapes(device(), 1);
    if (shapes.empty()) return fail(ErrorCode::kUnsupported, "a token's experts fit no workgroup");
    site.shape = shapes[0];
  }
  KernelSource source = DecodeProgram::source_of(site, site.shape, 0);
  source.values.insert(values.begin(), values.end());
  DOPPLER_ASSIGN(Dispatch made, make(source.file, source.values, buffers, site.groups(), per));
  made.z = site.sums_places ? 1 : site.places;
  out.push_back(std::move(made));
  return {};
}

// Gates and ups of each token's experts with their activation, in blocks.
Status BatchBuilder::places_in(const OpGroup& group, Dispatches& out) {
  const Plan& plan = context_.plan;
  const Op& in = *group.op(plan, Part::kExpertsIn);
  const auto& p = std::get<ExpertParams>(in.params);
  DOPPLER_ASSIGN(const ExpertMatrix gates, expert_matrix(context_, in, 0));
  DOPPLER_ASSIGN(const ExpertMatrix ups, expert_matrix(context_, in, 1));
  const std::uint64_t bytes = std::uint64_t{kMostColumns} * p.chosen * gates.rows;
  // Kernels made before keep the buffers that they are bound to.
  if (program_.place8_.bytes() < bytes) {
    DOPPLER_ASSIGN(program_.place8_, device().make_buffer("place8", bytes));
    DOPPLER_ASSIGN(program_.place_scales_, device().make_buffer("place scales", bytes / 4));
  }
  const ValueView &x = view(in.inputs[0]), &ids = view(in.inputs[1]);
  DOPPLER_TRY(add(quantise_kernel(x, ceil_div(x.width, kUnitValues), program_.expert8_, program_.experts_),
                  per(in.inputs[0]), out));
  ShaderValues values = {{"MANY", 1},
                         {"EXPERTS", p.experts},
                         {"CHOSEN", p.chosen},
                         {"ROWS", gates.rows},
                         {"ACT", 1},
                         {"IDS_STRIDE", ids.stride},
                         {"IDS_OFFSET", ids.offset},
                         {"ROUTES", 0},
                         {"BIAS", gates.bias ? 1 : 0},
                         {"QUANTISE_OUT", 1},
                         {"EMIT_PARTS", 0},
                         {"EMIT_ACT", 0}};
  add_format(values, *gates.matrix);
  add_gated(std::get<GatedParams>(group.op(plan, Part::kGated)->params), values);
  std::vector<Bound> buffers = {ids.bound("ids"),
                                {"x8", program_.expert8_},
                                {"xs", program_.experts_},
                                {"out8", program_.place8_},
                                {"outs", program_.place_scales_}};
  bind_shard(buffers, *gates.matrix, gates.matrix->shards[0]);
  if (gates.bias) {
    buffers.push_back({"gate_bias", gates.bias});
    buffers.push_back({"up_bias", ups.bias});
  }
  return add_places(experts_in_site(gates, p.chosen, true), values, buffers, per(in.outputs[0]), out);
}

// Their downs and the weighted sum of these.
Status BatchBuilder::places_out(const OpGroup& group, Dispatches& out) {
  const Plan& plan = context_.plan;
  const Op &op = *group.op(plan, Part::kExpertsOut), &sum = *group.op(plan, Part::kExpertSum);
  const auto& p = std::get<ExpertParams>(op.params);
  const auto& s = std::get<ExpertSumParams>(sum.params);
  DOPPLER_ASSIGN(const ExpertMatrix downs, expert_matrix(context_, op, 0));
  const ValueView &ids = view(op.inputs[1]), &y = view(sum.outputs[0]);
  ShaderValues values = {{"MANY", 1},
                         {"EXPERTS", p.experts},
                         {"CHOSEN", p.chosen},
                         {"ROWS", downs.rows},
                         {"ACT", 1},
                         {"IDS_STRIDE", ids.stride},
                         {"IDS_OFFSET", ids.offset},
                         {"OUT_STRIDE", y.stride},
                         {"OUT_OFFSET", y.offset},
                         {"WEIGHTED", s.weighted ? 1 : 0},
                         {"BIAS", downs.bias ? 1 : 0},
                         {"ADDS", s.adds ? 1 : 0},
                         {"EMIT_PARTS", 0}};
  add_format(values, *downs.matrix);
  std::vector<Bound> buffers = {
      ids.bound("ids"), y.bound("out"), {"x8", program_.place8_}, {"xs", program_.place_scales_}};
  bind_shard(buffers, *downs.matrix, downs.matrix->shards[0]);
  if (downs.bias) buffers.push_back({"bias", downs.bias});
  if (s.weighted) {
    const ValueView& weights = view(sum.inputs[1]);
    values["WEIGHTS_STRIDE"] = weights.stride;
    values["WEIGHTS_OFFSET"] = weights.offset;
    buffers.push_back(weights.bound("weights"));
  }
  if (s.adds) {
    const ValueView& z = view(sum.inputs.back());
    values["Z_STRIDE"] = z.stride;
    values["Z_OFFSET"] = z.offset;
    buffers.push_back(z.bound("z"));
  }
  return add_places(experts_out_site(downs, p.chosen), values, buffers, per(sum.outputs[0]), out);
}

// By the kernels of single tokens, those of the group that stand at this op. False where the device cannot
// run them, or runs them wrongly; then none of the group has been added.
Result<bool> BatchBuilder::multiply_places(std::size_t op, Dispatches& out) {
  const OpGroup group = program_.expert_groups_.at(op);
  if (op == group.index(Part::kExpertsOut)) {
    DOPPLER_TRY(places_out(group, out));
    return true;
  }
  Dispatches made, unused;
  Status both = places_in(group, made);
  if (both) both = places_out(group, unused);
  if (!both && both.error().code == ErrorCode::kUnsupported) {
    std::erase_if(program_.expert_groups_, [&](const auto& at) { return at.second.first == group.first; });
    return false;
  }
  DOPPLER_TRY(std::move(both));
  for (Dispatch& dispatch : made) out.push_back(std::move(dispatch));
  return true;
}

Status BatchBuilder::multiply_experts(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  if (variant.by_token) {
    DOPPLER_ASSIGN(const bool multiplied, multiply_places(variant.op, out));
    if (multiplied) return {};
  }
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
  const bool wide = variant.wide && can_be_wide(x, cols) &&
                    std::ranges::all_of(
                        placed, [](const ExpertMatrix& each) { return each.matrix->format.super_blocks(); });
  DOPPLER_TRY(
      add(quantise_kernel(x, ceil_div(x.width, kUnitValues), program_.expert8_, program_.experts_, wide),
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
    if (wide) values["WIDE"] = 1;
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
