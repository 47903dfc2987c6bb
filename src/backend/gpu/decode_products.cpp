// The products of a DecodeProgram, with what their kernels do before and after: norms of sums, attention's
// splits put together, activations, the head.
#include <algorithm>
#include <array>

#include "backend/gpu/batch_groups.h"
#include "backend/gpu/decode_builder.h"
#include "backend/gpu/shader_values.h"
#include "backend/gpu/split_attention.h"

namespace doppler::gpu {
namespace {

// Workgroups of the head, each with many tiles of rows: two for each processor of a large GPU. More only
// repeat the prologue, fewer leave processors idle. Three of what takes more instructions than loads (H200,
// Llama 3.2 1B in BF16: 102 us; 107 with two, 104 with four).
constexpr std::uint32_t head_groups_of(const WeightFormat& format) {
  constexpr std::uint32_t kProcessors = 132;
  return (format.codes == CodeForm::kBF16In13 ? 3 : 2) * kProcessors;
}

// GemvSite::kind, by prologue: of products alone, and of gate and up.
constexpr struct {
  std::string_view plain, gated;
} kKinds[] = {{"down", "gate_up_given"}, {"qkv", "gate_up"}, {"output", ""}};

GemvSite site_of(std::string_view kind, const GpuMatrix& matrix, const Shard& shard, std::uint32_t rows) {
  GemvSite site;
  site.kind = kind;
  site.file = "gemv.wgsl";
  site.format = matrix.format;
  site.rows = rows;
  site.units = matrix.units;
  site.bytes = shard.codes.bytes() + shard.scales.bytes();
  return site;
}

}  // namespace

Status DecodeBuilder::product(const OpGroup& group) {
  const Op& op = *group.op(plan(), Part::kProduct);
  const bool normed = group.has(Part::kNorm);
  if (normed) DOPPLER_TRY(place_sum(group));
  if (!group.has(Part::kGated)) DOPPLER_TRY(place(op.outputs, read_by(group)));
  return multiply(op, normed ? Prologue::kNorm : Prologue::kNone, group);
}

// One kernel for each of the op's matrices. Of several with the same prologue the first stores the sum and
// the stages that a tap wants, so that these fit together: the others may be of another shape, and so round
// otherwise.
Status DecodeBuilder::multiply(const Op& op, Prologue prologue, const OpGroup& group) {
  const bool gated = group.has(Part::kGated);
  DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(op));
  if (gated && (placed.size() != 1 || placed[0].matrix->shards.size() != 1))
    return fail(ErrorCode::kUnsupported, "gate and up differ in type or are too large for a binding");
  const auto& kinds = kKinds[static_cast<std::size_t>(prologue)];
  std::size_t products = 0;
  for (const PlacedMatrix& part : placed) products += part.matrix->shards.size();
  for (const PlacedMatrix& part : placed) {
    const GpuMatrix& matrix = *part.matrix;
    for (const Shard& shard : matrix.shards) {
      const std::uint32_t rows = gated ? shard.rows / 2 : shard.rows;
      GemvSite site = site_of(gated ? kinds.gated : kinds.plain, matrix, shard, rows);
      site.gated = gated;
      DOPPLER_ASSIGN(site.shape, shape_of(matrix, rows, gated, prologue, true));
      ShaderValues values = gemv_values(matrix, rows);
      values["PRO"] = static_cast<std::int64_t>(prologue);
      std::vector<Bound> buffers;
      bind_shard(buffers, matrix, shard);
      bind_bias(part, shard, values, buffers);
      const bool stores = part.first_row + shard.first_row == 0;
      if (prologue == Prologue::kNorm) {
        DOPPLER_TRY(add_norm(group, stores, values, buffers));
      } else if (prologue == Prologue::kCombine) {
        DOPPLER_TRY(add_combine(group, stores, values, buffers));
      } else {
        DOPPLER_TRY(add_given(op.inputs[0], matrix, values, buffers));
      }
      if (gated) {
        DOPPLER_TRY(add_gate(group, site, values, buffers));
      } else {
        const ValueView& out = values_[op.outputs[0]];
        values["EPI"] = 0;
        values["OUT_OFFSET"] = out.offset + part.first_row + shard.first_row;
        buffers.push_back(out.bound("out"));
      }
      const std::vector<std::size_t> before =
          stores ? sites_that_hand_over(group) : std::vector<std::size_t>();
      DOPPLER_TRY(add_site(std::move(site), std::move(values), std::move(buffers), program_.body_));
      if (!before.empty()) DOPPLER_TRY(add_pairs(before, branch_of(group), products - 1));
      const std::size_t last = program_.sites_.size() - 1;
      if (!stores && !gated) program_.besides_.push_back({last - 1, last});
    }
  }
  return {};
}

// What the group adds to the residual stream before its norm.
ValueId DecodeBuilder::branch_of(const OpGroup& group) const {
  const Op *add = group.op(plan(), Part::kAdd), *post = group.op(plan(), Part::kPostNorm);
  return post != nullptr ? post->inputs[0] : add->inputs[1];
}

// Pairs of each of these sites and the last one, which adds their result. What is handed over is in an order
// of its own (joined.wgsl), so the second keeps it as it should be where others read it.
Status DecodeBuilder::add_pairs(const std::vector<std::size_t>& firsts, ValueId branch, std::size_t others) {
  Bound handed = values_[branch].bound("handed");
  const bool keeps = wants(branch);
  if (keeps || others > 0) {
    DOPPLER_ASSIGN(handed.buffer, context_.device->make_buffer("handed", handed.bytes));
    handed.offset = 0;
  }
  for (const std::size_t first : firsts)
    program_.pairs_.push_back({first, program_.sites_.size() - 1, handed, keeps, others});
  return {};
}

// The sites, just before, whose whole result is the branch that this group's norm adds, if no other kernel
// reads it: one, or two that take turns by position.
std::vector<std::size_t> DecodeBuilder::sites_that_hand_over(const OpGroup& group) const {
  if (!group.has(Part::kNorm) || group.op(plan(), Part::kAdd) == nullptr) return {};
  const ValueId branch = branch_of(group);
  if (!readers_.are_within(branch, group) || !values_.has(branch)) return {};
  const ValueView& view = values_[branch];
  const std::size_t end = program_.body_.size();
  const auto ends_before = [&](std::size_t index) {
    if (!program_.by_position_.empty() && program_.by_position_.back().end == end)
      return index + 1 == program_.by_position_.back().middle || index + 1 == end;
    return index + 1 == end;
  };
  std::vector<std::size_t> sites;
  for (std::size_t i = 0; i < program_.sites_.size(); ++i) {
    const GemvSite& site = program_.sites_[i];
    if (site.where != GemvSite::Where::kBody || !ends_before(site.index) || site.gated) continue;
    const auto out = std::ranges::find(site.buffers, std::string_view("out"), &Bound::name);
    const bool gives = out != site.buffers.end() && out->buffer.raw() == view.buffer.raw() &&
                       out->offset == view.begin && out->bytes == view.bytes && view.offset == 0 &&
                       site.values.at("OUT_OFFSET") == 0 && site.rows == view.width;
    const bool emits = site.values.contains("EMIT_PARTS") && site.values.at("EMIT_PARTS") != 0;
    if (gives && !emits) sites.push_back(i);
  }
  const bool take_turns = !program_.by_position_.empty() && program_.by_position_.back().end == end;
  if (sites.size() != (take_turns ? 2 : 1)) return {};
  return sites;
}

// --- what comes before

// Memory for the values that norm_prologue.wgsl stores.
Status DecodeBuilder::place_sum(const OpGroup& group) {
  const Op *post = group.op(plan(), Part::kPostNorm), *add = group.op(plan(), Part::kAdd),
           *select = group.op(plan(), Part::kSelect), *norm = group.op(plan(), Part::kNorm);
  const std::vector<ValueId> read = read_by(group);
  if (add != nullptr) DOPPLER_TRY(place(add->outputs, read));
  if (select != nullptr) values_.set(select->outputs[0], values_[select->inputs[0]]);
  if (post != nullptr && is_stored(post->outputs[0], group)) DOPPLER_TRY(place(post->outputs, read));
  if (is_stored(norm->outputs[0], group)) DOPPLER_TRY(place(norm->outputs, read));
  return {};
}

// Values and buffers of norm_prologue.wgsl, which adds the branch to the residual stream.
Status DecodeBuilder::add_norm(const OpGroup& group, bool stores, ShaderValues& values,
                               std::vector<Bound>& buffers) {
  const Op *post = group.op(plan(), Part::kPostNorm), *add = group.op(plan(), Part::kAdd),
           *select = group.op(plan(), Part::kSelect), &norm = *group.op(plan(), Part::kNorm);
  const bool emits_normed = stores && is_stored(norm.outputs[0], group);
  const bool emits_post = stores && post != nullptr && is_stored(post->outputs[0], group);
  values["WIDTH"] = info(norm.outputs[0]).width;
  values["EPS_BITS"] = float_bits(std::get<NormParams>(norm.params).eps);
  // Rows are chosen between the sum and the last norm, so that the batch program has two kernels there.
  if (select != nullptr) values["EXPANDED"] = 0;
  values["ADD"] = add != nullptr ? 1 : 0;
  values["POST"] = post != nullptr ? 1 : 0;
  values["CARRY"] = add != nullptr && stores ? 1 : 0;
  values["EMIT_NORMED"] = emits_normed ? 1 : 0;
  values["EMIT_POST"] = emits_post ? 1 : 0;
  const Op* experts = stores ? experts_that_read_blocks(norm.outputs[0]) : nullptr;
  values["EMIT_BLOCKS"] = experts != nullptr ? 1 : 0;
  if (experts != nullptr) {
    DOPPLER_ASSIGN(Blocks * blocks, free_blocks(std::nullopt));
    blocks->of = norm.outputs[0];
    buffers.push_back({"normed8", blocks->codes});
    buffers.push_back({"normed_scales", blocks->scales});
  }
  const auto bind = [&](std::string_view name, ValueId id) -> Status {
    DOPPLER_ASSIGN(Bound bound, whole(name, id));
    buffers.push_back(std::move(bound));
    return {};
  };
  DOPPLER_TRY(bind("residual", add != nullptr ? add->inputs[0] : norm.inputs[0]));
  if (add != nullptr) DOPPLER_TRY(bind("branch", post != nullptr ? post->inputs[0] : add->inputs[1]));
  if (add != nullptr && stores) DOPPLER_TRY(bind("carried", add->outputs[0]));
  if (emits_normed) DOPPLER_TRY(bind("normed_out", norm.outputs[0]));
  if (emits_post) DOPPLER_TRY(bind("post_out", post->outputs[0]));
  DOPPLER_ASSIGN(const Buffer weights, context_.norm_weights(norm, post));
  buffers.push_back({"norm_weights", weights});
  return {};
}

// Those of combine_prologue.wgsl, which puts the splits of an attention together.
Status DecodeBuilder::add_combine(const OpGroup& group, bool stores, ShaderValues& values,
                                  std::vector<Bound>& buffers) {
  const Op& attention = *group.op(plan(), Part::kAttention);
  const bool emits = stores && is_stored(attention.outputs[0], group);
  add_splits(context_, attention, values);
  values["EMIT_ATTN"] = emits ? 1 : 0;
  buffers.push_back({"step", context_.step});
  buffers.push_back({"parts", parts_});
  buffers.push_back({"marks", marks_});
  DOPPLER_TRY(bind_sinks(context_, attention, buffers));
  if (emits) buffers.push_back(values_[attention.outputs[0]].bound("attn_out"));
  return {};
}

// A value as it lies in memory, or its blocks.
Status DecodeBuilder::add_given(ValueId x, const GpuMatrix& matrix, ShaderValues& values,
                                std::vector<Bound>& buffers) {
  if (context_.eight_bits(matrix)) {
    DOPPLER_ASSIGN(const Blocks* blocks, blocks_of(x));
    buffers.push_back({"x8", blocks->codes});
    buffers.push_back({"xs", blocks->scales});
    return {};
  }
  const ValueView& view = values_[x];
  const bool padded = values_.is_padded(x);
  values["X_VEC"] = padded || has_vectors(view) ? 1 : 0;
  values["WIDTH"] = padded ? matrix.units * kUnitValues : view.width;
  add_view(values, "X", view);
  buffers.push_back(view.bound("x"));
  return {};
}

// A value that a kernel loads four floats at a time from where the binding begins.
Result<Bound> DecodeBuilder::whole(std::string_view name, ValueId id) const {
  const ValueView& view = values_[id];
  const std::uint64_t begin = view.begin + std::uint64_t{view.offset} * 4;
  if (begin % context_.device->limits().binding_alignment != 0) {
    return fail(ErrorCode::kUnsupported, "{} begins at byte {}, but the GPU binds multiples of {}",
                value_name(plan(), id), begin, context_.device->limits().binding_alignment);
  }
  return Bound{name, view.buffer, begin, view.bytes == 0 ? 0 : view.begin + view.bytes - begin};
}

// --- what comes after

// activation(gate) * up. A workgroup that has whole blocks of 32 results quantises them itself.
Status DecodeBuilder::add_gate(const OpGroup& group, GemvSite& site, ShaderValues& values,
                               std::vector<Bound>& buffers) {
  const Op &product = *group.op(plan(), Part::kProduct), &gated = *group.op(plan(), Part::kGated);
  const ValueId gate = product.outputs[0], up = product.outputs[1], act = gated.outputs[0];
  const ReadAs read = read_as(context_, act);
  site.quantises = read.blocks && site.shape.rows % 32 == 0;
  const bool emits_parts = is_stored(gate, group) || is_stored(up, group);
  const bool emits_act = site.quantises && (read.floats || wants(act));
  const std::vector<ValueId> inputs = read_by(group);
  values["EPI"] = 1;
  values["ACTIVATION"] = static_cast<std::int64_t>(std::get<GatedParams>(gated.params).activation);
  values["QUANTISE_OUT"] = site.quantises ? 1 : 0;
  values["EMIT_PARTS"] = emits_parts ? 1 : 0;
  values["EMIT_ACT"] = emits_act ? 1 : 0;
  if (emits_act || !site.quantises) DOPPLER_TRY(values_.place(gated.outputs, inputs));
  if (site.quantises) {
    values["OUT_UNITS"] = ceil_div(site.rows, kUnitValues);
    values.erase("OUT_STRIDE");
    DOPPLER_ASSIGN(Blocks * blocks, free_blocks(product.inputs[0]));
    blocks->of = act;
    buffers.push_back({"out8", blocks->codes});
    buffers.push_back({"outs", blocks->scales});
  } else {
    values["OUT_OFFSET"] = 0;
    buffers.push_back(values_[act].bound("out"));
  }
  if (emits_parts) {
    for (const auto& [name, id] : {std::pair("gate_out", gate), std::pair("up_out", up)}) {
      DOPPLER_TRY(values_.place(std::array{id}, inputs));
      buffers.push_back(values_[id].bound(name));
    }
  }
  if (emits_act) buffers.push_back(values_[act].bound("act_out"));
  return {};
}

// --- the head

Status DecodeBuilder::head(const OpGroup& group) {
  const Op &product = *group.op(plan(), Part::kProduct), &softcap = *group.op(plan(), Part::kSoftcap);
  DOPPLER_TRY(place_sum(group));
  DOPPLER_TRY(place(softcap.outputs, {}));
  if (is_stored(product.outputs[0], group)) DOPPLER_TRY(place(product.outputs, read_by(group)));
  DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(product));
  const GpuMatrix& matrix = *placed[0].matrix;
  DOPPLER_TRY(
      make_candidates(static_cast<std::uint32_t>(matrix.shards.size()) * DecodeProgram::kMostHeadGroups));
  DOPPLER_TRY(head(group, matrix, GemvSite::Where::kLogitsHead));
  return head(group, matrix, GemvSite::Where::kGreedyHead);
}

// One dispatch per shard of the head.
Status DecodeBuilder::head(const OpGroup& group, const GpuMatrix& matrix, GemvSite::Where where) {
  const Op &product = *group.op(plan(), Part::kProduct), &softcap = *group.op(plan(), Part::kSoftcap);
  const bool is_logits = where == GemvSite::Where::kLogitsHead;
  const bool stores = is_logits || wants(softcap.outputs[0]);
  const bool emits = is_stored(product.outputs[0], group);
  const double cap = std::get<SoftcapParams>(softcap.params).cap;
  for (std::size_t i = 0; i < matrix.shards.size(); ++i) {
    const Shard& shard = matrix.shards[i];
    GemvSite site = site_of("head", matrix, shard, shard.rows);
    site.file = "head.wgsl";
    site.where = where;
    DOPPLER_ASSIGN(site.shape, shape_of(matrix, shard.rows, false, Prologue::kNorm, false));
    site.head_groups = head_groups_of(matrix.format);
    ShaderValues values = {{"STORE_LOGITS", stores ? 1 : 0},
                           {"GREEDY", is_logits ? 0 : 1},
                           {"ACT", context_.eight_bits(matrix) ? 1 : 0},
                           {"ROWS", shard.rows},
                           {"ROW0", shard.first_row},
                           {"EMIT_RAW", emits ? 1 : 0}};
    add_format(values, matrix);
    values["SOFTCAP"] = cap > 0 ? 1 : 0;
    if (cap > 0) values["SOFTCAP_BITS"] = float_bits(cap);
    std::vector<Bound> buffers;
    bind_shard(buffers, matrix, shard);
    DOPPLER_TRY(add_norm(group, i == 0, values, buffers));
    if (!is_logits) {
      values["CANDIDATE0"] = 0;  // until DecodeProgram::connect_heads()
      values["PAD_WORD"] = StepLayout::kPad;
      buffers.push_back({"candidates", candidates_});
      buffers.push_back({"step", context_.step});
    }
    if (stores) buffers.push_back({"logits", program_.logits_});
    if (emits) buffers.push_back(values_[product.outputs[0]].bound("raw_logits"));
    DOPPLER_TRY(add_site(std::move(site), std::move(values), std::move(buffers),
                         is_logits ? program_.head_logits_ : program_.head_greedy_));
  }
  return {};
}

// --- shapes

ShaderValues DecodeBuilder::gemv_values(const GpuMatrix& matrix, std::uint32_t rows) const {
  ShaderValues values = {{"ROWS", rows},
                         {"ACT", context_.eight_bits(matrix) ? 1 : 0},
                         {"OUT_STRIDE", 0},
                         {"EMIT_PARTS", 0},
                         {"EMIT_ACT", 0}};
  add_format(values, matrix);
  return values;
}

Result<GemvShape> DecodeBuilder::shape_of(const GpuMatrix& matrix, std::uint32_t rows, bool gated,
                                          Prologue prologue, bool in_rounds) {
  const auto shapes = best_fused_shapes(device(), matrix.format, rows, matrix.units, gated, false, in_rounds,
                                        context_.shape_rank + 1);
  const GemvShape shape = shapes.empty() ? GemvShape() : shapes.back();
  if (shape.rows != 0) return shape;
  // Without a prologue workgroups need not be whole subgroups.
  if (prologue == Prologue::kNone && !gated)
    return choose_gemv_shape(device().limits(), matrix.format, rows, matrix.units);
  return fail(ErrorCode::kUnsupported, "{} x {} weights fit no workgroup", rows, matrix.cols);
}

Status DecodeBuilder::add_site(GemvSite site, ShaderValues values, std::vector<Bound> buffers,
                               std::vector<FixedDispatch>& dispatches) {
  site.values = std::move(values);
  site.buffers = std::move(buffers);
  site.index = dispatches.size();
  // The shape that was measured to be fastest for the same kind and size.
  if (const auto tuned = context_.tuned.find(site.key()); tuned != context_.tuned.end()) {
    site.shape = tuned->second.shape;
    if (site.head_groups != 0) site.head_groups = tuned->second.head_groups;
  }
  DOPPLER_ASSIGN(FixedDispatch made, DecodeProgram::shaped(context_, site, site.shape, site.head_groups));
  dispatches.push_back(std::move(made));
  program_.sites_.push_back(std::move(site));
  return {};
}

}  // namespace doppler::gpu
