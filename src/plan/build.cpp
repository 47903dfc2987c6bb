// build_plan(): from a ModelSpec to the unfused plan.
#include <array>
#include <map>

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
    const ValueId y = value(plan_.values[x].width, weight_info(role).stage, plan_.values[x].heads);
    Op& made = op(OpKind::kRmsNorm, {x}, {y}, {role},
                  NormParams{spec_.norm.eps, spec_.norm.weight_offset, spec_.norm.kind, span});
    if (const WeightId id = find(bias); id != kNoWeight) made.biases = {id};
    return y;
  }

  WeightId find(WeightRole role) const {
    return role == WeightRole::kCount ? kNoWeight : weights_.find(role, layer_);
  }

  ValueId matmul(ValueId x, WeightRole role, WeightRole bias = WeightRole::kCount, std::uint32_t heads = 1) {
    const auto width = static_cast<std::uint32_t>(weight_shape(spec_, role, layer_)[0]);
    const ValueId y = value(width, weight_info(role).stage, heads);
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

  ValueId attention(ValueId normed, const AttentionSpec& a) {
    ValueId q = matmul(normed, WeightRole::kQ, WeightRole::kQBias, a.heads);
    ValueId k = matmul(normed, WeightRole::kK, WeightRole::kKBias, a.kv_heads);
    const ValueId v = matmul(normed, WeightRole::kV, WeightRole::kVBias, a.kv_heads);
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
    plan_.kv_layers.push_back({a.kv_heads, a.head_dim, a.window, chunked});
    return matmul(out, WeightRole::kO, WeightRole::kOBias);
  }

  static GatedParams gated_params(const FfnSpec& f) {
    return {f.activation, f.xielu, f.clamp, f.alpha, f.up_offset};
  }

  ValueId feed_forward(ValueId normed, const FfnSpec& f) {
    if (f.experts > 0) return experts(normed, f);
    std::vector<ValueId> inputs;
    if (f.gated) inputs.push_back(matmul(normed, WeightRole::kGate, WeightRole::kGateBias));
    inputs.push_back(matmul(normed, WeightRole::kUp, WeightRole::kUpBias));
    const ValueId act = value(f.width, Stage::kFfnAct);
    op(OpKind::kGated, std::move(inputs), {act}, {}, gated_params(f));
    return matmul(act, WeightRole::kDown, WeightRole::kDownBias);
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
    ValueId read = x;
    if (f.router.on_input) {
      read = value(spec_.hidden * chosen, Stage::kExpertInputs, chosen);
      op(OpKind::kSpread, {x, weights}, {read}, {}, SpreadParams{chosen});
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
    if (f.shared_width > 0) inputs.push_back(shared_expert(x, f));
    const ValueId out = value(spec_.hidden, Stage::kFfnOut);
    op(OpKind::kExpertSum, std::move(inputs), {out}, {},
       ExpertSumParams{chosen, !f.router.on_input, f.shared_width > 0});
    return out;
  }

  ValueId layer(ValueId x) {
    const LayerSpec& l = spec_.layers[static_cast<std::size_t>(layer_)];
    const ValueId input = x;
    const ValueId normed = l.attn_norm ? norm(x, WeightRole::kAttnNorm, WeightRole::kAttnNormBias) : x;
    ValueId branch = attention(normed, l.attention);
    if (l.post_attn_norm) branch = norm(branch, WeightRole::kPostAttnNorm);
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
