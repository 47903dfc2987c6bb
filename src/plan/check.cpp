// check_plan(): everything that backends rely on in a plan.
#include <algorithm>
#include <array>

#include "plan/plan.h"

namespace doppler {
namespace {

// The inputs, weights and parameters that an op kind must have. kAny weights: the kind's own rule checks
// them, and what kAny inputs are beyond their number, which is one to three.
struct OpShape {
  OpKind kind;
  std::string_view name;
  int inputs, weights;
  std::size_t params;  // index in OpParams
};
constexpr int kAny = -1;
constexpr std::array<OpShape, static_cast<std::size_t>(OpKind::kCount)> kShapes = {{
    {OpKind::kEmbed, "embed", 0, kAny, 1},
    {OpKind::kRmsNorm, "rms_norm", 1, kAny, 2},
    {OpKind::kMatmul, "matmul", 1, kAny, 3},
    {OpKind::kRope, "rope", 1, 0, 4},
    {OpKind::kAttention, "attention", kAny, kAny, 5},
    {OpKind::kAdd, "add", 2, 0, 8},
    {OpKind::kGated, "gated", kAny, 0, 6},
    {OpKind::kGatedMatmul, "gated_matmul", 1, 2, 6},
    {OpKind::kSelect, "select", 1, 0, 0},
    {OpKind::kSoftcap, "softcap", 1, 0, 7},
    {OpKind::kScaleQuery, "scale_query", 1, 0, 9},
    {OpKind::kChoose, "choose_experts", 1, kAny, kPlaceOf<RouteParams>},
    {OpKind::kWeigh, "weigh_experts", 2, kAny, kPlaceOf<RouteParams>},
    {OpKind::kSpread, "spread", 2, 0, kPlaceOf<SpreadParams>},
    {OpKind::kExpertMatmul, "expert_matmul", 2, kAny, kPlaceOf<ExpertParams>},
    {OpKind::kExpertSum, "expert_sum", kAny, 0, kPlaceOf<ExpertSumParams>},
    {OpKind::kColumns, "columns", 1, 0, kPlaceOf<ColumnsParams>},
    {OpKind::kTimeStep, "time_step", 1, 1, kPlaceOf<TimeStepParams>},
    {OpKind::kDecay, "decay", 1, 1, kPlaceOf<DecayParams>},
    {OpKind::kConvolution, "convolution", 1, 1, kPlaceOf<ConvolutionParams>},
    {OpKind::kDeltaRule, "delta_rule", 5, 0, kPlaceOf<DeltaParams>},
    {OpKind::kScan, "scan", 5, 1, kPlaceOf<ScanParams>},
    {OpKind::kChannelScan, "channel_scan", 4, 2, kPlaceOf<ScanParams>},
    {OpKind::kScale, "scale", 1, 1, kPlaceOf<ScaleParams>},
    {OpKind::kJoin, "join", 2, 0, kPlaceOf<JoinParams>},
    {OpKind::kHeadMatmul, "head_matmul", 1, 1, kPlaceOf<HeadMatmulParams>},
    {OpKind::kMix, "mix", kAny, 0, kPlaceOf<MixParams>},
    {OpKind::kMatchRms, "match_rms", 2, 0, kPlaceOf<MatchRmsParams>},
    {OpKind::kCutoff, "cutoff", 1, 0, kPlaceOf<CutoffParams>},
}};

bool is_product(OpKind kind) {
  return kind == OpKind::kMatmul || kind == OpKind::kExpertMatmul;
}

class Checker {
 public:
  Checker(const Plan& plan, const Weights& weights)
      : plan_(plan), weights_(weights), written_(plan.values.size()), emitted_(plan.values.size()) {}

  Status check() {
    for (index_ = 0; index_ < plan_.ops.size(); ++index_) {
      const Op& op = plan_.ops[index_];
      DOPPLER_TRY(check_form(op));
      DOPPLER_TRY(check_rows(op));
      DOPPLER_TRY(check_widths(op));
    }
    if (plan_.logits >= written_.size() || !written_[plan_.logits]) return wrong("never writes its logits");
    const Value& logits = plan_.values[plan_.logits];
    if (logits.width != plan_.vocab_size || logits.rows != Rows::kWanted) {
      return wrong("has logits that are not one row of the vocabulary for each wanted token");
    }
    return {};
  }

 private:
  Status wrong(std::string_view what) const {
    const Op* op = index_ < plan_.ops.size() ? &plan_.ops[index_] : nullptr;
    return fail(ErrorCode::kInternal,
                "The plan's op {} ({}, layer {}) {}. This is a bug in the plan builder or a pass.", index_,
                op ? op_name(op->kind) : "end", op ? op->layer : -1, what);
  }

  Status check_form(const Op& op) {
    const OpShape& shape = kShapes[static_cast<std::size_t>(op.kind)];
    const std::size_t most = op.kind == OpKind::kGated ? 2 : 3;
    const bool counted = shape.inputs == kAny ? op.inputs.size() >= 1 && op.inputs.size() <= most
                                              : shape.inputs == static_cast<int>(op.inputs.size());
    if (!counted) return wrong("has the wrong number of inputs");
    if (shape.weights != kAny && shape.weights != static_cast<int>(op.weights.size()))
      return wrong("has the wrong number of weights");
    if (shape.params != op.params.index()) return wrong("has the parameters of another kind");
    if (op.outputs.empty() || (!is_product(op.kind) && op.outputs.size() != 1))
      return wrong("has the wrong number of outputs");
    if (is_product(op.kind) && op.weights.size() != op.outputs.size())
      return wrong("needs one weight per output");
    if (!op.biases.empty() && op.biases.size() != op.weights.size())
      return wrong("has biases that do not match its weights");
    for (const ValueId id : op.inputs) {
      if (id >= written_.size()) return wrong("reads a value that does not exist");
      if (!written_[id]) return wrong(fmt::format("reads {} before it is written", value_name(plan_, id)));
    }
    for (const auto* list : {&op.outputs, &op.emits}) {
      for (const ValueId id : *list) {
        if (id >= written_.size()) return wrong("writes a value that does not exist");
        if (written_[id] || emitted_[id])
          return wrong(fmt::format("writes {} a second time", value_name(plan_, id)));
        if (plan_.values[id].heads == 0)
          return wrong(fmt::format("writes {} of no heads", value_name(plan_, id)));
        // Values that are only emitted exist only while a tap looks, so nothing may read them.
        (list == &op.outputs ? written_ : emitted_)[id] = true;
      }
    }
    for (const WeightId id : op.weights) {
      if (id >= weights_.tensors().size()) return wrong("uses a weight that does not exist");
    }
    return {};
  }

  const Value& in(const Op& op, std::size_t i) const { return plan_.values[op.inputs[i]]; }
  const Value& out(const Op& op, std::size_t i = 0) const { return plan_.values[op.outputs[i]]; }

  bool weight_is(WeightId id, std::uint64_t rows, std::uint64_t cols) const {
    const Shape& shape = weights_[id].shape;
    return shape.size() == 2 && shape[0] == rows && shape[1] == cols;
  }
  bool vector_is(WeightId id, std::uint64_t width) const {
    const Shape& shape = weights_[id].shape;
    return shape.size() == 1 && shape[0] == width;
  }

  Status check_matmul(const Op& op) const {
    for (std::size_t i = 0; i < op.weights.size(); ++i) {
      const std::uint32_t rows = op.kind == OpKind::kMatmul ? out(op, i).width : out(op).width;
      if (!weight_is(op.weights[i], rows, in(op, 0).width))
        return wrong("has a weight whose shape is not output x input");
      const WeightId bias = op.biases.empty() ? kNoWeight : op.biases[i];
      if (bias != kNoWeight && (bias >= weights_.tensors().size() || !vector_is(bias, rows)))
        return wrong("has a bias of the wrong width");
    }
    return {};
  }

  // Values have rows for all tokens up to the one select, and for the wanted ones after it.
  Status check_rows(const Op& op) const {
    const bool select = op.kind == OpKind::kSelect;
    const bool all_tokens = op.kind == OpKind::kEmbed || op.kind == OpKind::kAttention ||
                            op.kind == OpKind::kScaleQuery || keeps_state(op.kind) || select;
    const Rows before = op.inputs.empty() ? Rows::kAll : in(op, 0).rows;
    const Rows after = select ? Rows::kWanted : before;
    const auto have = [&](const std::vector<ValueId>& ids, Rows rows) {
      return std::all_of(ids.begin(), ids.end(), [&](ValueId id) { return plan_.values[id].rows == rows; });
    };
    if (all_tokens && before != Rows::kAll) return wrong("needs rows for all tokens");
    if (!have(op.inputs, before)) return wrong("reads values with rows for different tokens");
    if (!have(op.outputs, after) || !have(op.emits, after))
      return wrong("changes which tokens it has rows for");
    return {};
  }

  Status check_attention(const Op& op) const {
    const auto& a = std::get<AttentionParams>(op.params);
    const std::uint64_t q = std::uint64_t{a.heads} * a.head_dim, kv = std::uint64_t{a.kv_heads} * a.head_dim;
    const bool keys_only = a.value_dim > 0, reads_another = a.kv_layer >= 0;
    if (op.inputs.size() != (reads_another ? 1u : keys_only ? 2u : 3u))
      return wrong("has the wrong number of inputs");
    bool fits = a.head_dim > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0 && in(op, 0).width == q &&
                a.value_dim <= a.head_dim && out(op).width == std::uint64_t{a.heads} * a.out_dim();
    for (std::size_t i = 1; i < op.inputs.size(); ++i) fits = fits && in(op, i).width == kv;
    if (!fits) return wrong("has heads that do not match its inputs");
    if (op.layer < 0 || static_cast<std::size_t>(op.layer) >= plan_.kv_layers.size() ||
        a.cache_of(op.layer) > static_cast<std::size_t>(op.layer)) {
      return wrong("has no layer in the cache");
    }
    if (op.weights.size() > 1 || (op.weights.size() == 1 && !vector_is(op.weights[0], a.heads)))
      return wrong("has sinks that are not one for each head");
    const KvLayer& cache = plan_.kv_layers[a.cache_of(op.layer)];
    const bool cached = cache.kv_heads == a.kv_heads && cache.head_dim == a.head_dim &&
                        cache.window == a.window && cache.chunked == a.chunked &&
                        cache.has_values != keys_only;
    return cached ? Status{} : wrong("does not match its layer in the cache");
  }

  // Of logits, choices and the chosen experts' weights.
  Status check_route(const Op& op) const {
    const RouterSpec& r = std::get<RouteParams>(op.params).router;
    const std::uint32_t experts = in(op, 0).width;
    const bool possible = r.top_k > 0 && r.groups > 0 && experts % r.groups == 0 && r.kept_groups > 0 &&
                          r.kept_groups <= r.groups && r.top_k <= experts / r.groups * r.kept_groups &&
                          r.group_best > 0;
    if (!possible) return wrong("chooses more experts than there are");
    if (r.score == RouterScore::kSparseMixer && r.top_k != 2) return wrong("mixes other than two experts");
    for (const Value* v : {&out(op), op.inputs.size() > 1 ? &in(op, 1) : &out(op)}) {
      if (v->width != r.top_k) return wrong("has not one value for each chosen expert");
    }
    const bool needs = op.kind == OpKind::kChoose ? r.correction : r.expert_scale;
    const bool fits = op.weights.size() == (needs ? 1u : 0u) && (!needs || vector_is(op.weights[0], experts));
    return fits ? Status{} : wrong("has not one weight for each expert");
  }

  Status check_expert_matmul(const Op& op) const {
    const auto& p = std::get<ExpertParams>(op.params);
    const std::uint64_t x = in(op, 0).width;
    if (p.chosen == 0 || p.experts < p.chosen || in(op, 1).width != p.chosen)
      return wrong("has not one id for each chosen expert");
    for (std::size_t i = 0; i < op.weights.size(); ++i) {
      const WeightId bias = op.biases.empty() ? kNoWeight : op.biases[i];
      const std::size_t last = weights_.tensors().size() - 1;
      const bool exist = op.weights[i] + std::uint64_t{p.experts} - 1 <= last &&
                         (bias == kNoWeight || bias + std::uint64_t{p.experts} - 1 <= last);
      if (!exist) return wrong("uses experts that do not exist");
      if (out(op, i).width % p.chosen != 0)
        return wrong("has an output without a part for each chosen expert");
      const std::uint64_t rows = out(op, i).width / p.chosen;
      for (WeightId e = 0; e < p.experts; ++e) {
        const bool fits = weight_is(op.weights[i] + e, rows, x) ||
                          (x % p.chosen == 0 && weight_is(op.weights[i] + e, rows, x / p.chosen));
        if (!fits) return wrong("has a weight whose shape is not output x input");
        if (bias != kNoWeight && !vector_is(bias + e, rows)) return wrong("has a bias of the wrong width");
      }
    }
    return {};
  }

  Status check_spread(const Op& op) const {
    const std::uint32_t chosen = std::get<SpreadParams>(op.params).chosen;
    const bool fits = in(op, 1).width == chosen && out(op).width == std::uint64_t{in(op, 0).width} * chosen;
    return fits ? Status{} : wrong("has not one copy for each weight");
  }

  Status check_expert_sum(const Op& op) const {
    const auto& p = std::get<ExpertSumParams>(op.params);
    if (op.inputs.size() != 1u + p.weighted + p.adds) return wrong("has the wrong number of inputs");
    const bool fits = in(op, 0).width == std::uint64_t{out(op).width} * p.chosen &&
                      (!p.weighted || in(op, 1).width == p.chosen) &&
                      (!p.adds || plan_.values[op.inputs.back()].width == out(op).width);
    return fits ? Status{} : wrong("has not one part for each chosen expert");
  }

  // A gate may be one value for the whole row.
  Status check_gated(const Op& op) const {
    if (std::get<GatedParams>(op.params).activation == Activation::kXielu && op.inputs.size() > 1)
      return wrong("multiplies xIELU, which has no gate");
    const auto& p = std::get<GatedParams>(op.params);
    if (!p.is_plain() && (p.activation != Activation::kSilu || op.inputs.size() != 2 || !(p.clamp >= 0)))
      return wrong("clamps or shifts what only silu of a gate has");
    const bool one = op.inputs.size() == 2 && in(op, 0).width == 1;
    const bool fits = (one || in(op, 0).width == out(op).width) &&
                      (op.inputs.size() == 1 || in(op, 1).width == out(op).width);
    return fits ? Status{} : wrong("combines values of different widths");
  }

  Status check_norm(const Op& op) const {
    const std::uint32_t width = out(op).width;
    if (in(op, 0).width != width || width % out(op).heads != 0) return wrong("changes the width");
    const bool one_for_all = std::get<NormParams>(op.params).span == NormSpan::kHead;
    const auto fits = [&](WeightId id) { return vector_is(id, one_for_all ? width / out(op).heads : width); };
    if (op.weights.size() > 1) return wrong("has the wrong number of weights");
    if (op.weights.empty()) return op.biases.empty() ? Status{} : wrong("has a bias without a weight");
    if (!fits(op.weights[0])) return wrong("has a weight of the wrong width");
    if (op.biases.empty() || op.biases[0] == kNoWeight) return {};
    const bool exists = op.biases[0] < weights_.tensors().size();
    return exists && fits(op.biases[0]) ? Status{} : wrong("has a bias of the wrong width");
  }

  Status check_columns(const Op& op) const {
    std::uint64_t width = 0;
    for (const ColumnRange& range : std::get<ColumnsParams>(op.params).ranges) {
      if (range.width == 0) continue;
      const bool fits = range.groups > 0 && in(op, 0).width % range.groups == 0 &&
                        std::uint64_t{range.first} + range.width <= in(op, 0).width / range.groups;
      if (!fits) return wrong("takes columns that its input does not have");
      width += std::uint64_t{range.groups} * range.width;
    }
    return width == out(op).width ? Status{} : wrong("takes other columns than its output holds");
  }

  Status check_combined(const Op& op) const {
    const std::uint64_t x = in(op, 0).width, y = out(op).width;
    if (const auto* join = std::get_if<JoinParams>(&op.params)) {
      const std::uint64_t parts = join->parts, b = in(op, 1).width;
      const bool fits = parts > 0 && x % parts == 0 && (y == x + b || y == x + b * parts) && y % parts == 0;
      return fits ? Status{} : wrong("joins parts that do not fill its output");
    }
    if (const auto* mix = std::get_if<MixParams>(&op.params)) {
      const std::uint64_t n = mix->streams, part = n == 0 ? 0 : x / n;
      bool fits = op.inputs.size() >= 2 && part > 0 && x % n == 0 && y == x && in(op, 1).width % part == 0;
      if (fits && op.inputs.size() == 3) fits = in(op, 2).width == n * (in(op, 1).width / part);
      return fits ? Status{} : wrong("mixes streams that do not match its inputs");
    }
    if (std::holds_alternative<MatchRmsParams>(op.params)) {
      const bool fits = y == x && x % in(op, 0).heads == 0;
      return fits ? Status{} : wrong("changes the width");
    }
    const Shape& weight = weights_[op.weights[0]].shape;
    const bool one_or_each = weight.size() == 1 && (weight[0] == 1 || weight[0] == y);
    return x == y && one_or_each ? Status{} : wrong("has a weight of the wrong width");
  }

  Status check_head_matmul(const Op& op) const {
    const auto& p = std::get<HeadMatmulParams>(op.params);
    const TensorView& weight = weights_[op.weights[0]];
    if (p.heads == 0 || p.rows == 0 || std::uint64_t{p.begin} + p.rows > p.stride ||
        weight.rows() != std::uint64_t{p.heads} * p.stride)
      return wrong("has a weight whose rows are not those of its heads");
    const std::uint64_t cols = weight.cols(), x = in(op, 0).width, y = out(op).width;
    const std::uint64_t takes = p.transposed ? p.rows : cols, gives = p.transposed ? cols : p.rows;
    const bool shared = x == takes;
    if ((!shared && x % p.heads != 0) || y % p.heads != 0) return wrong("has heads that do not divide a row");
    const std::uint64_t from = shared ? x : x / p.heads;
    const bool fits = from >= takes && y / p.heads == gives + (from - takes);
    return fits ? Status{} : wrong("has a weight whose shape is not output x input");
  }

  const KvLayer* cached(const Op& op) const {
    const bool exists = op.layer >= 0 && static_cast<std::size_t>(op.layer) < plan_.kv_layers.size();
    return exists ? &plan_.kv_layers[static_cast<std::size_t>(op.layer)] : nullptr;
  }

  Status check_convolution(const Op& op) const {
    const std::uint32_t taps = std::get<ConvolutionParams>(op.params).taps, width = out(op).width;
    if (taps == 0 || in(op, 0).width != width || !weight_is(op.weights[0], width, taps))
      return wrong("has a weight whose shape is not channels x taps");
    const WeightId bias = op.biases.empty() ? kNoWeight : op.biases[0];
    if (bias != kNoWeight && (bias >= weights_.tensors().size() || !vector_is(bias, width)))
      return wrong("has a bias of the wrong width");
    const KvLayer* layer = cached(op);
    const bool kept = layer != nullptr && layer->conv_rows == taps - 1 && layer->conv_channels == width;
    return kept ? Status{} : wrong("does not match its layer in the cache");
  }

  // Every head of `heads` keeps `per_head` values.
  Status check_state(const Op& op, std::uint64_t heads, std::uint64_t per_head) const {
    const KvLayer* layer = cached(op);
    const bool kept = layer != nullptr && layer->state == heads * per_head;
    return kept ? Status{} : wrong("does not match its layer in the cache");
  }

  Status check_delta(const Op& op) const {
    const auto& p = std::get<DeltaParams>(op.params);
    const std::uint64_t keys = std::uint64_t{p.key_heads} * p.key_dim,
                        values = std::uint64_t{p.heads} * p.value_dim;
    const bool fits = keys > 0 && values > 0 && p.heads % p.key_heads == 0 && in(op, 0).width == keys &&
                      in(op, 1).width == keys && in(op, 2).width == values && in(op, 3).width == p.heads &&
                      in(op, 4).width == p.heads && out(op).width == values;
    if (!fits) return wrong("has heads that do not match its inputs");
    return check_state(op, p.heads, std::uint64_t{p.key_dim} * p.value_dim);
  }

  Status check_scan(const Op& op) const {
    const auto& p = std::get<ScanParams>(op.params);
    const bool channels = op.kind == OpKind::kChannelScan;
    const std::uint64_t inner = std::uint64_t{p.heads} * p.head_dim,
                        states = std::uint64_t{p.groups} * p.states;
    bool fits = inner > 0 && states > 0 && p.heads % p.groups == 0 && in(op, 0).width == inner &&
                in(op, 1).width == states && in(op, 2).width == states && in(op, 3).width == p.heads &&
                out(op).width == inner && vector_is(op.weights.back(), p.heads);
    if (channels)
      fits = fits && p.head_dim == 1 && p.groups == 1 && weight_is(op.weights[0], p.heads, p.states);
    else
      fits = fits && in(op, 4).width == p.heads;
    if (!fits) return wrong("has heads that do not match its inputs or weights");
    return check_state(op, p.heads, std::uint64_t{p.head_dim} * p.states);
  }

  Status check_sum_like(const Op& op) const {
    for (const ValueId id : op.inputs) {
      if (plan_.values[id].width != out(op).width) return wrong("combines values of different widths");
    }
    const auto* scale = std::get_if<PositionScale>(&op.params);
    return scale == nullptr || scale->every > 0 ? Status{} : wrong("scales by steps of no positions");
  }

  Status check_widths(const Op& op) const {
    switch (op.kind) {
      case OpKind::kEmbed: {
        if (op.weights.empty() || op.weights.size() > 2) return wrong("has the wrong number of weights");
        const Shape& table = weights_[op.weights[0]].shape;
        const bool rows = table[0] == plan_.vocab_size || (out(op).stage != Stage::kEmbedOut && table[0] > 0);
        if (table.size() != 2 || !rows || table[1] != out(op).width)
          return wrong("has an embedding of the wrong shape");
        const bool fits = op.weights.size() == 1 || weights_[op.weights[1]].shape.back() == out(op).width;
        return fits ? Status{} : wrong("has learned positions of the wrong width");
      }
      case OpKind::kRmsNorm:
        return check_norm(op);
      case OpKind::kMatmul:
      case OpKind::kGatedMatmul:
        return check_matmul(op);
      case OpKind::kRope: {
        const auto table = std::get<RopeParams>(op.params).table;
        if (table >= plan_.rope_tables.size()) return wrong("uses a rope table that does not exist");
        const std::size_t turns = 2 * plan_.rope_tables[table].inverse_frequency.size();
        const bool fits = in(op, 0).width == out(op).width &&
                          std::get<RopeParams>(op.params).begin + turns <= out(op).width / out(op).heads;
        return fits ? Status{} : wrong("turns more dims than a head has");
      }
      case OpKind::kAttention:
        return check_attention(op);
      case OpKind::kHeadMatmul:
        return check_head_matmul(op);
      case OpKind::kScale:
      case OpKind::kJoin:
      case OpKind::kMix:
      case OpKind::kMatchRms:
        return check_combined(op);
      case OpKind::kGated:
        return check_gated(op);
      case OpKind::kChoose:
      case OpKind::kWeigh:
        return check_route(op);
      case OpKind::kSpread:
        return check_spread(op);
      case OpKind::kExpertMatmul:
        return check_expert_matmul(op);
      case OpKind::kExpertSum:
        return check_expert_sum(op);
      case OpKind::kColumns:
        return check_columns(op);
      case OpKind::kConvolution:
        return check_convolution(op);
      case OpKind::kDeltaRule:
        return check_delta(op);
      case OpKind::kScan:
      case OpKind::kChannelScan:
        return check_scan(op);
      case OpKind::kTimeStep:
      case OpKind::kDecay:
        if (!vector_is(op.weights[0], out(op).width)) return wrong("has a weight of the wrong width");
        [[fallthrough]];
      default:
        return check_sum_like(op);
    }
  }

  const Plan& plan_;
  const Weights& weights_;
  std::vector<bool> written_, emitted_;
  std::size_t index_ = 0;
};

}  // namespace

std::string_view op_name(OpKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kShapes.size() ? kShapes[index].name : "unknown op";
}

bool keeps_state(OpKind kind) {
  return kind == OpKind::kConvolution || kind == OpKind::kDeltaRule || kind == OpKind::kScan ||
         kind == OpKind::kChannelScan;
}

bool is_recurrent(std::span<const KvLayer> layers) {
  return std::ranges::any_of(layers, [](const KvLayer& layer) { return layer.recurrent_values() > 0; });
}

std::string op_title(const Plan& plan, const Op& op) {
  std::string outputs;
  for (const ValueId id : op.outputs) {
    const Stage stage = plan.values[id].stage;
    if (stage == Stage::kNone) continue;
    outputs += outputs.empty() ? ' ' : '+';
    outputs += stage_name(stage);
  }
  return std::string(op_name(op.kind)) + outputs;
}

std::string value_name(const Plan& plan, ValueId id) {
  const Value& value = plan.values[id];
  return value.stage == Stage::kNone ? fmt::format("v{}", id) : stage_key(value.stage, value.layer);
}

Status check_plan(const Plan& plan, const Weights& weights) {
  return Checker(plan, weights).check();
}

}  // namespace doppler
