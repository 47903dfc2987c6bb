// Makes a DecodeProgram from a plan: buffers, kernels and bindings, op by op in the order of a token.
#include <algorithm>
#include <map>
#include <set>

#include "backend/gpu/decode_ops.h"
#include "backend/gpu/decode_program.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Workgroups of the head, each with many tiles of rows: two for each processor of a large GPU. More only
// repeat the prologue, fewer leave processors idle.
constexpr std::uint32_t kHeadGroups = 264;

constexpr std::uint32_t kMostSplits = 32;  // of a sequence, in attention

// Slices of a buffer begin where bindings may, on any device.
constexpr std::uint64_t kAlign = 256;

}  // namespace

class DecodeBuilder {
 public:
  DecodeBuilder(Context& context, DecodeProgram& program, const Looks& looks)
      : context_(context), program_(program), looks_(looks) {
    for (const Look& look : looks) wanted_.insert({look.stage, look.layer});
  }

  Status build() {
    DOPPLER_TRY(check_device());
    DOPPLER_ASSIGN(const DecoderOps ops, read_plan(context_.plan));
    DOPPLER_TRY(make_buffers(ops));
    DOPPLER_TRY(embed(*ops.embed));
    for (const LayerOps& layer : ops.layers) DOPPLER_TRY(add_layer(layer));
    DOPPLER_TRY(head(ops, GemvSite::Where::kLogitsHead));
    DOPPLER_TRY(head(ops, GemvSite::Where::kGreedyHead));
    DOPPLER_TRY(next_tokens());
    return make_taps();
  }

 private:
  // Parts of one buffer, all of one size.
  struct Slices {
    Buffer buffer;
    std::uint64_t stride = 0;  // bytes
  };

  Device& device() { return *context_.device; }
  const Value& info(ValueId id) const { return context_.plan.values[id]; }
  bool wants(Stage stage, int layer) const { return wanted_.contains({stage, layer}); }
  bool wants(ValueId id) const { return wants(info(id).stage, info(id).layer); }
  std::uint32_t hidden() const { return info(context_.plan.ops[0].outputs[0]).width; }

  Status check_device() const {
    const Features& features = context_.device->features();
    if (!features.subgroups || features.subgroup_size < 8)
      return fail(ErrorCode::kUnsupported, "the GPU has no subgroups of 8 or more");
    return {};
  }

  Result<FixedDispatch> make(std::string_view file, const ShaderValues& values,
                             const std::vector<Bound>& buffers, Workgroups groups) {
    DOPPLER_ASSIGN(auto kernel, context_.kernels.get(file, values));
    DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(device(), std::move(kernel), buffers));
    return FixedDispatch{std::move(bound), groups};
  }

  Status make_buffers(const DecoderOps& ops) {
    std::uint32_t qkv = 0, ffn = 0, heads_dim = 0, heads = 0;
    for (const LayerOps& l : ops.layers) {
      std::uint32_t width = 0;
      for (const ValueId id : l.qkv->outputs) width += info(id).width;
      qkv = std::max(qkv, width);
      ffn = std::max(ffn, info(l.gated->outputs[0]).width);
      const auto& a = std::get<AttentionParams>(l.attention->params);
      heads_dim = std::max(heads_dim, a.heads * a.head_dim);
      heads = std::max(heads, a.heads);
    }
    const std::size_t layers = ops.layers.size();
    // The stream after each sum, odd and even ones apart: a kernel reads one and writes the next.
    for (Slices& slices : stream_) {
      DOPPLER_ASSIGN(slices, make_slices("stream", row_bytes(), layers + 1));
    }
    DOPPLER_ASSIGN(o_, make_slices("o", row_bytes(), layers));
    DOPPLER_ASSIGN(down_, make_slices("down", row_bytes(), layers));
    DOPPLER_ASSIGN(qkv_, make_slices("qkv", std::uint64_t{qkv} * 4, layers));
    DOPPLER_ASSIGN(parts_, device().make_buffer("parts", std::uint64_t{heads_dim} * kMostSplits * 4));
    DOPPLER_ASSIGN(marks_, device().make_buffer("marks", std::uint64_t{heads} * kMostSplits * 8));
    const std::uint64_t padded = (std::uint64_t{ffn} + kUnitValues - 1) / kUnitValues * kUnitValues;
    // What lies beyond the width stays zero: nothing writes it.
    const auto zero = [](std::span<std::byte>) {};
    DOPPLER_ASSIGN(act_, device().make_filled("act", padded * 4, zero));
    DOPPLER_ASSIGN(act8_, device().make_filled("act8", padded, zero));
    DOPPLER_ASSIGN(acts_, device().make_filled("acts", padded / 32 * 8, zero));
    const std::uint64_t vocab = context_.plan.vocab_size;
    DOPPLER_ASSIGN(program_.logits_, device().make_buffer("logits", vocab * 4));
    DOPPLER_ASSIGN(program_.chosen_, device().make_buffer("chosen", 4));
    DOPPLER_ASSIGN(program_.ring_, device().make_buffer("ring", DecodeProgram::kRing * 4));
    return {};
  }

  std::uint64_t row_bytes() const { return std::uint64_t{hidden()} * 4; }

  Result<Slices> make_slices(std::string_view label, std::uint64_t bytes, std::size_t count) {
    Slices slices;
    slices.stride = (bytes + kAlign - 1) / kAlign * kAlign;
    DOPPLER_ASSIGN(slices.buffer,
                   device().make_buffer(label, slices.stride * std::max<std::size_t>(count, 1)));
    return slices;
  }

  static Bound slice(std::string_view name, const Slices& slices, std::size_t index, std::uint64_t bytes) {
    return {name, slices.buffer, slices.stride * index, bytes};
  }

  // The stream after `at` sums.
  Bound stream(std::string_view name, std::size_t at) const {
    return slice(name, stream_[at % 2], at / 2, row_bytes());
  }

  // A stage that lies in memory anyway, or in a part of `bound` that begins at float `first`.
  void keep(ValueId id, const Bound& bound, std::uint64_t first = 0) {
    const Value& v = info(id);
    keep(v.stage, v.layer, bound, first, v.width);
  }
  void keep(Stage stage, int layer, const Bound& bound, std::uint64_t first, std::uint32_t width) {
    if (!wants(stage, layer)) return;
    views_[{stage, layer}] = {bound.buffer, 0, static_cast<std::uint32_t>(bound.offset / 4 + first), width};
  }

  // Adds room for `floats` that an emitting kernel stores under the binding `name`: a stage's layers lie side
  // by side, so that one copy takes them all.
  Status emit(std::string_view name, std::string_view stage, std::size_t layer, std::uint64_t floats,
              std::vector<Bound>& buffers) {
    Slices& slices = emitted_[fmt::format("{} {}", stage, floats)];
    if (!slices.buffer) {
      DOPPLER_ASSIGN(slices, make_slices("looked", floats * 4, context_.plan.kv_layers.size() + 1));
    }
    buffers.push_back(slice(name, slices, layer, floats * 4));
    return {};
  }

  Status embed(const Op& op) {
    DOPPLER_ASSIGN(const GpuMatrix* table, context_.matrix(op.weights));
    for (const Shard& shard : table->shards) {
      ShaderValues values;
      std::vector<Bound> buffers = {stream("out", 0)};
      add_embed(context_, op, *table, shard, 64, values, buffers);
      DOPPLER_ASSIGN(FixedDispatch made,
                     make("embed.wgsl", values, buffers, {ceil_div(hidden() / 4, 64), 1, 1}));
      program_.body_.push_back(std::move(made));
    }
    keep(op.outputs[0], stream("", 0));
    keep(Stage::kAttnInput, 0, stream("", 0), 0, hidden());
    return {};
  }

  // The residual stream enters with the branch that the layer before left, if there was one.
  Status add_layer(const LayerOps& l) {
    DOPPLER_TRY(normed_matmul(*l.attn_norm, *l.qkv, nullptr));
    DOPPLER_TRY(attention(l));
    DOPPLER_TRY(output(l));
    branch_ = slice("branch", o_, layer_, row_bytes());
    post_ = l.post_attn;
    DOPPLER_ASSIGN(const GpuMatrix* down_matrix, context_.matrix(l.down->weights));
    DOPPLER_TRY(normed_matmul(*l.ffn_norm, *l.gate_up, l.gated, context_.eight_bits(*down_matrix)));
    DOPPLER_TRY(down(*l.down));
    branch_ = slice("branch", down_, layer_, row_bytes());
    post_ = l.post_ffn;
    ++layer_;
    return {};
  }

  // Values and buffers of norm_prologue.wgsl, which adds the branch to the residual stream.
  // `stores`: of several dispatches with the same prologue the first stores the sum and what is looked at, so
  // that they belong together: the others may be of another shape, and so round otherwise.
  Status add_norm_prologue(const Op& norm, bool stores, ShaderValues& values, std::vector<Bound>& buffers) {
    const auto& p = std::get<NormParams>(norm.params);
    const bool add = static_cast<bool>(branch_.buffer), post = add && post_ != nullptr;
    values["WIDTH"] = hidden();
    values["EPS_BITS"] = float_bits(p.eps);
    values["ADD"] = add ? 1 : 0;
    values["POST"] = post ? 1 : 0;
    values["CARRY"] = add && stores ? 1 : 0;
    const bool emits_normed = stores && wants(norm.outputs[0]);
    const bool emits_post = stores && post && wants(post_->outputs[0]);
    values["EMIT_NORMED"] = emits_normed ? 1 : 0;
    values["EMIT_POST"] = emits_post ? 1 : 0;
    buffers.push_back(stream("residual", stream_at_));
    DOPPLER_ASSIGN(const Buffer weights, context_.norm_weights(norm, post ? post_ : nullptr));
    buffers.push_back({"norm_weights", weights});
    if (add) {
      buffers.push_back(branch_);
      if (stores) buffers.push_back(stream("carried", stream_at_ + 1));
      keep_sum(norm);
    }
    const std::string_view stage = stage_name(info(norm.outputs[0]).stage);
    const int own = info(norm.outputs[0]).layer;
    const std::size_t layer = own < 0 ? context_.plan.kv_layers.size() : static_cast<std::size_t>(own);
    if (emits_normed) {
      DOPPLER_TRY(emit("normed_out", stage, layer, hidden(), buffers));
      keep(norm.outputs[0], buffers.back());
    }
    if (emits_post) {
      DOPPLER_TRY(emit("post_out", fmt::format("before {}", stage), layer, hidden(), buffers));
      keep(post_->outputs[0], buffers.back());
    }
    return {};
  }

  // The sum that a norm reads is one stage or several.
  void keep_sum(const Op& norm) {
    const Bound sum = stream("", stream_at_ + 1);
    const Value& normed = info(norm.outputs[0]);
    if (normed.stage == Stage::kFfnNormed) {
      keep(Stage::kPostAttn, normed.layer, sum, 0, hidden());
      return;
    }
    const bool last = normed.stage == Stage::kFinalNorm;
    const int layer = last ? static_cast<int>(context_.plan.kv_layers.size()) : normed.layer;
    keep(Stage::kLayerOut, layer - 1, sum, 0, hidden());
    if (last) {
      keep(Stage::kPreFinalNorm, -1, sum, 0, hidden());
    } else {
      keep(Stage::kAttnInput, layer, sum, 0, hidden());
    }
  }

  // After a prologue that summed, the sum is the stream.
  void carry() {
    if (branch_.buffer) ++stream_at_;
  }

  ShaderValues gemv_values(const GpuMatrix& matrix, std::uint32_t rows) {
    ShaderValues values = {{"ROWS", rows},
                           {"ACT", context_.eight_bits(matrix) ? 1 : 0},
                           {"OUT_STRIDE", 0},
                           {"EMIT_PARTS", 0},
                           {"EMIT_ACT", 0}};
    add_format(values, matrix);
    return values;
  }

  // qkv, or gate and up with their activation.
  Status normed_matmul(const Op& norm, const Op& op, const Op* gated, bool down_eight_bits = false) {
    DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(op));
    if (gated != nullptr && (placed.size() != 1 || placed[0].matrix->shards.size() != 1))
      return fail(ErrorCode::kUnsupported, "gate and up differ in type or are too large for a binding");
    for (const PlacedMatrix& part : placed) {
      for (const Shard& shard : part.matrix->shards) {
        const GpuMatrix& matrix = *part.matrix;
        const std::uint32_t rows = gated != nullptr ? shard.rows / 2 : shard.rows;
        GemvSite site = site_of(gated != nullptr ? "gate_up" : "qkv", matrix, shard, rows);
        site.gated = gated != nullptr;
        DOPPLER_ASSIGN(site.shape, shape_of(matrix, rows, site.gated));
        ShaderValues values = gemv_values(matrix, rows);
        values["PRO"] = 1;
        std::vector<Bound> buffers;
        bind_shard(buffers, matrix, shard);
        bind_bias(part, shard, values, buffers);
        const bool emits = part.first_row + shard.first_row == 0;
        DOPPLER_TRY(add_norm_prologue(norm, emits, values, buffers));
        if (gated != nullptr) {
          site.quantises = act_is_quantised_ = down_eight_bits && site.shape.rows % 32 == 0;
          DOPPLER_TRY(add_gate(op, *gated, rows, values, buffers));
        } else {
          values["EPI"] = 0;
          values["OUT_OFFSET"] = part.first_row + shard.first_row;
          buffers.push_back(slice("out", qkv_, layer_, qkv_.stride));
          std::uint64_t first = 0;
          for (const ValueId id : op.outputs) {
            keep(id, buffers.back(), first);
            first += info(id).width;
          }
        }
        DOPPLER_TRY(add_site(std::move(site), std::move(values), std::move(buffers), program_.body_));
      }
    }
    carry();
    return {};
  }

  // A workgroup that has whole blocks of 32 results quantises them itself.
  Status add_gate(const Op& gate_up, const Op& gated, std::uint32_t rows, ShaderValues& values,
                  std::vector<Bound>& buffers) {
    values["EPI"] = 1;
    values["ACTIVATION"] = static_cast<std::int64_t>(std::get<GatedParams>(gated.params).activation);
    values["QUANTISE_OUT"] = act_is_quantised_ ? 1 : 0;
    if (act_is_quantised_) {
      values["OUT_UNITS"] = ceil_div(rows, kUnitValues);
      values.erase("OUT_STRIDE");
      buffers.push_back({"out8", act8_});
      buffers.push_back({"outs", acts_});
    } else {
      values["OUT_OFFSET"] = 0;
      buffers.push_back({"out", act_});
    }
    if (wants(gate_up.outputs[0]) || wants(gate_up.outputs[1])) {
      values["EMIT_PARTS"] = 1;
      DOPPLER_TRY(emit("gate_out", "gate", layer_, rows, buffers));
      keep(gate_up.outputs[0], buffers.back());
      DOPPLER_TRY(emit("up_out", "up", layer_, rows, buffers));
      keep(gate_up.outputs[1], buffers.back());
    }
    if (wants(gated.outputs[0])) {
      values["EMIT_ACT"] = 1;
      DOPPLER_TRY(emit("act_out", "act", layer_, rows, buffers));
      keep(gated.outputs[0], buffers.back());
    }
    return {};
  }

  Status attention(const LayerOps& l) {
    const auto& a = std::get<AttentionParams>(l.attention->params);
    const auto& rope = std::get<RopeParams>(l.q_rope->params);
    const KvBuffers& kv = context_.kv[static_cast<std::size_t>(l.attention->layer)];
    DOPPLER_ASSIGN(ShaderValues values, attention_shape(a));
    add_cache(context_, *l.attention, values);
    add_scores(*l.attention, values);
    add_rotation(context_, rope, values);
    values["MOST_SPLITS"] = splits_of(a);
    values["QK_NORM"] = l.q_norm != nullptr ? 1 : 0;
    values["Q_OFFSET"] = 0;
    values["K_OFFSET"] = a.heads * a.head_dim;
    values["V_OFFSET"] = (a.heads + a.kv_heads) * a.head_dim;
    const bool emits_rope = wants(l.q_rope->outputs[0]) || wants(l.k_rope->outputs[0]);
    const bool emits_norm =
        l.q_norm != nullptr && (wants(l.q_norm->outputs[0]) || wants(l.k_norm->outputs[0]));
    values["EMIT_ROPE"] = emits_rope ? 1 : 0;
    values["EMIT_NORM"] = emits_norm ? 1 : 0;
    std::vector<Bound> buffers = {{"step", context_.step},
                                  slice("qkv", qkv_, layer_, qkv_.stride),
                                  {"angles", context_.angles[rope.table]},
                                  {"keys", kv.keys},
                                  {"values", kv.values},
                                  {"parts", parts_},
                                  {"marks", marks_}};
    if (l.q_norm != nullptr) {
      const auto& norm = std::get<NormParams>(l.q_norm->params);
      values["EPS_BITS"] = float_bits(norm.eps);
      DOPPLER_ASSIGN(const Buffer weights, context_.norm_weights(*l.q_norm, l.k_norm));
      buffers.push_back({"qk_weights", weights});
    }
    if (emits_rope || emits_norm) {  // q_rope, k_rope, q_norm, k_norm
      const std::uint64_t q = a.heads * a.head_dim, k = a.kv_heads * a.head_dim;
      DOPPLER_TRY(emit("looked", "q and k", layer_, (l.q_norm != nullptr ? 2 : 1) * (q + k), buffers));
      keep(l.q_rope->outputs[0], buffers.back());
      keep(l.k_rope->outputs[0], buffers.back(), q);
      if (l.q_norm != nullptr) {
        keep(l.q_norm->outputs[0], buffers.back(), q + k);
        keep(l.k_norm->outputs[0], buffers.back(), q + k + q);
      }
    }
    DOPPLER_ASSIGN(FixedDispatch made,
                   make("attention_decode.wgsl", values, buffers, {splits_of(a), a.kv_heads, 1}));
    program_.body_.push_back(std::move(made));
    return {};
  }

  // Splits of a sequence: enough workgroups to fill a large GPU, none for a window that has too few
  // positions.
  static std::uint32_t splits_of(const AttentionParams& a) {
    return a.window != 0 && a.window <= 512 ? 16 : kMostSplits;
  }

  // How the threads of attention_decode.wgsl share a head.
  Result<ShaderValues> attention_shape(const AttentionParams& a) {
    constexpr std::uint32_t kChunk = 32;  // positions at a time
    const std::uint32_t subgroup = context_.device->features().subgroup_size;
    const std::uint32_t vec = context_.options.kv_type == KvType::kF16 ? 8 : 4;
    if (a.head_dim % vec != 0 || (a.heads * a.head_dim) % 4 != 0)
      return fail(ErrorCode::kUnsupported, "the head size {} is no multiple of {}", a.head_dim, vec);
    std::uint32_t lanes = 1;
    while (lanes < 16 && lanes * 2 <= subgroup && (a.head_dim / vec) % (lanes * 2) == 0) lanes *= 2;
    const std::uint32_t quads = a.head_dim / 4,
                        most = std::min(512u, device().limits().workgroup_invocations);
    for (const std::uint32_t groups : {8u, 16u, 4u, 32u, 2u, 1u}) {
      const std::uint32_t threads = quads * groups;
      const std::uint32_t shared = a.heads / a.kv_heads;
      if (threads % subgroup != 0 || threads > most || threads < shared) continue;
      // Queries, scores and the sums of some heads must fit the workgroup's memory.
      const std::uint64_t base = std::uint64_t{shared} * (a.head_dim * 4 + kChunk * 4 + 16) + a.head_dim * 8;
      const std::uint64_t limit = std::min<std::uint64_t>(device().limits().workgroup_bytes, 32768);
      if (base + threads * 16 > limit) continue;
      const std::uint64_t at_once = std::clamp<std::uint64_t>((limit - base) / (threads * 16), 1, shared);
      return ShaderValues{{"LP", lanes},
                          {"PG", groups},
                          {"CHUNK", kChunk},
                          {"HEADS_AT_ONCE", static_cast<std::int64_t>(at_once)}};
    }
    return fail(ErrorCode::kUnsupported, "{} heads of {} fit no workgroup", a.heads, a.head_dim);
  }

  // The output projection, which puts the parts of the attention together.
  Status output(const LayerOps& l) {
    const auto& a = std::get<AttentionParams>(l.attention->params);
    DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(*l.o));
    for (const Shard& shard : placed[0].matrix->shards) {
      const GpuMatrix& matrix = *placed[0].matrix;
      GemvSite site = site_of("output", matrix, shard, shard.rows);
      DOPPLER_ASSIGN(site.shape, shape_of(matrix, shard.rows, false));
      ShaderValues values = gemv_values(matrix, shard.rows);
      values["PRO"] = 2;
      values["EPI"] = 0;
      values["OUT_OFFSET"] = shard.first_row;
      values["WIDTH"] = a.heads * a.head_dim;
      values["DIM"] = a.head_dim;
      values["WINDOW"] = a.window;
      values["MOST_SPLITS"] = splits_of(a);
      values["POSITIONS"] = context_.layout.positions();
      const bool emits = wants(l.attention->outputs[0]) && shard.first_row == 0;
      values["EMIT_ATTN"] = emits ? 1 : 0;
      std::vector<Bound> buffers = {slice("out", o_, layer_, row_bytes()),
                                    {"step", context_.step},
                                    {"parts", parts_},
                                    {"marks", marks_}};
      keep(l.o->outputs[0], buffers.front());
      if (emits) {
        DOPPLER_TRY(emit("attn_out", "attention", layer_, std::uint64_t{a.heads} * a.head_dim, buffers));
        keep(l.attention->outputs[0], buffers.back());
      }
      bind_shard(buffers, matrix, shard);
      bind_bias(placed[0], shard, values, buffers);
      DOPPLER_TRY(add_site(std::move(site), std::move(values), std::move(buffers), program_.body_));
    }
    return {};
  }

  Status down(const Op& op) {
    DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(op));
    const GpuMatrix& matrix = *placed[0].matrix;
    const bool eight_bits = context_.eight_bits(matrix);
    if (eight_bits && !act_is_quantised_) DOPPLER_TRY(quantise(info(op.inputs[0]).width, matrix.units));
    for (const Shard& shard : matrix.shards) {
      GemvSite site = site_of("down", matrix, shard, shard.rows);
      DOPPLER_ASSIGN(site.shape, shape_of(matrix, shard.rows, false));
      ShaderValues values = gemv_values(matrix, shard.rows);
      values["PRO"] = 0;
      values["EPI"] = 0;
      values["OUT_OFFSET"] = shard.first_row;
      std::vector<Bound> buffers = {slice("out", down_, layer_, row_bytes())};
      keep(op.outputs[0], buffers.front());
      bind_shard(buffers, matrix, shard);
      bind_bias(placed[0], shard, values, buffers);
      if (eight_bits) {
        buffers.push_back({"x8", act8_});
        buffers.push_back({"xs", acts_});
      } else {
        values["X_VEC"] = 1;
        values["X_STRIDE"] = 0;
        values["X_OFFSET"] = 0;
        values["WIDTH"] = matrix.units * kUnitValues;  // the buffer is zero beyond the width
        buffers.push_back({"x", act_});
      }
      DOPPLER_TRY(add_site(std::move(site), std::move(values), std::move(buffers), program_.body_));
    }
    return {};
  }

  Status quantise(std::uint32_t width, std::uint32_t units) {
    const ShaderValues values = {
        {"THREADS", 64}, {"UNITS_K", units}, {"WIDTH", width}, {"X_STRIDE", 0}, {"X_OFFSET", 0}};
    DOPPLER_ASSIGN(FixedDispatch made,
                   make("quantise.wgsl", values, {{"x", act_}, {"x8", act8_}, {"xs", acts_}},
                        {ceil_div(units * 2, 64), 1, 1}));
    program_.body_.push_back(std::move(made));
    return {};
  }

  // One dispatch per shard of the head.
  Status head(const DecoderOps& ops, GemvSite::Where where) {
    const bool is_logits = where == GemvSite::Where::kLogitsHead;
    const bool stores = is_logits || wants(ops.softcap->outputs[0]);
    const bool emits = wants(ops.head->outputs[0]);
    DOPPLER_ASSIGN(const std::vector<PlacedMatrix> placed, context_.place(*ops.head));
    const GpuMatrix& matrix = *placed[0].matrix;
    if (placed[0].bias) return fail(ErrorCode::kUnsupported, "the head has a bias");
    if (!candidates_) {
      DOPPLER_ASSIGN(candidates_,
                     device().make_buffer("candidates", std::uint64_t{DecodeProgram::kMostHeadGroups} * 8 *
                                                            matrix.shards.size()));
    }
    std::vector<FixedDispatch>& dispatches = is_logits ? program_.head_logits_ : program_.head_greedy_;
    for (std::size_t i = 0; i < matrix.shards.size(); ++i) {
      const Shard& shard = matrix.shards[i];
      GemvSite site = site_of("head", matrix, shard, shard.rows);
      site.file = "head.wgsl";
      site.where = where;
      DOPPLER_ASSIGN(site.shape, shape_of(matrix, shard.rows, false));
      site.head_groups = kHeadGroups;
      ShaderValues values = {{"STORE_LOGITS", stores ? 1 : 0},
                             {"GREEDY", is_logits ? 0 : 1},
                             {"ACT", context_.eight_bits(matrix) ? 1 : 0},
                             {"ROWS", shard.rows},
                             {"ROW0", shard.first_row},
                             {"EMIT_RAW", emits ? 1 : 0}};
      add_format(values, matrix);
      const double cap = std::get<SoftcapParams>(ops.softcap->params).cap;
      values["SOFTCAP"] = cap > 0 ? 1 : 0;
      if (cap > 0) values["SOFTCAP_BITS"] = float_bits(cap);
      std::vector<Bound> buffers;
      bind_shard(buffers, matrix, shard);
      DOPPLER_TRY(add_norm_prologue(*ops.final_norm, i == 0, values, buffers));
      if (!is_logits) {
        values["CANDIDATE0"] = 0;  // until connect_heads()
        values["PAD_WORD"] = StepLayout::kPad;
        buffers.push_back({"candidates", candidates_});
        buffers.push_back({"step", context_.step});
      }
      if (stores) buffers.push_back({"logits", program_.logits_});
      keep(ops.softcap->outputs[0], {"", program_.logits_});
      if (emits) {
        DOPPLER_TRY(emit("raw_logits", "logits", 0, context_.plan.vocab_size, buffers));
        keep(ops.head->outputs[0], buffers.back());
      }
      DOPPLER_TRY(add_site(std::move(site), std::move(values), std::move(buffers), dispatches));
    }
    return {};
  }

  Status next_tokens() {
    ShaderValues values = {{"THREADS", 256},
                           {"RING", DecodeProgram::kRing},
                           {"VOCAB", context_.plan.vocab_size},
                           {"IDS", context_.layout.ids()},
                           {"POSITIONS", context_.layout.positions()},
                           {"COUNTED", StepLayout::kCounted},
                           {"GREEDY", 0}};
    std::vector<Bound> buffers = {
        {"step", context_.step}, {"ring", program_.ring_}, {"chosen", program_.chosen_}};
    DOPPLER_ASSIGN(program_.next_chosen_, make("next_token.wgsl", values, buffers, {}));
    values["GREEDY"] = 1;
    buffers.back() = {"candidates", candidates_};
    program_.next_values_ = std::move(values);
    program_.next_buffers_ = std::move(buffers);
    return program_.connect_heads(context_);
  }

  static GemvSite site_of(std::string_view kind, const GpuMatrix& matrix, const Shard& shard,
                          std::uint32_t rows) {
    GemvSite site;
    site.kind = kind;
    site.file = "gemv.wgsl";
    site.format = matrix.format;
    site.rows = rows;
    site.units = matrix.units;
    site.bytes = shard.codes.bytes() + shard.scales.bytes();
    return site;
  }

  Status add_site(GemvSite site, ShaderValues values, std::vector<Bound> buffers,
                  std::vector<FixedDispatch>& dispatches) {
    site.values = std::move(values);
    site.buffers = std::move(buffers);
    site.index = dispatches.size();
    // What was found to be faster for the same kind and size before.
    if (const auto tuned = context_.tuned.find(site.key()); tuned != context_.tuned.end()) {
      site.shape = tuned->second.shape;
      if (site.head_groups != 0) site.head_groups = tuned->second.head_groups;
    }
    DOPPLER_ASSIGN(FixedDispatch made, DecodeProgram::shaped(context_, site, site.shape, site.head_groups));
    dispatches.push_back(std::move(made));
    program_.sites_.push_back(std::move(site));
    return {};
  }

  Result<GemvShape> shape_of(const GpuMatrix& matrix, std::uint32_t rows, bool gated) {
    const auto shapes =
        best_fused_shapes(device(), matrix.format, rows, matrix.units, gated, false, context_.shape_rank + 1);
    if (shapes.empty())
      return fail(ErrorCode::kUnsupported, "{} x {} weights fit no workgroup", rows, matrix.cols);
    return shapes.back();
  }

  // Gathers what was asked for from where the kernels leave it.
  Status make_taps() {
    if (looks_.empty()) return {};
    std::map<std::pair<Stage, int>, const Value*> values;
    for (const Value& v : context_.plan.values) values[{v.stage, v.layer}] = &v;
    std::vector<TapRing::Stored> stored;
    for (const Look& look : looks_) {
      const auto found = views_.find({look.stage, look.layer});
      if (found == views_.end()) {
        return fail(ErrorCode::kUnsupported, "{} is not shown for single tokens",
                    stage_key(look.stage, look.layer));
      }
      // attn_input is another name of what the embedding or the layer before leaves.
      const auto value = values.find({look.stage, look.layer});
      const std::uint32_t heads = value == values.end() ? 1 : value->second->heads;
      stored.push_back({look.stage, look.layer, heads, found->second, look.columns});
    }
    DOPPLER_ASSIGN(program_.taps_,
                   TapRing::create(context_, std::move(stored), context_.options.gpu.submit_tokens));
    return {};
  }

  Context& context_;
  DecodeProgram& program_;
  const Looks& looks_;
  std::set<std::pair<Stage, int>> wanted_;            // of looks_
  std::map<std::pair<Stage, int>, ValueView> views_;  // where they lie
  Bound branch_;  // what the next prologue adds to the stream: nothing before the first layer's end
  const Op* post_ = nullptr;  // the branch's norm
  std::size_t layer_ = 0;
  std::size_t stream_at_ = 0;  // sums so far
  Slices stream_[2], qkv_, o_, down_;
  std::map<std::string, Slices> emitted_;  // what only taps want: a buffer for each stage, a slice a layer
  Buffer parts_, marks_, act_, act8_, acts_, candidates_;
  bool act_is_quantised_ = false;
};

Status build_decode_program(Context& context, DecodeProgram& program, const Looks& looks) {
  return DecodeBuilder(context, program, looks).build();
}

}  // namespace doppler::gpu
