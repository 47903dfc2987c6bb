// Attention of a DecodeProgram: norms and turns of q and k, the cache's new row, and the sequence in splits,
// which the output product puts together.
#include <algorithm>
#include <array>

#include "backend/gpu/decode_builder.h"
#include "backend/gpu/shader_values.h"
#include "backend/gpu/split_attention.h"

namespace doppler::gpu {

Status DecodeBuilder::attention(const OpGroup& group) {
  const Op &op = *group.op(plan(), Part::kAttention), *output = group.op(plan(), Part::kOutput);
  const auto& a = std::get<AttentionParams>(op.params);
  const KvBuffers& kv = context_.kv[a.cache_of(op.layer)];
  DOPPLER_ASSIGN(ShaderValues values, split_attention_shape(context_, a, Company::kAlone));
  add_cache(context_, op, values);
  add_scores(op, values);
  values.erase("SINKS");  // count when the splits are put together
  values["MOST_SPLITS"] = most_splits(a);
  values["MANY"] = 0;
  if (kv.paged) values["ALONE_ROW"] = context_.layout.alone_row();
  const auto heads = static_cast<std::uint32_t>(values["HEADS_EACH"]);
  std::vector<Bound> buffers = {{"step", context_.step},
                                {"keys", kv.keys},
                                {"values", kv.values},
                                {"parts", parts_},
                                {"marks", marks_}};
  DOPPLER_TRY(add_heads(group, values, buffers));
  DOPPLER_TRY(add_turns(context_, group, values, buffers));
  DOPPLER_TRY(add_looked(group, values, buffers));
  DOPPLER_TRY(add("attention_decode.wgsl", values, buffers, {most_splits(a), a.heads / heads, 1}));
  program_.body_.back().positions_each = kSplitPositions;
  const std::vector<ValueId> read = read_by(group);
  const bool is_looked_at = output == nullptr || is_stored(op.outputs[0], group);
  const std::uint32_t from = output != nullptr ? many_splits_from(a) : 0;
  const bool alone = from < context_.options.context;
  bool blocks = alone && output != nullptr;
  if (blocks) {
    DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(*output));
    blocks =
        std::ranges::all_of(placed, [&](const PlacedMatrix& p) { return context_.eight_bits(*p.matrix); });
  }
  const bool floats = is_looked_at || (alone && !blocks);
  if (floats) DOPPLER_TRY(place(op.outputs, read));
  if (output == nullptr) return combine(op, floats, nullptr);
  DOPPLER_TRY(place(output->outputs, read));
  const std::size_t few = program_.body_.size();
  DOPPLER_TRY(multiply(*output, Prologue::kCombine, group));
  if (!alone) return {};
  const std::size_t many = program_.body_.size();
  Blocks* made = nullptr;
  if (blocks) {
    DOPPLER_ASSIGN(made, free_blocks(std::nullopt));
    made->of = op.outputs[0];
  }
  DOPPLER_TRY(combine(op, floats, made));
  DOPPLER_TRY(multiply(*output, Prologue::kNone, group));
  // Below that position nobody has made them.
  for (Blocks& each : blocks_) {
    if (each.of == op.outputs[0]) each.of.reset();
  }
  program_.by_position_.push_back({few, many, program_.body_.size(), from});
  return {};
}

// The first position at which an attention leaves so much that its splits are put together once, by a kernel
// of their own, and not by each workgroup of the product behind; UINT32_MAX: none.
std::uint32_t DecodeBuilder::many_splits_from(const AttentionParams& a) const {
  const std::uint64_t few = std::max<std::uint64_t>(
      context_.options.gpu_setup.most_split_bytes / split_bytes(a, *context_.options.kv_type), 1);
  const std::uint64_t most =
      a.window != 0 ? std::min(most_splits(a), ceil_div(a.window, kSplitPositions)) : most_splits(a);
  return few < most ? static_cast<std::uint32_t>(few * kSplitPositions) : UINT32_MAX;
}

// Puts an attention's splits together in a kernel of its own: as floats, if they are placed, and in blocks.
Status DecodeBuilder::combine(const Op& op, bool floats, const Blocks* blocks) {
  const auto& a = std::get<AttentionParams>(op.params);
  const std::uint32_t parts = ceil_div(most_splits(a), kSplitsAtOnce);
  std::uint32_t vectors = a.heads * a.head_dim / 4;
  ShaderValues values = {{"THREADS", kCombineThreads},
                         {"PARTS", parts},
                         {"FLOATS", floats ? 1 : 0},
                         {"BLOCKS", blocks != nullptr ? 1 : 0}};
  add_splits(context_, op, values);
  std::vector<Bound> buffers = {{"step", context_.step}, {"parts", parts_}, {"marks", marks_}};
  if (floats) {
    values["OUT_STRIDE"] = a.heads * a.head_dim;
    values["OUT_OFFSET"] = 0;
    buffers.push_back(values_[op.outputs[0]].bound("out"));
  }
  if (blocks != nullptr) {
    const std::uint32_t units = ceil_div(a.heads * a.head_dim, kUnitValues);
    values["UNITS_K"] = units;
    vectors = units * (kUnitValues / 4);
    buffers.push_back({"out8", blocks->codes});
    buffers.push_back({"outs", blocks->scales});
  }
  DOPPLER_TRY(bind_sinks(context_, op, buffers));
  return add("attention_combine.wgsl", values, buffers, {ceil_div(vectors, kCombineThreads / parts), 1, 1});
}

// q, k and v as parts of one row: as one product leaves them, or else copied.
Status DecodeBuilder::add_heads(const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers) {
  const auto [q, k, v] = heads_of(plan(), group);
  const std::array<ValueView, 3> views = {values_[q], values_[k], values_[v]};
  std::array<std::uint32_t, 3> offsets = {views[0].offset, views[1].offset, views[2].offset};
  const bool together = std::ranges::all_of(views, [&](const ValueView& view) {
    return view.buffer.raw() == views[0].buffer.raw() && view.begin == views[0].begin && view.offset % 4 == 0;
  });
  if (together) {
    buffers.push_back(views[0].bound("qkv"));
  } else {
    std::uint32_t offset = 0;
    for (std::size_t i = 0; i < views.size(); ++i) {
      const ValueView to = {.buffer = heads_, .offset = offset, .width = views[i].width};
      DOPPLER_TRY(add(copy_kernel(views[i], to)));
      offsets[i] = offset;
      offset += views[i].width;
    }
    buffers.push_back({"qkv", heads_});
  }
  values["Q_OFFSET"] = offsets[0];
  values["K_OFFSET"] = offsets[1];
  values["V_OFFSET"] = offsets[2];
  return {};
}

// q_rope, k_rope, q_norm, k_norm, which are nowhere else: the kernel stores them side by side.
Status DecodeBuilder::add_looked(const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers) {
  std::vector<ValueId> turned, normed;
  for (const Part part : {Part::kQRope, Part::kKRope}) {
    if (const Op* op = group.op(plan(), part)) turned.push_back(op->outputs[0]);
  }
  for (const Part part : {Part::kQNorm, Part::kKNorm}) {
    if (const Op* op = group.op(plan(), part)) normed.push_back(op->outputs[0]);
  }
  const auto wanted = [&](const std::vector<ValueId>& ids) {
    return std::ranges::any_of(ids, [&](ValueId id) { return wants(id); });
  };
  const bool emits_turned = wanted(turned), emits_normed = wanted(normed);
  values["EMIT_ROPE"] = emits_turned ? 1 : 0;
  values["EMIT_NORM"] = emits_normed ? 1 : 0;
  if (!emits_turned && !emits_normed) return {};
  // Where nothing turns, the first half stays empty; the attention's own inputs are as wide.
  std::vector<ValueId> all = turned.empty() ? normed : turned;
  all.insert(all.end(), normed.begin(), normed.end());
  DOPPLER_TRY(values_.place(all, read_by(group)));
  buffers.push_back(values_[all[0]].bound("looked"));
  return {};
}

}  // namespace doppler::gpu
