// build_plan(): from a ModelSpec to the unfused plan.
#include <cmath>
#include <initializer_list>
#include <optional>

#include "plan/plan.h"

namespace doppler {
namespace {

class Builder {
 public:
  Builder(const ModelSpec& spec, const Weights& weights, std::uint64_t context)
      : spec_(spec), weights_(weights), context_(context) {}

  Result<Plan> build() {
    plan_.vocab_size = spec_.vocab_size;
    DOPPLER_TRY(check_positions());
    ValueId x = value(spec_.hidden, Stage::kEmbedOut);
    std::vector<WeightRole> tables = {WeightRole::kTokenEmbedding};
    if (spec_.learned_positions > 0) tables.push_back(WeightRole::kPositionEmbedding);
    op(OpKind::kEmbed, {}, {x}, std::move(tables), EmbedParams{spec_.embedding_scale});
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) x = layer(x);
    layer_ = -1;
    rows_ = Rows::kWanted;
    const ValueId selected = value(spec_.hidden, Stage::kPreFinalNorm);
    op(OpKind::kSelect, {x}, {selected}, {}, {});
    const ValueId normed = norm(selected, WeightRole::kFinalNorm, WeightRole::kFinalNormBias);
    const ValueId logits = matmul(normed, WeightRole::kHead, WeightRole::kHeadBias);
    // Without scale and softcap the two stages are the same values; the op stays so that both names can be
    // asked for.
    plan_.logits = value(spec_.vocab_size, Stage::kLogitsFinal);
    op(OpKind::kSoftcap, {logits}, {plan_.logits}, {}, SoftcapParams{spec_.final_softcap, spec_.logit_scale});
    DOPPLER_TRY(check_plan(plan_, weights_));
    return std::move(plan_);
  }

 private:
  Status check_positions() const {
    if (spec_.learned_positions == 0 || context_ <= spec_.learned_positions) return {};
    return fail(ErrorCode::kLimit,
                "The model has learned {} positions, and a context of {} needs more. Lower the context.",
                spec_.learned_positions, context_);
  }

  ValueId value(std::uint32_t width, Stage stage, std::uint32_t heads = 1) {
    plan_.values.push_back({width, heads, rows_, stage, layer_});
    return static_cast<ValueId>(plan_.values.size() - 1);
  }

  Op& op(OpKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
         std::vector<WeightRole> roles, OpParams params) {
    Op op{.kind = kind,
          .layer = layer_,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .weights = {},
          .biases = {},
          .params = params,
          .emits = {}};
    for (const WeightRole role : roles) op.weights.push_back(weights_.find(role, layer_));
    plan_.ops.push_back(std::move(op));
    return plan_.ops.back();
  }

  ValueId norm(ValueId x, WeightRole role, WeightRole bias = WeightRole::kCount,
               NormSpan span = NormSpan::kHead) {
    return norm(x, role, bias, weight_info(role).stage,
                {spec_.norm.eps, spec_.norm.weight_offset, spec_.norm.kind, span});
  }

  ValueId norm(ValueId x, WeightRole role, WeightRole bias, Stage stage, const NormParams& params) {
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    Op& made = op(OpKind::kRmsNorm, {x}, {y}, {role}, params);
    if (const WeightId id = find(bias); id != kNoWeight) made.biases = {id};
    return y;
  }

  WeightId find(WeightRole role) const {
    return role == WeightRole::kCount ? kNoWeight : weights_.find(role, layer_);
  }

  ValueId matmul(ValueId x, WeightRole role, WeightRole bias = WeightRole::kCount, std::uint32_t heads = 1) {
    return matmul(x, role, bias, heads, weight_info(role).stage);
  }

  ValueId matmul(ValueId x, WeightRole role, WeightRole bias, std::uint32_t heads, Stage stage) {
    const auto width = static_cast<std::uint32_t>(weight_shape(spec_, role, layer_)[0]);
    const ValueId y = value(width, stage, heads);
    Op& made = op(OpKind::kMatmul, {x}, {y}, {role}, MatmulParams{});
    if (const WeightId id = find(bias); id != kNoWeight) made.biases = {id};
    return y;
  }

  ValueId rope(ValueId x, const RopeSpec& spec, Stage stage) {
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kRope, {x}, {y}, {}, RopeParams{rope_table(spec), spec.layout});
    return y;
  }

  std::uint32_t rope_table(const RopeSpec& spec) {
    for (std::size_t i = 0; i < rope_specs_.size(); ++i) {
      if (rope_specs_[i] == spec) return static_cast<std::uint32_t>(i);
    }
    rope_specs_.push_back(spec);
    plan_.rope_tables.push_back(make_rope_table(spec, context_));
    return static_cast<std::uint32_t>(rope_specs_.size() - 1);
  }

  // The residual stream with what a half of a layer adds to it, under its stage's name.
  ValueId add(ValueId stream, ValueId branch, Stage stage) {
    const ValueId sum = value(plan_.values[stream].width, stage);
    op(OpKind::kAdd, {stream, branch}, {sum}, {}, AddParams{spec_.residual_scale});
    return sum;
  }

  void norm_heads(ValueId& q, ValueId& k, const AttentionSpec& a) {
    q = norm(q, WeightRole::kQNorm, WeightRole::kCount, a.qk_norm_span);
    k = norm(k, WeightRole::kKNorm, WeightRole::kCount, a.qk_norm_span);
  }

  // x times a factor that is not 1.
  ValueId scaled(ValueId x, double factor, Stage stage = Stage::kNone) {
    if (factor == 1) return x;
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kSoftcap, {x}, {y}, {}, SoftcapParams{0, factor});
    return y;
  }

  ValueId columns(ValueId x, Stage stage, std::uint32_t heads, std::span<const ColumnRange> ranges) {
    ColumnsParams params;
    std::uint32_t width = 0;
    std::size_t count = 0;
    for (const ColumnRange& range : ranges) {
      params.ranges[count++] = range;
      width += range.groups * range.width;
    }
    const ValueId y = value(width, stage, heads);
    op(OpKind::kColumns, {x}, {y}, {}, params);
    return y;
  }

  ValueId columns(ValueId x, Stage stage, std::uint32_t heads, std::initializer_list<ColumnRange> ranges) {
    return columns(x, stage, heads, std::span(ranges.begin(), ranges.size()));
  }

  ValueId gated(Activation activation, std::vector<ValueId> inputs, Stage stage) {
    const Value first = plan_.values[inputs[0]];
    const ValueId y = value(first.width, stage);
    op(OpKind::kGated, std::move(inputs), {y}, {}, GatedParams{activation});
    return y;
  }

  ValueId attention(ValueId normed, const AttentionSpec& a) {
    const Stage q_stage = a.output_gate ? Stage::kNone : Stage::kQProj;
    ValueId q = matmul(normed, WeightRole::kQ, WeightRole::kQBias, a.heads, q_stage);
    ValueId k = matmul(normed, WeightRole::kK, WeightRole::kKBias, a.kv_heads);
    const ValueId v = matmul(normed, WeightRole::kV, WeightRole::kVBias, a.kv_heads);
    std::optional<ValueId> gate;
    if (a.output_gate) {  // each head's rows are query and gate
      gate = columns(q, Stage::kAttnGate, 1, {{a.heads, a.head_dim, a.head_dim}});
      q = columns(q, Stage::kQProj, a.heads, {{a.heads, 0, a.head_dim}});
    }
    k = scaled(k, a.key_scale);
    if (a.qk_norm && !a.qk_norm_after_rope) norm_heads(q, k, a);
    if (a.rope.rotary_dim > 0) {
      q = rope(q, a.rope, Stage::kQRope);
      k = rope(k, a.rope, Stage::kKRope);
    }
    if (a.qk_norm && a.qk_norm_after_rope) norm_heads(q, k, a);
    if (a.query_scale.every > 0) {
      const ValueId scaled = value(a.q_width(), Stage::kQScaled, a.heads);
      op(OpKind::kScaleQuery, {q}, {scaled}, {}, a.query_scale);
      q = scaled;
    }
    const bool chunked = a.kind == AttentionKind::kChunked;
    const ValueId scores = value(0, Stage::kAttnScores, a.heads);  // width: the step's longest sequence
    const ValueId out = value(a.q_width(), Stage::kAttnOut, a.heads);
    std::vector<WeightRole> sinks;
    if (a.sinks) sinks.push_back(WeightRole::kSinks);
    Op& made = op(OpKind::kAttention, {q, k, v}, {out}, std::move(sinks),
                  AttentionParams{a.heads, a.kv_heads, a.head_dim, a.window, a.scale, a.softcap, chunked});
    made.emits = {scores};
    KvLayer& cache = plan_.kv_layers.back();
    cache.kv_heads = a.kv_heads, cache.head_dim = a.head_dim, cache.window = a.window;
    cache.chunked = chunked;
    return matmul(gate ? gated(Activation::kSigmoid, {*gate, out}, Stage::kAttnGated) : out, WeightRole::kO,
                  WeightRole::kOBias);
  }

  // The causal convolution of a recurrent half.
  ValueId convolution(ValueId x, const RecurrentSpec& r) {
    const Activation activation =
        r.kind == RecurrentKind::kShortConvolution ? Activation::kIdentity : Activation::kSilu;
    const ValueId y = value(plan_.values[x].width, Stage::kConvOut);
    Op& made =
        op(OpKind::kConvolution, {x}, {y}, {WeightRole::kConvolution}, ConvolutionParams{r.taps, activation});
    if (const WeightId id = find(WeightRole::kConvolutionBias); id != kNoWeight) made.biases = {id};
    return y;
  }

  ValueId short_convolution(ValueId in, const RecurrentSpec& r) {
    const std::uint32_t width = r.inner();
    const ValueId b = columns(in, Stage::kNone, 1, {{1, 0, width}});
    const ValueId c = columns(in, Stage::kNone, 1, {{1, width, width}});
    const ValueId x = columns(in, Stage::kNone, 1, {{1, 2 * width, width}});
    const ValueId convolved = convolution(gated(Activation::kIdentity, {b, x}, Stage::kConvIn), r);
    return gated(Activation::kIdentity, {c, convolved}, Stage::kSsmGated);
  }

  // What the delta net reads of a layer: input of the convolution, gate, and what beta and decay are made of.
  struct DeltaInputs {
    ValueId convolved, gate, beta, step;
  };

  DeltaInputs delta_inputs(ValueId normed, const RecurrentSpec& r) {
    if (r.in_projection == InProjection::kSeparate) {
      return {.convolved = matmul(normed, WeightRole::kMixerInConv),
              .gate = matmul(normed, WeightRole::kMixerInGate, WeightRole::kCount, r.heads),
              .beta = matmul(normed, WeightRole::kMixerInB),
              .step = matmul(normed, WeightRole::kMixerInA)};
    }
    // By key head: its query, key, and the values and gates of its value heads; in the other, their b, then
    // a.
    const ValueId in = matmul(normed, WeightRole::kMixerIn, WeightRole::kMixerInBias);
    const ValueId ba = matmul(normed, WeightRole::kMixerInBa);
    const std::uint32_t share = r.heads / r.groups, values = share * r.head_dim, key = r.state_dim;
    return {.convolved = columns(in, Stage::kConvIn, 1,
                                 {{r.groups, 0, key}, {r.groups, key, key}, {r.groups, 2 * key, values}}),
            .gate = columns(in, Stage::kSsmGate, r.heads, {{r.groups, 2 * key + values, values}}),
            .beta = columns(ba, Stage::kNone, 1, {{r.groups, 0, share}}),
            .step = columns(ba, Stage::kNone, 1, {{r.groups, share, share}})};
  }

  // x / sqrt(sum of squares + eps) * factor of each head: a mean's norm, with what the mean divides by taken
  // out. The epsilon is the delta net's own constant.
  ValueId l2_norm(ValueId x, double factor, Stage stage) {
    constexpr double kEps = 1e-6;
    const double dim = plan_.values[x].width / plan_.values[x].heads;
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kRmsNorm, {x}, {y}, {}, NormParams{.eps = kEps / dim, .factor = factor / std::sqrt(dim)});
    return y;
  }

  ValueId time_step(ValueId x, const RecurrentSpec& r, Stage stage) {
    const ValueId y = value(plan_.values[x].width, stage);
    op(OpKind::kTimeStep, {x}, {y}, {WeightRole::kStepBias}, TimeStepParams{r.min_step, r.max_step});
    return y;
  }

  ValueId decay(ValueId step, Stage stage) {
    const ValueId y = value(plan_.values[step].width, stage);
    op(OpKind::kDecay, {step}, {y}, {WeightRole::kDecayRate}, DecayParams{});
    return y;
  }

  ValueId delta_net(ValueId normed, const RecurrentSpec& r) {
    const DeltaInputs in = delta_inputs(normed, r);
    const ValueId beta = gated(Activation::kSigmoid, {in.beta}, Stage::kDeltaBeta);
    const ValueId rate = decay(time_step(in.step, r, Stage::kNone), Stage::kDeltaDecay);
    const ValueId conv = convolution(in.convolved, r);
    const std::uint32_t keys = r.keys();
    const ValueId q = columns(conv, Stage::kNone, r.groups, {{1, 0, keys}});
    const ValueId k = columns(conv, Stage::kNone, r.groups, {{1, keys, keys}});
    const ValueId v = columns(conv, Stage::kDeltaV, r.heads, {{1, 2 * keys, r.inner()}});
    const ValueId q_normed = l2_norm(q, 1 / std::sqrt(static_cast<double>(r.state_dim)), Stage::kDeltaQ);
    const ValueId k_normed = l2_norm(k, 1, Stage::kDeltaK);
    const ValueId out = value(r.inner(), Stage::kSsmOut, r.heads);
    op(OpKind::kDeltaRule, {q_normed, k_normed, v, beta, rate}, {out}, {},
       DeltaParams{r.heads, r.groups, r.state_dim, r.head_dim});
    const ValueId result = gated_norm(out, in.gate, r);
    return r.tiled_output ? tiled(result, r) : result;
  }

  // The value heads by their number within their key head, first all first ones.
  ValueId tiled(ValueId x, const RecurrentSpec& r) {
    static_assert(RecurrentSpec::kMostTiled <= ColumnsParams::kMost);
    std::vector<ColumnRange> ranges;
    for (std::uint32_t i = 0; i < r.heads / r.groups; ++i)
      ranges.push_back({r.groups, i * r.head_dim, r.head_dim});
    return columns(x, Stage::kNone, 1, ranges);
  }

  ValueId mamba2(ValueId normed, const RecurrentSpec& r) {
    const ValueId in = matmul(normed, WeightRole::kMixerIn, WeightRole::kMixerInBias);
    const std::uint32_t inner = r.inner(), keys = r.keys();
    const auto scale = [&](InPart part) { return r.part_scales[static_cast<std::size_t>(part)]; };
    const ValueId gate = columns(in, Stage::kSsmGate, 1, {{1, 0, inner, scale(InPart::kGate)}});
    const ValueId convolved = columns(in, Stage::kConvIn, 1,
                                      {{1, inner, inner, scale(InPart::kX)},
                                       {1, 2 * inner, keys, scale(InPart::kB)},
                                       {1, 2 * inner + keys, keys, scale(InPart::kC)}});
    const ValueId raw_step =
        columns(in, Stage::kNone, 1, {{1, 2 * inner + 2 * keys, r.heads, scale(InPart::kStep)}});
    const ValueId conv = convolution(convolved, r);
    const ValueId x = columns(conv, Stage::kSsmX, r.heads, {{1, 0, inner}});
    const ValueId b = columns(conv, Stage::kSsmB, r.groups, {{1, inner, keys}});
    const ValueId c = columns(conv, Stage::kSsmC, r.groups, {{1, inner + keys, keys}});
    const ValueId step = time_step(raw_step, r, Stage::kSsmDt);
    const ValueId rate = decay(step, Stage::kSsmA);
    const ValueId out = value(inner, Stage::kSsmOut, r.heads);
    op(OpKind::kScan, {x, b, c, step, rate}, {out}, {WeightRole::kSkip},
       ScanParams{r.heads, r.head_dim, r.groups, r.state_dim});
    return gated_norm(out, gate, r);
  }

  ValueId mamba1(ValueId normed, const RecurrentSpec& r) {
    const ValueId in = matmul(normed, WeightRole::kMixerIn, WeightRole::kMixerInBias);
    const std::uint32_t inner = r.inner(), states = r.state_dim;
    const ValueId convolved = columns(in, Stage::kConvIn, 1, {{1, 0, inner}});
    const ValueId gate = columns(in, Stage::kSsmGate, 1, {{1, inner, inner}});
    const ValueId x = convolution(convolved, r);
    const ValueId parts = matmul(x, WeightRole::kStateProjection);
    const auto part = [&](std::uint32_t first, std::uint32_t width, WeightRole role) {
      const Stage stage = weight_info(role).stage;
      if (!r.part_norms) return columns(parts, stage, 1, {{1, first, width}});
      NormParams params{.eps = spec_.norm.eps};
      return norm(columns(parts, Stage::kNone, 1, {{1, first, width}}), role, WeightRole::kCount, stage,
                  params);
    };
    const ValueId low = part(0, r.rank, WeightRole::kStepNorm);
    const ValueId b = part(r.rank, states, WeightRole::kStateInNorm);
    const ValueId c = part(r.rank + states, states, WeightRole::kStateOutNorm);
    const ValueId raw = matmul(low, WeightRole::kStepProjection, WeightRole::kCount, 1, Stage::kNone);
    const ValueId step = time_step(raw, r, Stage::kSsmDt);
    const ValueId out = value(inner, Stage::kSsmOut);
    op(OpKind::kChannelScan, {x, b, c, step}, {out}, {WeightRole::kDecayRates, WeightRole::kSkip},
       ScanParams{inner, 1, 1, states});
    return gated_norm(out, gate, r);
  }

  // The gate's SiLU times a recurrence's result, normed before or after or not.
  ValueId gated_norm(ValueId y, ValueId gate, const RecurrentSpec& r) {
    const NormSpan span = r.one_norm_for_heads ? NormSpan::kHead : NormSpan::kOwnHead;
    const NormParams params{.eps = spec_.norm.eps, .span = span};
    const std::uint32_t parts = r.one_norm_for_heads ? r.heads : r.norm_groups;
    const auto normed = [&](ValueId x, Stage stage) {
      const ValueId made = value(r.inner(), stage, parts);
      op(OpKind::kRmsNorm, {x}, {made}, {WeightRole::kMixerNorm}, params);
      return made;
    };
    switch (r.norm) {
      case GatedNorm::kNormThenGate:
        return gated(Activation::kSilu, {gate, normed(y, Stage::kNone)}, Stage::kSsmGated);
      case GatedNorm::kGateThenNorm:
        return normed(gated(Activation::kSilu, {gate, y}, Stage::kNone), Stage::kSsmGated);
      case GatedNorm::kNone:
        break;
    }
    return gated(Activation::kSilu, {gate, y}, Stage::kSsmGated);
  }

  ValueId recurrent(ValueId normed, const LayerSpec& l) {
    const RecurrentSpec& r = l.recurrent;
    KvLayer& cache = plan_.kv_layers.back();
    cache.conv_rows = r.taps - 1, cache.conv_channels = r.channels(), cache.state = r.state_size();
    ValueId out = 0;
    switch (r.kind) {
      case RecurrentKind::kShortConvolution:
        out = short_convolution(matmul(normed, WeightRole::kMixerIn, WeightRole::kMixerInBias), r);
        break;
      case RecurrentKind::kDeltaNet:
        out = delta_net(normed, r);
        break;
      case RecurrentKind::kMamba2:
        out = mamba2(scaled(normed, r.in_scale), r);
        break;
      case RecurrentKind::kMamba1:
      case RecurrentKind::kNone:
        out = mamba1(normed, r);
        break;
    }
    const Stage stage = l.has_attention ? Stage::kSsmOProj : Stage::kOProj;
    return matmul(out, WeightRole::kMixerOut, WeightRole::kMixerOutBias, 1, stage);
  }

  // Attention, the recurrent half, or the sum of both.
  ValueId mixer(ValueId normed, const LayerSpec& l) {
    plan_.kv_layers.emplace_back();
    if (!l.has_attention) return scaled(recurrent(normed, l), l.recurrent.out_scale);
    const ValueId attended =
        scaled(attention(scaled(normed, l.attn_in_scale), l.attention), l.attn_out_scale);
    if (!l.recurrent.exists()) return attended;
    const ValueId sum = value(spec_.hidden, Stage::kNone);
    op(OpKind::kAdd, {attended, recurrent(normed, l)}, {sum}, {}, AddParams{l.recurrent.out_scale});
    return sum;
  }

  static GatedParams gated_params(const FfnSpec& f) {
    return {f.activation, f.xielu, f.clamp, f.alpha, f.up_offset};
  }

  ValueId feed_forward(ValueId normed, const FfnSpec& f) {
    if (f.experts > 0) return experts(normed, f);
    std::vector<ValueId> inputs;
    if (f.gated)
      inputs.push_back(scaled(matmul(normed, WeightRole::kGate, WeightRole::kGateBias), f.gate_scale));
    inputs.push_back(matmul(normed, WeightRole::kUp, WeightRole::kUpBias));
    const ValueId act = value(f.width, Stage::kFfnAct);
    op(OpKind::kGated, std::move(inputs), {act}, {}, gated_params(f));
    if (f.out_scale == 1) return matmul(act, WeightRole::kDown, WeightRole::kDownBias);
    const ValueId raw = matmul(act, WeightRole::kDown, WeightRole::kDownBias, 1, Stage::kNone);
    return scaled(raw, f.out_scale, Stage::kFfnOut);
  }

  // A layer without any mixer.
  ValueId feed_forward_layer(ValueId x, const LayerSpec& l) {
    plan_.kv_layers.emplace_back();
    const ValueId read = l.ffn_norm ? norm(x, WeightRole::kFfnNorm, WeightRole::kFfnNormBias) : x;
    ValueId branch = feed_forward(read, l.ffn);
    if (l.post_ffn_norm) branch = norm(branch, WeightRole::kPostFfnNorm);
    return add(x, branch, Stage::kLayerOut);
  }

  // What every token goes through beside its experts.
  ValueId shared_expert(ValueId x, const FfnSpec& f) {
    std::vector<ValueId> inputs;
    if (f.gated) {
      inputs.push_back(matmul(x, WeightRole::kSharedGateProj, WeightRole::kSharedGateProjBias));
      if (!f.shared_gate) plan_.values.back().stage = Stage::kSharedGate;
    }
    inputs.push_back(matmul(x, WeightRole::kSharedUp, WeightRole::kSharedUpBias));
    const ValueId act = value(f.shared_width, Stage::kSharedAct);
    op(OpKind::kGated, std::move(inputs), {act}, {}, gated_params(f));
    const ValueId out = matmul(act, WeightRole::kSharedDown, WeightRole::kSharedDownBias);
    if (!f.shared_gate) return out;
    plan_.values[out].stage = Stage::kNone;
    const ValueId gate = matmul(x, WeightRole::kSharedGate);
    const ValueId gated = value(plan_.values[out].width, Stage::kFfnShared);
    op(OpKind::kGated, {gate, out}, {gated}, {},
       GatedParams{.activation = Activation::kSigmoid, .xielu = {}});
    return gated;
  }

  // One product of each chosen expert, with the bias of its own.
  ValueId expert_matmul(ValueId x, ValueId ids, const FfnSpec& f, WeightRole role, WeightRole bias) {
    const std::uint32_t chosen = f.router.top_k;
    const auto rows = static_cast<std::uint32_t>(weight_shape(spec_, role, layer_)[1]);
    const ValueId y = value(rows * chosen, weight_info(role).stage, chosen);
    Op& made = op(OpKind::kExpertMatmul, {x, ids}, {y}, {role}, ExpertParams{f.experts, chosen});
    if (const WeightId id = find(bias); id != kNoWeight) made.biases = {id};
    return y;
  }

  // Which experts a token is sent to, and what each counts.
  std::pair<ValueId, ValueId> route(ValueId x, const FfnSpec& f) {
    const ValueId logits = matmul(x, WeightRole::kRouter, WeightRole::kRouterBias);
    const auto given = [](bool there, WeightRole role) {
      return there ? std::vector<WeightRole>{role} : std::vector<WeightRole>();
    };
    const ValueId ids = value(f.router.top_k, Stage::kRouterIds);
    op(OpKind::kChoose, {logits}, {ids}, given(f.router.correction, WeightRole::kRouterCorrection),
       RouteParams{f.router});
    const ValueId weights = value(f.router.top_k, Stage::kRouterWeights);
    op(OpKind::kWeigh, {logits, ids}, {weights}, given(f.router.expert_scale, WeightRole::kExpertScale),
       RouteParams{f.router});
    return {ids, weights};
  }

  ValueId experts(ValueId x, const FfnSpec& f) {
    const auto [ids, weights] = route(x, f);
    const std::uint32_t chosen = f.router.top_k;
    if (f.latent_experts && f.latent_width == 0) plan_.values[x].also = Stage::kFfnLatent;
    ValueId read = f.latent_width > 0 ? matmul(x, WeightRole::kLatentIn, WeightRole::kLatentInBias) : x;
    if (f.router.on_input) {
      const ValueId spread = read;
      read = value(plan_.values[read].width * chosen, Stage::kExpertInputs, chosen);
      op(OpKind::kSpread, {spread, weights}, {read}, {}, SpreadParams{chosen});
    }
    std::vector<ValueId> inputs;
    if (f.gated)
      inputs.push_back(expert_matmul(read, ids, f, WeightRole::kGateExperts, WeightRole::kGateExpertsBias));
    inputs.push_back(expert_matmul(read, ids, f, WeightRole::kUpExperts, WeightRole::kUpExpertsBias));
    const ValueId act = value(f.width * chosen, Stage::kFfnAct, chosen);
    op(OpKind::kGated, std::move(inputs), {act}, {}, gated_params(f));
    const ValueId given = expert_matmul(act, ids, f, WeightRole::kDownExperts, WeightRole::kDownExpertsBias);
    inputs = {given};
    if (!f.router.on_input) inputs.push_back(weights);
    if (f.latent_width > 0) return from_latent(x, std::move(inputs), f);
    if (f.shared_width > 0) inputs.push_back(shared_expert(x, f));
    const ValueId out = value(spec_.hidden, Stage::kFfnOut);
    op(OpKind::kExpertSum, std::move(inputs), {out}, {},
       ExpertSumParams{chosen, !f.router.on_input, f.shared_width > 0});
    return out;
  }

  // The sum of experts in their own width, back to the hidden one; what the shared expert gives joins there.
  ValueId from_latent(ValueId x, std::vector<ValueId> summed, const FfnSpec& f) {
    const ValueId sum = value(f.latent_width, Stage::kNone);
    op(OpKind::kExpertSum, std::move(summed), {sum}, {},
       ExpertSumParams{f.router.top_k, !f.router.on_input, false});
    const bool alone = f.shared_width == 0;
    const ValueId out = matmul(sum, WeightRole::kLatentOut, WeightRole::kLatentOutBias, 1,
                               alone ? Stage::kFfnOut : Stage::kNone);
    if (alone) return out;
    const ValueId both = value(spec_.hidden, Stage::kFfnOut);
    op(OpKind::kAdd, {out, shared_expert(x, f)}, {both}, {}, AddParams{});
    return both;
  }

  ValueId layer(ValueId x) {
    const LayerSpec& l = spec_.layers[static_cast<std::size_t>(layer_)];
    if (!l.has_attention && !l.recurrent.exists()) return feed_forward_layer(x, l);
    const ValueId input = x;
    const ValueId normed = l.attn_norm ? norm(x, WeightRole::kAttnNorm, WeightRole::kAttnNormBias) : x;
    ValueId branch = mixer(normed, l);
    if (l.post_attn_norm) branch = norm(branch, WeightRole::kPostAttnNorm);
    if (!l.has_ffn) return add(x, branch, Stage::kLayerOut);
    x = add(x, branch, l.parallel ? Stage::kNone : Stage::kPostAttn);
    ValueId read = l.parallel ? (l.ffn_norm ? input : normed) : x;
    if (l.parallel && l.attn_norm && !l.ffn_norm) plan_.values[normed].also = Stage::kFfnNormed;
    if (l.ffn_norm) read = norm(read, WeightRole::kFfnNorm, WeightRole::kFfnNormBias);
    branch = feed_forward(read, l.ffn);
    if (l.post_ffn_norm) branch = norm(branch, WeightRole::kPostFfnNorm);
    return add(x, branch, Stage::kLayerOut);
  }

  const ModelSpec& spec_;
  const Weights& weights_;
  const std::uint64_t context_;
  Plan plan_;
  std::vector<RopeSpec> rope_specs_;
  int layer_ = -1;
  Rows rows_ = Rows::kAll;
};

}  // namespace

Result<Plan> build_plan(const ModelSpec& spec, const Weights& weights, std::uint64_t context) {
  return Builder(spec, weights, context).build();
}

}  // namespace doppler
