// The kernels of a BatchProgram for the newest tokens of several sequences: products of a few rows, and
// attention in splits of each sequence, as a single token has it.
#include <algorithm>
#include <bit>

#include "backend/gpu/batch_builder.h"
#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/shader_values.h"
#include "backend/gpu/split_attention.h"

namespace doppler::gpu {
namespace {

// Workgroups of an attention that fill a large GPU: two for each of its processors.
constexpr std::uint32_t kAttentionGroups = 264;

// Workgroups that share the splits of a sequence: as few as fill the GPU, since each prepares the heads for
// itself.
std::uint32_t workgroups_for(const AttentionParams& a, std::uint32_t tokens) {
  return std::min(std::bit_ceil(ceil_div(kAttentionGroups, tokens * a.kv_heads)), most_splits(a));
}

}  // namespace

Status BatchBuilder::columns(const Op& op, const PlacedMatrix& part, const Shard& shard,
                             const Variant& variant, Dispatches& out) {
  const GpuMatrix& matrix = *part.matrix;
  const std::optional<ColumnsShape> shape = choose_columns_shape(
      device().limits(), matrix.format, shard.rows, matrix.units, false, device().adapter().software());
  if (!shape) return gemv(op, part, shard, variant, out);
  const ValueView &x = view(op.inputs[0]), &y = view(op.outputs[0]);
  const bool eight_bits = context_.eight_bits(matrix);
  const std::uint32_t columns = columns_for(variant.rows);
  ShaderValues values = {{"R", shape->rows},
                         {"LANES", shape->lanes},
                         {"UNITS", shape->units},
                         {"SETS", shape->sets},
                         {"COLUMNS", columns},
                         {"ROWS", shard.rows},
                         {"EPI", 0},
                         {"EMIT_ACT", 0},
                         {"ACT", eight_bits ? 1 : 0},
                         {"COUNT", count_word(op.outputs[0])},
                         {"OUT_STRIDE", y.stride},
                         {"OUT_OFFSET", y.offset + part.first_row + shard.first_row}};
  add_format(values, matrix);
  std::vector<Bound> buffers = {{"step", context_.step}, {"out", y.buffer}};
  bind_shard(buffers, matrix, shard);
  bind_bias(part, shard, values, buffers);
  if (eight_bits) {
    bind_blocks(variant, buffers);
  } else {
    values["X_VEC"] = has_vectors(x) ? 1 : 0;
    values["WIDTH"] = x.width;
    add_view(values, "X", x);
    buffers.push_back({"x", x.buffer});
  }
  auto together = make("gemv_columns.wgsl", values, buffers, ceil_div(shard.rows, shape->results(false)),
                       per(op.outputs[0]));
  // A driver may compute it wrongly.
  if (!together && together.error().code == ErrorCode::kUnsupported)
    return gemv(op, part, shard, variant, out);
  DOPPLER_ASSIGN(Dispatch made, std::move(together));
  made.rows_each = columns;
  out.push_back(std::move(made));
  return {};
}

// Gate and up of one matrix, the group that makes blocks of their activation, and the one product that reads
// it.
void BatchBuilder::find_gated() {
  const Plan& plan = context_.plan;
  program_.can_be_gated_.assign(plan.ops.size(), false);
  if (!has_pass(plan, kPassBatchGemm)) return;
  const Readers readers(plan);
  for (std::size_t i = 0; i + 2 < plan.ops.size(); ++i) {
    const Op &product = plan.ops[i], &gated = plan.ops[i + 1], &down = plan.ops[i + 2];
    if (product.kind != OpKind::kMatmul || product.outputs.size() != 2 || down.kind != OpKind::kMatmul)
      continue;
    const BatchGroup& group = program_.groups_.of(i + 1);
    if (group.pass != kPassBatchGated || group.count != 1 || group.floats || gated.inputs != product.outputs)
      continue;
    const std::vector<PlacedMatrix>&placed = program_.placed_[i], &behind = program_.placed_[i + 2];
    const bool whole = placed.size() == 1 && placed[0].matrix->shards.size() == 1 &&
                       info(product.outputs[0]).width == info(product.outputs[1]).width &&
                       context_.eight_bits(*placed[0].matrix);
    const bool read_once = down.inputs[0] == gated.outputs[0] && readers.of(gated.outputs[0]).size() == 1 &&
                           readers.of(product.outputs[0]).size() == 1 &&
                           readers.of(product.outputs[1]).size() == 1;
    const bool in_blocks = std::ranges::all_of(
        behind, [&](const PlacedMatrix& part) { return context_.eight_bits(*part.matrix); });
    if (!whole || !read_once || !in_blocks || !gated_shape(*placed[0].matrix)) continue;
    for (std::size_t op = i; op < i + 3; ++op) program_.can_be_gated_[op] = true;
  }
}

std::optional<ColumnsShape> BatchBuilder::gated_shape(const GpuMatrix& matrix) {
  return choose_columns_shape(device().limits(), matrix.format, matrix.rows / 2, matrix.units, true,
                              device().adapter().software());
}

Status BatchBuilder::gated_columns(const Variant& variant, Dispatches& out) {
  const Op &op = op_at(variant.op), &gated = op_at(variant.op + 1);
  const PlacedMatrix& part = program_.placed_[variant.op][0];
  const GpuMatrix& matrix = *part.matrix;
  const Shard& shard = matrix.shards[0];
  const std::uint32_t rows = matrix.rows / 2, units = ceil_div(rows, kUnitValues),
                      together = columns_for(variant.rows);
  const std::uint64_t bytes = std::uint64_t{kMostColumns} * units * kUnitValues;
  // Kernels made before keep the buffers that they are bound to.
  if (program_.act8_.bytes() < bytes) {
    DOPPLER_ASSIGN(program_.act8_, device().make_buffer("act8", bytes));
    DOPPLER_ASSIGN(program_.act_scales_, device().make_buffer("act scales", bytes / 4));
  }
  if (!program_.has_blocks_[variant.op]) {
    const ValueView& x = view(op.inputs[0]);
    DOPPLER_TRY(add(quantise_kernel(x, ceil_div(x.width, kUnitValues), program_.x8_, program_.xs_),
                    per(op.inputs[0]), out));
  }
  const ColumnsShape shape = *gated_shape(matrix);
  ShaderValues values = {
      {"R", shape.rows},
      {"LANES", shape.lanes},
      {"UNITS", shape.units},
      {"SETS", shape.sets},
      {"COLUMNS", together},
      {"ROWS", rows},
      {"EPI", 1},
      {"EMIT_ACT", 0},
      {"ACT", 1},
      {"COUNT", count_word(op.outputs[0])},
      {"OUT_UNITS", units},
      {"ACTIVATION", static_cast<std::int64_t>(std::get<GatedParams>(gated.params).activation)}};
  add_format(values, matrix);
  std::vector<Bound> buffers = {{"step", context_.step},
                                {"x8", program_.x8_},
                                {"xs", program_.xs_},
                                {"out8", program_.act8_},
                                {"outs", program_.act_scales_}};
  bind_shard(buffers, matrix, shard);
  bind_bias(part, shard, values, buffers);
  auto compiled = make("gemv_columns.wgsl", values, buffers, rows / shape.results(true), per(op.outputs[0]));
  if (!compiled && compiled.error().code == ErrorCode::kUnsupported) {  // a driver may compute it wrongly
    Variant plain = variant;
    plain.gated = false;
    DOPPLER_TRY(columns(op, part, shard, plain, out));
    Variant activation = variant;
    activation.emit = false;
    return fused_gated(program_.groups_.of(variant.op + 1), activation, out);
  }
  DOPPLER_ASSIGN(Dispatch made, std::move(compiled));
  made.rows_each = together;
  out.push_back(std::move(made));
  return {};
}

// Products whose parts the norm of sums behind them can add up by itself.
void BatchBuilder::find_parts() {
  const Plan& plan = context_.plan;
  program_.can_leave_parts_.assign(plan.ops.size(), false);
  if (!has_pass(plan, kPassBatchGemm)) return;
  const Readers readers(plan);
  for (std::size_t i = 0; i + 1 < plan.ops.size(); ++i) {
    const Op& product = plan.ops[i];
    const BatchGroup& group = program_.groups_.of(i + 1);
    if (product.kind != OpKind::kMatmul || group.pass != kPassBatchNorm || group.first != i + 1) continue;
    const Op *post = group.op(plan, Part::kPostNorm), *sum = group.op(plan, Part::kAdd);
    if (sum == nullptr || info(product.outputs[0]).rows != Rows::kAll) continue;
    const ValueId branch = post != nullptr ? post->inputs[0] : sum->inputs[1];
    const std::vector<PlacedMatrix>& placed = program_.placed_[i];
    const bool fits = product.outputs.size() == 1 && product.outputs[0] == branch &&
                      readers.of(branch).size() == 1 && placed.size() == 1 &&
                      placed[0].matrix->shards.size() == 1 && !placed[0].bias &&
                      context_.eight_bits(*placed[0].matrix) && placed[0].matrix->rows == info(branch).width;
    if (fits) program_.can_leave_parts_[i] = program_.can_leave_parts_[i + 1] = true;
  }
}

// The cut of a product that leaves parts for so many rows; nothing where it leaves sums.
std::optional<GemmShape> BatchBuilder::parts_of(std::size_t product, std::uint32_t rows) const {
  if (!program_.can_leave_parts_[product]) return std::nullopt;
  const GpuMatrix& matrix = *program_.placed_[product][0].matrix;
  const std::optional<GemmShape> shape = tiles_for(matrix, rows, matrix.rows);
  return shape && shape->splits > 1 ? shape : std::nullopt;
}

// Attentions that a program for single tokens takes in splits, with the norms and turns before them, and the
// product behind them, if that takes 8-bit blocks.
Status BatchBuilder::find_apart() {
  const Plan& plan = context_.plan;
  const auto take = [&](const OpGroup& group) -> Result<bool> {
    if (group.pass.empty()) return true;
    const Op& op = *group.op(plan, Part::kAttention);
    const auto& a = std::get<AttentionParams>(op.params);
    if (a.value_dim != 0 || !split_attention_shape(context_, a, Company::kSeveral)) return false;
    const bool with_output = group.has(Part::kOutput);
    const std::size_t at = group.first + group.count - (with_output ? 2 : 1);
    for (std::size_t i = group.first; i <= at; ++i) program_.can_be_apart_[i] = true;
    if (with_output) program_.can_be_apart_[at + 1] = read_as(context_, op.outputs[0]).blocks;
    program_.attentions_.emplace(at, group);
    return true;
  };
  constexpr std::string_view kPasses[] = {kPassDecodeAttention};
  DOPPLER_TRY(group_ops(plan, kPasses, take));
  return {};
}

bool BatchProgram::agrees_in_company(const Plan& plan) const {
  if (refused_) return false;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind == OpKind::kAttention && !attentions_.contains(i)) return false;
  }
  return true;
}

// q, k and v of the newest tokens as parts of one row: as one product leaves them, or else copied.
Status BatchBuilder::heads_apart(const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers,
                                 Dispatches& out) {
  const Plan& plan = context_.plan;
  const Op& op = *group.op(plan, Part::kAttention);
  const auto& a = std::get<AttentionParams>(op.params);
  const auto [q, k, v] = heads_of(plan, group);
  const ValueView* const heads[] = {&view(q), &view(k), &view(v)};
  constexpr std::string_view kOffsets[] = {"Q_OFFSET", "K_OFFSET", "V_OFFSET"};
  const bool together = std::ranges::all_of(heads, [&](const ValueView* head) {
    return head->buffer.raw() == heads[0]->buffer.raw() && head->stride == heads[0]->stride &&
           has_vectors(*head);
  });
  if (together) {
    values["QKV_STRIDE"] = heads[0]->stride;
    for (std::size_t i = 0; i < 3; ++i) values[std::string(kOffsets[i])] = heads[i]->offset;
    buffers.push_back({"qkv", heads[0]->buffer});
    return {};
  }
  const std::uint32_t row = (a.heads + 2 * a.kv_heads) * a.head_dim;
  // Kernels made before keep the buffers that they are bound to.
  if (program_.heads_.bytes() < std::uint64_t{kFewRows} * row * 4) {
    DOPPLER_ASSIGN(program_.heads_, device().make_buffer("heads", std::uint64_t{kFewRows} * row * 4));
  }
  std::uint32_t offset = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    DOPPLER_TRY(add(copy_kernel(*heads[i], {program_.heads_, row, offset, heads[i]->width}),
                    Dispatch::Per::kToken, out));
    values[std::string(kOffsets[i])] = offset;
    offset += heads[i]->width;
  }
  values["QKV_STRIDE"] = row;
  buffers.push_back({"qkv", program_.heads_});
  return {};
}

Status BatchBuilder::attend_apart(const Variant& variant, Dispatches& out) {
  const std::size_t before = out.size();
  Status apart = attend_in_splits(variant, out);
  if (apart || apart.error().code != ErrorCode::kUnsupported) return apart;
  // A driver may compute it wrongly: then op by op, with the blocks that the product behind reads.
  program_.refused_ = true;
  out.resize(before);
  for (std::size_t i = program_.attentions_.at(variant.op).first; i <= variant.op; ++i) {
    DOPPLER_ASSIGN(Dispatches some, make(Variant{.op = i}));
    std::ranges::move(some, std::back_inserter(out));
  }
  if (!makes_blocks_apart(variant.op)) return {};
  const ValueView& x = view(op_at(variant.op).outputs[0]);
  return add(quantise_kernel(x, ceil_div(x.width, kUnitValues), program_.x8_, program_.xs_),
             Dispatch::Per::kToken, out);
}

// Whether the product behind an attention of several sequences reads 8-bit blocks.
bool BatchBuilder::makes_blocks_apart(std::size_t attention) const {
  return attention + 1 < context_.plan.ops.size() && program_.can_be_apart_[attention + 1];
}

Status BatchBuilder::attend_in_splits(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  const auto& a = std::get<AttentionParams>(op.params);
  const OpGroup& group = program_.attentions_.at(variant.op);
  const KvBuffers& kv = context_.kv[a.cache_of(op.layer)];
  const std::uint32_t splits = most_splits(a), workgroups = workgroups_for(a, variant.rows);
  DOPPLER_TRY(make_room_for_splits(a, variant.rows, splits));
  DOPPLER_ASSIGN(ShaderValues values, split_attention_shape(context_, a, Company::kSeveral));
  add_cache(context_, op, values);
  add_scores(op, values);
  values.erase("SINKS");  // count when the splits are put together
  const auto heads = static_cast<std::uint32_t>(values["HEADS_EACH"]);
  values["MOST_SPLITS"] = splits;
  values["WORKGROUPS"] = workgroups;
  values["MANY"] = 1;
  values["EMIT_ROPE"] = 0;
  values["EMIT_NORM"] = 0;
  std::vector<Bound> buffers = {{"step", context_.step},
                                {"keys", kv.keys},
                                {"values", kv.values},
                                {"parts", program_.split_parts_},
                                {"marks", program_.split_marks_}};
  DOPPLER_TRY(heads_apart(group, values, buffers, out));
  DOPPLER_TRY(add_turns(context_, group, values, buffers));
  const auto attend = [&](std::uint32_t x) -> Status {
    DOPPLER_ASSIGN(Dispatch made,
                   make("attention_decode.wgsl", values, buffers, x, Dispatch::Per::kTokenLast));
    made.z = a.heads / heads;
    out.push_back(std::move(made));
    return {};
  };
  if (variant.in_line) {
    values["ATTEND"] = 0;
    DOPPLER_TRY(attend(1));
    values["ATTEND"] = 1;
    values["APPEND"] = 0;
  }
  DOPPLER_TRY(attend(workgroups));
  return combine_apart(variant, out);
}

Status BatchBuilder::make_room_for_splits(const AttentionParams& a, std::uint64_t tokens,
                                          std::uint64_t splits) {
  const std::uint64_t parts = tokens * splits * split_bytes(a, *context_.options.kv_type),
                      marks = tokens * splits * a.heads * 8;
  // Kernels made before keep the buffers that they are bound to.
  if (program_.split_parts_.bytes() < parts) {
    DOPPLER_ASSIGN(program_.split_parts_, device().make_buffer("parts", parts));
  }
  if (program_.split_marks_.bytes() < marks) {
    DOPPLER_ASSIGN(program_.split_marks_, device().make_buffer("marks", marks));
  }
  return {};
}

Status BatchBuilder::combine_apart(const Variant& variant, Dispatches& out) {
  const Op& op = op_at(variant.op);
  const bool blocks = makes_blocks_apart(variant.op);
  const bool floats = read_as(context_, op.outputs[0]).floats || !blocks;
  return combine(op, nullptr, {.floats = floats, .blocks = blocks}, out);
}

Status BatchBuilder::combine(const Op& op, const PromptParts* prompt, const Combined& made_as,
                             Dispatches& out) {
  const auto [floats, blocks, wide] = made_as;
  const auto& a = std::get<AttentionParams>(op.params);
  const ValueView& y = view(op.outputs[0]);
  const std::uint32_t width = a.heads * a.head_dim, units = ceil_div(width, kUnitValues);
  const std::uint32_t parts = ceil_div(prompt != nullptr ? prompt->places : most_splits(a), kSplitsAtOnce);
  ShaderValues values = {
      {"THREADS", kCombineThreads}, {"PARTS", parts}, {"FLOATS", floats ? 1 : 0}, {"BLOCKS", blocks ? 1 : 0}};
  add_splits(context_, op, values);
  if (prompt != nullptr) {
    values["PARTED"] = 1;
    values["PART"] = prompt->part;
    values["MOST_SPLITS"] = prompt->places;
  }
  std::vector<Bound> buffers = {
      {"step", context_.step}, {"parts", program_.split_parts_}, {"marks", program_.split_marks_}};
  if (floats) {
    add_view(values, "OUT", y);
    buffers.push_back({"out", y.buffer});
  }
  if (blocks) {
    values["UNITS_K"] = units;
    if (wide) values["WIDE"] = 1;
    buffers.push_back({"out8", program_.x8_});
    buffers.push_back({"outs", program_.xs_});
  }
  DOPPLER_TRY(bind_sinks(context_, op, buffers));
  const std::uint32_t vectors = blocks ? units * (kUnitValues / 4) : width / 4;
  DOPPLER_ASSIGN(Dispatch made, make("attention_combine.wgsl", values, buffers,
                                     ceil_div(vectors, kCombineThreads / parts), Dispatch::Per::kToken));
  out.push_back(std::move(made));
  return {};
}

}  // namespace doppler::gpu
