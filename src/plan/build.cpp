// build_plan(): from a ModelSpec to the unfused plan.
#include <cmath>
#include <initializer_list>
#include <numbers>
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
    if (spec_.per_layer.width > 0) per_layer_ = per_layer_inputs(x);
    plan_.has_streams = spec_.altup.streams > 0;
    if (plan_.has_streams) x = begin_streams(x);
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) x = layer(x);
    layer_ = -1;
    if (plan_.has_streams) x = end_streams(x);
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

  // ((norm of the embedding's projection) + (the table's row)) / sqrt 2, for every layer side by side. What
  // scales the projection counts in the norm's epsilon alone.
  ValueId per_layer_inputs(ValueId embedding) {
    const auto layers = static_cast<std::uint32_t>(spec_.layers.size());
    const ValueId projected =
        matmul(embedding, WeightRole::kPerLayerModelProjection, WeightRole::kCount, layers, Stage::kNone);
    NormParams params = norm_params();
    params.eps *= spec_.hidden;
    const ValueId normed =
        norm(projected, WeightRole::kPerLayerProjectionNorm, WeightRole::kCount, Stage::kNone, params);
    const ValueId looked_up = value(plan_.values[projected].width, Stage::kNone, layers);
    op(OpKind::kEmbed, {}, {looked_up}, {WeightRole::kPerLayerEmbedding},
       EmbedParams{std::sqrt(static_cast<double>(spec_.per_layer.width))});
    return scaled(sum_of(normed, looked_up), 1 / std::numbers::sqrt2, Stage::kPerLayerInputs);
  }

  // A product with a matrix that has a number as others have a layer.
  ValueId numbered_matmul(ValueId x, WeightRole role, std::uint32_t number) {
    const ValueId y = value(plan_.values[x].width, Stage::kNone);
    op(OpKind::kMatmul, {x}, {y}, {}, MatmulParams{}).weights = {
        weights_.find(role, static_cast<int>(number))};
    return y;
  }

  ValueId stream(ValueId streams, std::uint32_t number, Stage stage = Stage::kNone) {
    return slice(streams, number * spec_.hidden, spec_.hidden, stage);
  }

  // Values of `parts` heads, scaled to the size of x.
  ValueId match_rms(ValueId parts, ValueId x) {
    constexpr double kLeast = 1e-5;  // as transformers has it
    const ValueId y = value(plan_.values[parts].width, Stage::kNone, plan_.values[parts].heads);
    op(OpKind::kMatchRms, {parts, x}, {y}, {}, MatchRmsParams{kLeast});
    return y;
  }

  // All streams beside the first, one behind the other, made by `make` of their number.
  template <typename Make>
  ValueId other_streams(const Make& make) {
    ValueId all = make(1);
    for (std::uint32_t i = 2; i < spec_.altup.streams; ++i) all = join(all, make(i), 1);
    plan_.values[all].heads = spec_.altup.streams - 1;
    return all;
  }

  ValueId begin_streams(ValueId embedding) {
    const ValueId others = other_streams(
        [&](std::uint32_t i) { return numbered_matmul(embedding, WeightRole::kAltupProjection, i - 1); });
    const ValueId streams = join(embedding, match_rms(others, embedding), 1, Stage::kAltupIn);
    plan_.values[streams].heads = spec_.altup.streams;
    return streams;
  }

  // The mean of the first stream and what the others' projections give, in its size.
  ValueId end_streams(ValueId streams) {
    const ValueId first = stream(streams, 0);
    const ValueId others =
        match_rms(other_streams([&](std::uint32_t i) {
                    return numbered_matmul(stream(streams, i), WeightRole::kAltupUnprojection, i - 1);
                  }),
                  first);
    ValueId sum = first;
    for (std::uint32_t i = 0; i + 1 < spec_.altup.streams; ++i) sum = sum_of(sum, stream(others, i));
    return scaled(sum, 1.0 / spec_.altup.streams, Stage::kNone);
  }

  ValueId sum_of(ValueId a, ValueId b, double scale = 1, Stage stage = Stage::kNone) {
    const ValueId y = value(plan_.values[a].width, stage, plan_.values[a].heads);
    op(OpKind::kAdd, {a, b}, {y}, {}, AddParams{scale});
    return y;
  }

  ValueId mix(std::vector<ValueId> inputs, double offset, std::uint32_t first, Stage stage) {
    const ValueId y = value(plan_.values[inputs[0]].width, stage, spec_.altup.streams);
    op(OpKind::kMix, std::move(inputs), {y}, {}, MixParams{spec_.altup.streams, offset, first});
    return y;
  }

  // A number for each stream, from what one of them holds: tanh(router(norm(x)) / hidden).
  ValueId modalities(ValueId x) {
    const ValueId normed = unnamed_norm(x, WeightRole::kAltupRouterNorm);
    const ValueId routed = unnamed_matmul(normed, WeightRole::kAltupRouter);
    const ValueId y = value(spec_.altup.streams, Stage::kNone);
    op(OpKind::kSoftcap, {routed}, {y}, {}, SoftcapParams{1, 1.0 / spec_.hidden});
    return y;
  }

  ValueId unnamed_matmul(ValueId x, WeightRole role) {
    return matmul(x, role, WeightRole::kCount, 1, Stage::kNone);
  }

  ValueId unnamed_norm(ValueId x, WeightRole role) {
    return norm(x, role, WeightRole::kCount, Stage::kNone, norm_params());
  }

  ValueId laurel(ValueId normed) {
    const ValueId branch =
        unnamed_matmul(unnamed_matmul(normed, WeightRole::kLaurelDown), WeightRole::kLaurelUp);
    return sum_of(normed, unnamed_norm(branch, WeightRole::kLaurelNorm), 1, Stage::kLaurelOut);
  }

  // One stream goes through the layer; what it should have been by the layer's prediction corrects them all.
  ValueId stream_layer(ValueId streams) {
    const LayerSpec& l = spec_.layers[static_cast<std::size_t>(layer_)];
    const std::uint32_t active = spec_.altup.active;
    const ValueId weights = unnamed_matmul(modalities(stream(streams, active)), WeightRole::kAltupPrediction);
    const ValueId predicted = mix({streams, streams, weights}, 0, 0, Stage::kAltupPredicted);
    const ValueId x = stream(predicted, active, Stage::kAttnInput);
    const ValueId normed = norm(x, WeightRole::kAttnNorm);
    const ValueId beside = laurel(normed);
    const ValueId attended = norm(mixer(normed, l), WeightRole::kPostAttnNorm);
    const ValueId both =
        scaled(sum_of(sum_of(x, attended), beside), 1 / std::numbers::sqrt2, Stage::kPostAttn);
    const ValueId fed = feed_forward(norm(both, WeightRole::kFfnNorm), l.ffn);
    const ValueId result = sum_of(both, norm(fed, WeightRole::kPostFfnNorm));
    const ValueId corrections = unnamed_matmul(modalities(result), WeightRole::kAltupCorrection);
    const ValueId corrected =
        mix({predicted, sum_of(result, x, -1), corrections}, 1, 0, Stage::kAltupCorrected);
    const ValueId read = spec_.altup.out_scale
                             ? scaled_by(stream(corrected, active), WeightRole::kAltupOutScale, Stage::kPleIn)
                             : stream(corrected, active, Stage::kPleIn);
    return mix({corrected, per_layer_branch(read, l.ffn.activation)}, 1, 1, Stage::kLayerOut);
  }

  ValueId slice(ValueId x, std::uint32_t begin, std::uint32_t width, Stage stage = Stage::kNone) {
    return columns(x, stage, 1, {{1, begin, width}});
  }

  ValueId join(ValueId a, ValueId b, std::uint32_t parts, Stage stage = Stage::kNone) {
    const std::uint32_t of_b = plan_.values[b].heads == parts ? 1 : parts;
    const ValueId y = value(plan_.values[a].width + plan_.values[b].width * of_b, stage, parts);
    op(OpKind::kJoin, {a, b}, {y}, {}, JoinParams{parts});
    return y;
  }

  // A norm of each head without a weight.
  ValueId plain_norm(ValueId x, Stage stage) {
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kRmsNorm, {x}, {y}, {}, NormParams{spec_.norm.eps, 0, NormKind::kRms, NormSpan::kHead});
    return y;
  }

  ValueId norm(ValueId x, WeightRole role, WeightRole bias = WeightRole::kCount,
               NormSpan span = NormSpan::kHead) {
    return norm(x, role, bias, weight_info(role).stage, norm_params(span));
  }

  NormParams norm_params(NormSpan span = NormSpan::kHead) const {
    return {spec_.norm.eps, spec_.norm.weight_offset, spec_.norm.kind, span};
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

  ValueId rope(ValueId x, const RopeSpec& spec, Stage stage, std::uint32_t begin = 0) {
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kRope, {x}, {y}, {}, RopeParams{rope_table(spec), spec.layout, begin});
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
    return sum_of(stream, branch, spec_.residual_scale, stage);
  }

  // The inputs of an attention: queries, then keys and values if the layer makes its own; and the gate of its
  // output, if it has one.
  using Heads = std::vector<ValueId>;
  struct Projected {
    Heads heads;
    std::optional<ValueId> gate;
  };

  void norm_heads(Heads& heads, const AttentionSpec& a) {
    if (a.qk_norm_plain) {
      heads[0] = plain_norm(heads[0], Stage::kQNorm);
      if (a.has_own_kv()) heads[1] = plain_norm(heads[1], Stage::kKNorm);
      return;
    }
    heads[0] = norm(heads[0], WeightRole::kQNorm, WeightRole::kQNormBias, a.qk_norm_span);
    if (a.has_own_kv()) heads[1] = norm(heads[1], WeightRole::kKNorm, WeightRole::kKNormBias, a.qk_norm_span);
  }

  Projected project_heads(ValueId normed, const AttentionSpec& a) {
    const Stage q_stage = a.output_gate ? Stage::kNone : Stage::kQProj;
    Projected made{{matmul(normed, WeightRole::kQ, WeightRole::kQBias, a.heads, q_stage)}, {}};
    Heads& heads = made.heads;
    if (a.has_own_kv()) {
      const ValueId k = matmul(normed, WeightRole::kK, WeightRole::kKBias, a.kv_heads);
      ValueId v = a.keys_as_values ? k : matmul(normed, WeightRole::kV, WeightRole::kVBias, a.kv_heads);
      if (a.v_norm) v = plain_norm(v, Stage::kVNorm);
      heads.insert(heads.end(), {scaled(k, a.key_scale), v});
    }
    if (a.output_gate) {  // each head's rows are query and gate
      made.gate = columns(heads[0], Stage::kAttnGate, 1, {{a.heads, a.head_dim, a.head_dim}});
      heads[0] = columns(heads[0], Stage::kQProj, a.heads, {{a.heads, 0, a.head_dim}});
    }
    if (a.qk_norm && !a.qk_norm_after_rope) norm_heads(heads, a);
    if (a.qkv_clip > 0) {
      for (ValueId& each : heads) each = cut(each, a.qkv_clip);
    }
    if (a.rope.rotary_dim > 0) {
      heads[0] = rope(heads[0], a.rope, Stage::kQRope);
      if (a.has_own_kv()) heads[1] = rope(heads[1], a.rope, Stage::kKRope);
    }
    if (a.qk_norm && a.qk_norm_after_rope) norm_heads(heads, a);
    heads[0] = scaled_by_position(heads[0], a);
    return made;
  }

  ValueId scaled_by_position(ValueId q, const AttentionSpec& a) {
    if (a.query_scale.every == 0) return q;
    const ValueId y = value(a.q_width(), Stage::kQScaled, a.heads);
    op(OpKind::kScaleQuery, {q}, {y}, {}, a.query_scale);
    return y;
  }

  ValueId attend(Heads heads, AttentionParams params, Stage stage, bool has_sinks = false) {
    const ValueId scores = value(0, Stage::kAttnScores, params.heads);  // width: the step's longest sequence
    const ValueId out = value(params.heads * params.out_dim(), stage, params.heads);
    std::vector<WeightRole> sinks;
    if (has_sinks) sinks.push_back(WeightRole::kSinks);
    Op& made = op(OpKind::kAttention, std::move(heads), {out}, std::move(sinks), params);
    made.emits = {scores};
    KvLayer& cache = plan_.kv_layers.back();
    cache.kv_heads = params.kv_layer < 0 ? params.kv_heads : 0, cache.head_dim = params.head_dim;
    cache.window = params.window, cache.chunked = params.chunked;
    cache.has_values = params.value_dim == 0;
    return out;
  }

  // x times a factor that is not 1.
  ValueId scaled(ValueId x, double factor, Stage stage = Stage::kNone) {
    if (factor == 1) return x;
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kSoftcap, {x}, {y}, {}, SoftcapParams{0, factor});
    return y;
  }

  ValueId cut(ValueId x, double limit) {
    const ValueId y = value(plan_.values[x].width, Stage::kNone, plan_.values[x].heads);
    op(OpKind::kSoftcap, {x}, {y}, {}, SoftcapParams{.cap = limit, .hard = true});
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
    const AttentionParams params{.heads = a.heads,
                                 .kv_heads = a.kv_heads,
                                 .head_dim = a.head_dim,
                                 .window = a.window,
                                 .scale = a.scale,
                                 .softcap = a.softcap,
                                 .chunked = a.kind == AttentionKind::kChunked,
                                 .alibi = a.alibi,
                                 .kv_layer = a.kv_source};
    if (a.is_latent()) return matmul(latent_attention(normed, a, params), WeightRole::kO, WeightRole::kOBias);
    const Projected projected = project_heads(normed, a);
    const ValueId out = attend(projected.heads, params, Stage::kAttnOut, a.sinks);
    if (!projected.gate) return matmul(out, WeightRole::kO, WeightRole::kOBias);
    const ValueId gated_out = gated(Activation::kSigmoid, {*projected.gate, out}, Stage::kAttnGated);
    return matmul(gated_out, WeightRole::kO, WeightRole::kOBias);
  }

  // The causal convolution of a recurrent half.
  ValueId convolution(ValueId x, const RecurrentSpec& r) {
    const bool plain = r.kind == RecurrentKind::kShortConvolution,
               silu = r.conv_activation == Activation::kSilu;
    const bool within = plain || silu;  // the op itself knows no other activation
    const ValueId y = value(plan_.values[x].width, within ? Stage::kConvOut : Stage::kNone);
    Op& made = op(OpKind::kConvolution, {x}, {y}, {WeightRole::kConvolution},
                  ConvolutionParams{r.taps, silu && !plain ? Activation::kSilu : Activation::kIdentity});
    if (const WeightId id = find(WeightRole::kConvolutionBias); id != kNoWeight) made.biases = {id};
    return within ? y : gated(r.conv_activation, {y}, Stage::kConvOut);
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
    return sum_of(attended, recurrent(normed, l), l.recurrent.out_scale);
  }

  // Which rows of the latent's matrices belong to a head.
  struct UpRows {
    WeightRole role;
    std::uint32_t begin, rows, stride;
    bool transposed;
  };
  static UpRows key_rows(const AttentionSpec& a, bool to_latent) {
    const LatentSpec& l = a.latent;
    const std::uint32_t own = a.head_dim - l.rope_dim;
    if (l.split_up) return {WeightRole::kKUp, 0, l.kv_rank, l.kv_rank, !to_latent};
    return {WeightRole::kKvUp, 0, own, own + l.value_dim, to_latent};
  }
  static UpRows value_rows(const AttentionSpec& a) {
    const LatentSpec& l = a.latent;
    if (l.split_up) return {WeightRole::kVUp, 0, l.value_dim, l.value_dim, false};
    const std::uint32_t own = a.head_dim - l.rope_dim;
    return {WeightRole::kKvUp, own, l.value_dim, own + l.value_dim, false};
  }

  ValueId head_matmul(ValueId x, const AttentionSpec& a, const UpRows& rows, std::uint32_t dim, Stage stage) {
    const ValueId y = value(a.heads * dim, stage, a.heads);
    op(OpKind::kHeadMatmul, {x}, {y}, {rows.role},
       HeadMatmulParams{a.heads, rows.begin, rows.rows, rows.stride, rows.transposed});
    return y;
  }

  // q_h (U_h c) = (U_h' q_h) c: queries meet the latent itself, which is all that the cache holds beside the
  // rotated key; and what a head takes of it becomes its values' sum afterwards.
  ValueId latent_attention(ValueId normed, const AttentionSpec& a, AttentionParams params) {
    const LatentSpec& l = a.latent;
    const std::uint32_t own = a.head_dim - l.rope_dim;
    ValueId q_from = normed;
    if (l.q_rank > 0)
      q_from =
          latent_norm(matmul(normed, WeightRole::kQDown, WeightRole::kQDownBias), WeightRole::kQDownNorm);
    ValueId q = matmul(q_from, l.q_rank > 0 ? WeightRole::kQUp : WeightRole::kQ, WeightRole::kCount, a.heads);
    const ValueId down = matmul(normed, WeightRole::kKvDown, WeightRole::kKvDownBias);
    const ValueId latent = latent_norm(slice(down, 0, l.kv_rank), WeightRole::kKvDownNorm);
    const ValueId turning = slice(down, l.kv_rank, l.rope_dim);
    q = scaled_by_position(rope(q, a.rope, Stage::kQRope, own), a);
    const ValueId turned = rope(turning, a.rope, Stage::kNone);
    show_heads(latent, turning, a);
    params.kv_heads = 1;
    params.head_dim = l.kv_rank + l.rope_dim;
    params.value_dim = l.kv_rank;
    const ValueId met = head_matmul(q, a, key_rows(a, true), params.head_dim, Stage::kNone);
    const ValueId taken = attend({met, join(latent, turned, 1)}, params, Stage::kNone);
    return head_matmul(taken, a, value_rows(a), l.value_dim, Stage::kAttnOut);
  }

  // Latents' norms have an epsilon of their own in transformers, whatever rms_norm_eps says.
  ValueId latent_norm(ValueId x, WeightRole role) {
    constexpr double kEps = 1e-6;
    return norm(x, role, WeightRole::kCount, weight_info(role).stage,
                {kEps, 0, NormKind::kRms, NormSpan::kHead});
  }

  // Keys and values as attention without the latent would see them. Nothing reads them but those who look.
  void show_heads(ValueId latent, ValueId turning, const AttentionSpec& a) {
    const std::uint32_t own = a.head_dim - a.latent.rope_dim;
    const ValueId keys = head_matmul(latent, a, key_rows(a, false), own, Stage::kNone);
    rope(join(keys, turning, a.heads, Stage::kKProj), a.rope, Stage::kKRope, own);
    head_matmul(latent, a, value_rows(a), a.latent.value_dim, Stage::kVProj);
  }

  static GatedParams gated_params(const FfnSpec& f) {
    return {f.activation, f.xielu, f.clamp, f.alpha, f.up_offset};
  }

  ValueId feed_forward(ValueId normed, const FfnSpec& f) {
    return f.experts > 0 ? experts(normed, normed, f) : dense(normed, f, Stage::kFfnOut);
  }

  // Of x, the residual stream, three norms: what a feed-forward reads, what experts read, and their router.
  ValueId dense_and_experts(ValueId x, const FfnSpec& f) {
    const ValueId mlp =
        norm(dense(norm(x, WeightRole::kFfnNorm), f, Stage::kFfnMlp), WeightRole::kDensePostNorm);
    const ValueId read = norm(x, WeightRole::kExpertsNorm);
    const ValueId chosen =
        norm(experts(read, f.router.own_norm ? router_input(x) : read, f), WeightRole::kExpertsPostNorm);
    return sum_of(mlp, chosen, 1, Stage::kFfnOut);
  }

  ValueId router_input(ValueId x) {
    const ValueId normed = value(spec_.hidden, Stage::kNone);
    op(OpKind::kRmsNorm, {x}, {normed}, {},
       NormParams{.eps = spec_.norm.eps, .factor = 1 / std::sqrt(static_cast<double>(spec_.hidden))});
    return scaled_by(normed, WeightRole::kRouterNorm, Stage::kRouterNormed);
  }

  ValueId dense(ValueId normed, const FfnSpec& f, Stage stage) {
    std::vector<ValueId> inputs;
    if (f.gated)
      inputs.push_back(scaled(matmul(normed, WeightRole::kGate, WeightRole::kGateBias), f.gate_scale));
    inputs.push_back(matmul(normed, WeightRole::kUp, WeightRole::kUpBias));
    if (f.gated && f.gate_cutoff > 0) {
      const ValueId cut = value(plan_.values[inputs[0]].width, Stage::kNone);
      op(OpKind::kCutoff, {inputs[0]}, {cut}, {}, CutoffParams{f.gate_cutoff});
      inputs[0] = cut;
    }
    const ValueId act = value(plan_.values[inputs[0]].width, Stage::kFfnAct);
    op(OpKind::kGated, std::move(inputs), {act}, {}, gated_params(f));
    if (f.out_scale == 1) return matmul(act, WeightRole::kDown, WeightRole::kDownBias, 1, stage);
    const ValueId raw = matmul(act, WeightRole::kDown, WeightRole::kDownBias, 1, Stage::kNone);
    return scaled(raw, f.out_scale, stage);
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

  // The names of what experts compute; beside a feed-forward, which has the usual ones, their own.
  struct ExpertStages {
    Stage gate = Stage::kFfnGate, up = Stage::kFfnUp, act = Stage::kFfnAct, out = Stage::kFfnOut;
  };

  // `routed` is what the router reads.
  ValueId experts(ValueId x, ValueId routed, const FfnSpec& f) {
    ExpertStages stages;
    if (f.dense_width > 0) stages = {Stage::kMoeGate, Stage::kMoeUp, Stage::kMoeAct, Stage::kMoeOut};
    const auto [ids, weights] = route(routed, f);
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
    for (std::size_t i = 0; i < inputs.size(); ++i)
      plan_.values[inputs[i]].stage = i + 1 < inputs.size() ? stages.gate : stages.up;
    const ValueId act = value(f.width * chosen, stages.act, chosen);
    op(OpKind::kGated, std::move(inputs), {act}, {}, gated_params(f));
    const ValueId given = expert_matmul(act, ids, f, WeightRole::kDownExperts, WeightRole::kDownExpertsBias);
    inputs = {given};
    if (!f.router.on_input) inputs.push_back(weights);
    if (f.latent_width > 0) return from_latent(x, std::move(inputs), f);
    if (f.shared_width > 0) inputs.push_back(shared_expert(x, f));
    const ValueId out = value(spec_.hidden, stages.out);
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
    return sum_of(out, shared_expert(x, f), 1, Stage::kFfnOut);
  }

  ValueId layer(ValueId x) {
    const LayerSpec& l = spec_.layers[static_cast<std::size_t>(layer_)];
    if (plan_.has_streams) return stream_layer(x);
    if (!l.has_attention && !l.recurrent.exists()) return feed_forward_layer(x, l);
    const ValueId input = x;
    const ValueId normed = l.attn_norm ? norm(x, WeightRole::kAttnNorm, WeightRole::kAttnNormBias) : x;
    ValueId branch = mixer(normed, l);
    if (l.post_attn_norm) branch = norm(branch, WeightRole::kPostAttnNorm);
    if (!l.has_ffn) return add(x, branch, Stage::kLayerOut);
    x = add(x, branch, l.parallel ? Stage::kNone : Stage::kPostAttn);
    ValueId read = l.parallel ? (l.ffn_norm ? input : normed) : x;
    if (l.parallel && l.attn_norm && !l.ffn_norm) plan_.values[normed].also = Stage::kFfnNormed;
    const bool both = l.ffn.dense_width > 0;
    if (l.ffn_norm && !both) read = norm(read, WeightRole::kFfnNorm, WeightRole::kFfnNormBias);
    branch = both ? dense_and_experts(x, l.ffn) : feed_forward(read, l.ffn);
    if (l.post_ffn_norm) branch = norm(branch, WeightRole::kPostFfnNorm);
    const bool embeds = spec_.per_layer.width > 0;
    x = add(x, branch, embeds ? Stage::kPleIn : l.out_scale ? Stage::kNone : Stage::kLayerOut);
    if (embeds)
      x = add(x, per_layer_branch(x, l.ffn.activation), l.out_scale ? Stage::kNone : Stage::kLayerOut);
    return l.out_scale ? scaled_by(x, WeightRole::kLayerScale, Stage::kLayerOut) : x;
  }

  // The layer's part of per_layer_inputs, gated by what `x` makes of it.
  ValueId per_layer_branch(ValueId x, Activation activation) {
    const std::uint32_t width = spec_.per_layer.width;
    const ValueId gate = matmul(x, WeightRole::kPleGate);
    const ValueId own = slice(per_layer_, static_cast<std::uint32_t>(layer_) * width, width);
    const ValueId act = value(width, Stage::kPleAct);
    op(OpKind::kGated, {gate, own}, {act}, {}, GatedParams{activation});
    return norm(matmul(act, WeightRole::kPleProjection), WeightRole::kPleNorm);
  }

  ValueId scaled_by(ValueId x, WeightRole role, Stage stage) {
    const ValueId y = value(plan_.values[x].width, stage, plan_.values[x].heads);
    op(OpKind::kScale, {x}, {y}, {role}, ScaleParams{});
    return y;
  }

  const ModelSpec& spec_;
  const Weights& weights_;
  const std::uint64_t context_;
  Plan plan_;
  std::vector<RopeSpec> rope_specs_;
  ValueId per_layer_ = 0;  // per_layer_inputs, where there are any
  int layer_ = -1;
  Rows rows_ = Rows::kAll;
};

}  // namespace

Result<Plan> build_plan(const ModelSpec& spec, const Weights& weights, std::uint64_t context) {
  return Builder(spec, weights, context).build();
}

}  // namespace doppler
