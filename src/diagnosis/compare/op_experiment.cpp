#include "diagnosis/compare/op_experiment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "plan/residual.h"

namespace doppler::diagnosis {
namespace {

// The rows of k and v, as if the cache held the prompt.
class RowsAsCache final : public reference::KeyValues {
 public:
  RowsAsCache(const OpSetup::Rows& keys, const OpSetup::Rows& values, std::size_t head_dim)
      : keys_(keys), values_(values), head_dim_(head_dim) {}
  const float* key(std::size_t, std::uint32_t kv_head, std::uint64_t position) const override {
    return &keys_.data[position * keys_.width + kv_head * head_dim_];
  }
  const float* value(std::size_t, std::uint32_t kv_head, std::uint64_t position) const override {
    return &values_.data[position * values_.width + kv_head * head_dim_];
  }

 private:
  const OpSetup::Rows &keys_, &values_;
  const std::size_t head_dim_;
};

// The state of an op by itself: its tokens are one sequence, or several one after the other, each of which
// begins at position 0.
class OwnState final : public reference::RecurrentState {
 public:
  explicit OwnState(const OpSetup& s) {
    if (const auto* convolution = std::get_if<ConvolutionParams>(&s.params))
      values_.resize((convolution->taps - 1) * s.width);
    else if (const auto* delta = std::get_if<DeltaParams>(&s.params))
      values_.resize(s.width * delta->key_dim);
    else if (const auto* scan = std::get_if<ScanParams>(&s.params))
      values_.resize(s.width * scan->states);
  }
  float* of(std::size_t) override { return values_.data(); }

 private:
  std::vector<float> values_;
};

std::unexpected<Error> unfit(const OpSetup& setup, std::string_view what) {
  return fail(ErrorCode::kMismatch, "The op {} of layer {} cannot run with this change: {}.",
              op_name(setup.kind), setup.layer, what);
}

std::size_t weights_of(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
    case OpKind::kRmsNorm:
    case OpKind::kMatmul:
    case OpKind::kTimeStep:
    case OpKind::kDecay:
    case OpKind::kConvolution:
    case OpKind::kScan:
    case OpKind::kScale:
    case OpKind::kHeadMatmul:
      return 1;
    case OpKind::kChannelScan:
      return 2;
    default:
      return 0;
  }
}

// Of the first weight of ops in recurrent layers; nothing for all other ops.
std::optional<Shape> shape_of_recurrent_weight(const OpSetup& s) {
  switch (s.kind) {
    case OpKind::kTimeStep:
    case OpKind::kDecay:
      return Shape{s.width};
    case OpKind::kConvolution:
      return Shape{s.width, std::get<ConvolutionParams>(s.params).taps};
    case OpKind::kScan:
      return Shape{std::get<ScanParams>(s.params).heads};
    case OpKind::kChannelScan:
      return Shape{s.width, std::get<ScanParams>(s.params).states};
    default:
      return std::nullopt;
  }
}

Status check_weights(const OpSetup& s) {
  const auto shape_is = [](const TensorView& tensor, const Shape& shape) { return tensor.shape == shape; };
  for (const TensorView& weight : s.weights) {
    if (byte_size(weight.dtype, weight.shape) != weight.data.size())
      return unfit(s, "a weight's bytes do not fill its shape");
  }
  const bool two_tables = s.kind == OpKind::kEmbed && s.weights.size() == 2;
  const bool sinks = s.kind == OpKind::kAttention && s.weights.size() == 1;
  if (sinks && !shape_is(s.weights[0], {std::get<AttentionParams>(s.params).heads}))
    return unfit(s, "there is not one sink for each head");
  const bool plain_norm = s.kind == OpKind::kRmsNorm && s.weights.empty();
  if (!two_tables && !plain_norm && !sinks && s.weights.size() != weights_of(s.kind))
    return unfit(s, "the number of weights is wrong");
  // A norm's vectors may serve every head.
  const auto* norm = std::get_if<NormParams>(&s.params);
  const bool by_head = norm != nullptr && norm->span == NormSpan::kHead;
  const auto is_vector = [&](const TensorView& tensor) {
    return shape_is(tensor, {by_head ? s.width / s.heads : s.width});
  };
  const bool has_bias = s.kind == OpKind::kMatmul || s.kind == OpKind::kConvolution ||
                        (s.kind == OpKind::kRmsNorm && !plain_norm);
  if (!s.biases.empty() && (!has_bias || s.biases.size() != 1 || (s.biases[0] && !is_vector(*s.biases[0]))))
    return unfit(s, "the bias is not as wide as the output");
  if (s.kind == OpKind::kMatmul && !shape_is(s.weights[0], {s.width, s.inputs[0].width}))
    return unfit(s, "the weight's shape is not output x input");
  if (const auto expected = shape_of_recurrent_weight(s); expected && s.weights[0].shape != *expected)
    return unfit(s, fmt::format("the weight's shape is not {}", describe_shape(*expected)));
  if (s.kind == OpKind::kChannelScan && !shape_is(s.weights[1], {s.width}))
    return unfit(s, "the second weight is not as wide as the output");
  if (s.kind == OpKind::kRmsNorm && !plain_norm && !is_vector(s.weights[0]))
    return unfit(s, "the weight is not as wide as a head");
  if (s.kind == OpKind::kScale && !shape_is(s.weights[0], {1}) && !shape_is(s.weights[0], {s.width}))
    return unfit(s, "the weight is not as wide as the output");
  if (s.kind != OpKind::kEmbed) return {};
  if (s.weights[0].shape.size() != 2 || s.weights[0].cols() != s.width)
    return unfit(s, "the weight is not as wide as the output");
  for (const std::int32_t id : s.ids) {
    if (id < 0 || s.weights[0].rows() == 0) return unfit(s, fmt::format("the id {} has no row", id));
  }
  if (!two_tables) return {};
  if (s.weights[1].cols() != s.width) return unfit(s, "the learned positions are not as wide as the output");
  for (const std::int32_t position : s.positions) {
    if (position < 0 || static_cast<std::uint64_t>(position) >= s.weights[1].rows())
      return unfit(s, fmt::format("the position {} has no row", position));
  }
  return {};
}

Status check_attention(const OpSetup& s) {
  const auto& a = std::get<AttentionParams>(s.params);
  const std::size_t q = std::size_t{a.heads} * a.head_dim, kv = std::size_t{a.kv_heads} * a.head_dim;
  if (q == 0 || kv == 0 || s.width != std::size_t{a.heads} * a.out_dim() || s.inputs[0].width != q ||
      s.inputs[1].width != kv || s.inputs[2].width != kv)
    return unfit(s, "the heads do not match the inputs");
  if (s.head_map.empty() ? a.heads % a.kv_heads != 0 : s.head_map.size() != a.heads)
    return unfit(s, "the heads have no heads of keys");
  for (const std::uint32_t head : s.head_map) {
    if (head >= a.kv_heads) return unfit(s, "a head of keys does not exist");
  }
  const std::size_t keys = s.inputs[1].data.size() / kv;
  if (s.inputs[2].data.size() != s.inputs[1].data.size()) return unfit(s, "keys and values differ in number");
  for (const std::int32_t position : s.positions) {
    if (position < 0 || (!s.sees && static_cast<std::size_t>(position) >= keys))
      return unfit(s, fmt::format("the position {} has no key", position));
  }
  return {};
}

bool is_of_experts(OpKind kind) {
  return kind == OpKind::kChoose || kind == OpKind::kWeigh || kind == OpKind::kSpread ||
         kind == OpKind::kExpertMatmul || kind == OpKind::kExpertSum;
}

Status check_route(const OpSetup& s) {
  const RouterSpec& r = std::get<RouteParams>(s.params).router;
  const std::size_t experts = s.inputs[0].width;
  const bool possible = r.top_k > 0 && r.top_k == s.width && r.groups > 0 && experts % r.groups == 0 &&
                        r.kept_groups > 0 && r.kept_groups <= r.groups &&
                        r.top_k <= experts / r.groups * r.kept_groups &&
                        (r.score != RouterScore::kSparseMixer || r.top_k == 2) &&
                        (s.kind == OpKind::kChoose || s.inputs[1].width == r.top_k);
  if (!possible) return unfit(s, "more experts are chosen than there are");
  const bool fits = s.weights.empty() || (s.weights.size() == 1 && s.weights[0].shape == Shape{experts});
  return fits ? Status{} : unfit(s, "there is not one weight for each expert");
}

// The weights are those of all experts, one after the other.
Status check_experts(const OpSetup& s) {
  if (s.kind == OpKind::kChoose || s.kind == OpKind::kWeigh) return check_route(s);
  const auto* spread = std::get_if<SpreadParams>(&s.params);
  const auto* sum = std::get_if<ExpertSumParams>(&s.params);
  const auto* experts = std::get_if<ExpertParams>(&s.params);
  const std::size_t chosen = spread != nullptr ? spread->chosen
                             : sum != nullptr  ? sum->chosen
                                               : experts->chosen;
  if (chosen == 0) return unfit(s, "no expert is chosen");
  const bool has_choice = sum == nullptr || sum->weighted;
  if (has_choice && s.inputs[1].width != chosen)
    return unfit(s, "there is not one value for each chosen expert");
  if (spread != nullptr && s.width != s.inputs[0].width * chosen)
    return unfit(s, "there is not one copy for each weight");
  if (sum != nullptr &&
      (s.inputs[0].width != s.width * chosen || (sum->adds && s.inputs.back().width != s.width)))
    return unfit(s, "there is not one part for each chosen expert");
  if (experts == nullptr) return {};
  if (s.weights.size() != experts->experts || s.width % chosen != 0 ||
      (!s.biases.empty() && s.biases.size() != s.weights.size()))
    return unfit(s, "there is not one weight for each expert");
  const std::size_t x = s.inputs[0].width;
  for (std::size_t e = 0; e < s.weights.size(); ++e) {
    const TensorView& w = s.weights[e];
    const bool fits = w.shape.size() == 2 && w.shape[0] == s.width / chosen &&
                      (w.shape[1] == x || w.shape[1] * chosen == x) && w.shape == s.weights[0].shape;
    if (!fits || byte_size(w.dtype, w.shape) != w.data.size())
      return unfit(s, "an expert's weight is not output x input");
    if (!s.biases.empty() && s.biases[e] && s.biases[e]->shape != Shape{w.shape[0]})
      return unfit(s, "an expert's bias is not as wide as its output");
  }
  return {};
}

bool have_widths(const OpSetup& s, std::initializer_list<std::size_t> widths) {
  return std::ranges::equal(s.inputs, widths, {}, &OpSetup::Rows::width);
}

Status check_recurrent(const OpSetup& s) {
  bool fits = true;
  if (const auto* columns = std::get_if<ColumnsParams>(&s.params)) {
    std::size_t width = 0;
    for (const ColumnRange& range : columns->ranges) {
      if (range.width == 0) continue;
      fits = fits && range.groups > 0 && s.inputs[0].width % range.groups == 0 &&
             std::size_t{range.first} + range.width <= s.inputs[0].width / range.groups;
      width += std::size_t{range.groups} * range.width;
    }
    fits = fits && width == s.width;
  } else if (const auto* convolution = std::get_if<ConvolutionParams>(&s.params)) {
    fits = convolution->taps > 0;
  } else if (const auto* delta = std::get_if<DeltaParams>(&s.params)) {
    const std::size_t keys = std::size_t{delta->key_heads} * delta->key_dim,
                      values = std::size_t{delta->heads} * delta->value_dim;
    fits = keys > 0 && values > 0 && delta->heads % delta->key_heads == 0 && s.width == values &&
           have_widths(s, {keys, keys, values, delta->heads, delta->heads});
  } else if (const auto* scan = std::get_if<ScanParams>(&s.params)) {
    const std::size_t inner = std::size_t{scan->heads} * scan->head_dim,
                      states = std::size_t{scan->groups} * scan->states;
    fits = inner > 0 && states > 0 && scan->heads % scan->groups == 0 && s.width == inner &&
           (s.kind == OpKind::kScan
                ? have_widths(s, {inner, states, states, scan->heads, scan->heads})
                : scan->head_dim == 1 && scan->groups == 1 && have_widths(s, {inner, states, states, inner}));
  }
  return fits ? Status{} : unfit(s, "the widths of its inputs do not fit together");
}

bool combines_columns(OpKind kind) {
  return kind == OpKind::kJoin || kind == OpKind::kHeadMatmul || kind == OpKind::kMix ||
         kind == OpKind::kMatchRms;
}

// Ops whose inputs differ in width from the output.
Status check_combined(const OpSetup& s) {
  const std::size_t x = s.inputs[0].width, y = s.width;
  if (const auto* p = std::get_if<JoinParams>(&s.params)) {
    const std::size_t b = s.inputs[1].width;
    const bool fits =
        p->parts > 0 && x % p->parts == 0 && y % p->parts == 0 && (y == x + b || y == x + b * p->parts);
    return fits ? Status{} : unfit(s, "the parts do not fill the output");
  }
  if (const auto* p = std::get_if<MixParams>(&s.params)) {
    const std::size_t part = p->streams == 0 ? 0 : x / p->streams;
    bool fits = part > 0 && x % p->streams == 0 && y == x && s.inputs[1].width % part == 0;
    if (fits && s.inputs.size() > 2) fits = s.inputs[2].width == p->streams * (s.inputs[1].width / part);
    return fits ? Status{} : unfit(s, "the streams do not match the inputs");
  }
  if (const auto* p = std::get_if<HeadMatmulParams>(&s.params)) {
    if (s.weights.size() != 1 || p->heads == 0 || p->begin + p->rows > p->stride ||
        s.weights[0].rows() != std::uint64_t{p->heads} * p->stride)
      return unfit(s, "the weight's rows are not those of its heads");
    const std::size_t cols = s.weights[0].cols(), takes = p->transposed ? p->rows : cols;
    const std::size_t gives = p->transposed ? cols : p->rows, from = x == takes ? x : x / p->heads;
    const bool fits = (x == takes || x % p->heads == 0) && y % p->heads == 0 && from >= takes &&
                      y / p->heads == gives + (from - takes);
    return fits ? Status{} : unfit(s, "the weight's shape is not output x input");
  }
  return x == y ? Status{} : unfit(s, "an input is not as wide as the output");
}

}  // namespace

Status check_setup(const OpSetup& s) {
  // By OpKind, as plan/check.cpp has them.
  constexpr std::size_t kInputs[] = {0, 1, 1, 1, 3, 2, 2, 1, 1, 1, 1, 1, 2, 2, 2,
                                     3, 1, 1, 1, 1, 5, 5, 4, 1, 2, 1, 3, 2, 1};
  // clang-format off
  constexpr std::size_t kParams[] = {
      1, 2, 3, 4, 5, 8, 6, 6, 0, 7, 9,
      kPlaceOf<RouteParams>, kPlaceOf<RouteParams>, kPlaceOf<SpreadParams>, kPlaceOf<ExpertParams>,
      kPlaceOf<ExpertSumParams>,
      kPlaceOf<ColumnsParams>, kPlaceOf<TimeStepParams>, kPlaceOf<DecayParams>, kPlaceOf<ConvolutionParams>,
      kPlaceOf<DeltaParams>, kPlaceOf<ScanParams>, kPlaceOf<ScanParams>,
      kPlaceOf<ScaleParams>, kPlaceOf<JoinParams>, kPlaceOf<HeadMatmulParams>, kPlaceOf<MixParams>,
      kPlaceOf<MatchRmsParams>, kPlaceOf<CutoffParams>};
  // clang-format on
  const auto kind = static_cast<std::size_t>(s.kind);
  // An activation without a gate, streams without coefficients.
  const bool alone =
      (s.kind == OpKind::kGated && s.inputs.size() == 1) || (s.kind == OpKind::kMix && s.inputs.size() == 2);
  const auto* sum = std::get_if<ExpertSumParams>(&s.params);  // which may have fewer
  const std::size_t wanted = sum != nullptr              ? 1u + sum->weighted + sum->adds
                             : kind < std::size(kInputs) ? kInputs[kind]
                                                         : 0;
  if (kind >= std::size(kInputs) || (s.inputs.size() != wanted && !alone))
    return unfit(s, "the number of inputs is wrong");
  if (s.params.index() != kParams[kind]) return unfit(s, "the parameters are of another kind");
  if (s.positions.size() != s.tokens()) return unfit(s, "ids and positions differ in number");
  if (s.width == 0 || s.heads == 0 || s.width % s.heads != 0)
    return unfit(s, "the heads do not divide the width");
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const OpSetup::Rows& in = s.inputs[i];
    const bool keys = s.kind == OpKind::kAttention && i > 0;
    if (in.width == 0 || in.data.size() % in.width != 0 || (!keys && in.data.size() != s.tokens() * in.width))
      return unfit(s, "an input has not one row per token");
    const bool one_gate = s.kind == OpKind::kGated && i == 0 && s.inputs.size() == 2 && in.width == 1;
    const bool same_width = s.kind != OpKind::kMatmul && s.kind != OpKind::kAttention &&
                            s.kind != OpKind::kColumns && s.kind != OpKind::kDeltaRule &&
                            s.kind != OpKind::kScan && s.kind != OpKind::kChannelScan &&
                            !is_of_experts(s.kind) && !one_gate && !combines_columns(s.kind);
    if (same_width && in.width != s.width) return unfit(s, "an input is not as wide as the output");
  }
  if (s.kind == OpKind::kRope &&
      s.rope.inverse_frequency.size() * 2 + std::get<RopeParams>(s.params).begin > s.width / s.heads)
    return unfit(s, "more dims rotate than a head has");
  if (s.kind == OpKind::kAttention) DOPPLER_TRY(check_attention(s));
  DOPPLER_TRY(check_recurrent(s));
  if (is_of_experts(s.kind)) return check_experts(s);
  if (combines_columns(s.kind)) DOPPLER_TRY(check_combined(s));
  return check_weights(s);
}

std::span<const std::byte> OpSetup::own(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  owned.push_back(std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
  return *owned.back();
}

void OpSetup::set_weight(Shape shape, const std::vector<float>& values) {
  weights.resize(1);
  weights[0] = {weights[0].name, DType::kF32, std::move(shape), own(values)};
}

void OpSetup::replace(TensorView& tensor, const std::vector<float>& values) {
  tensor.dtype = DType::kF32;
  tensor.data = own(values);
  tensor.mapped = false;
}

Result<std::vector<float>> OpSetup::read_weight() const {
  if (weights.empty()) return unfit(*this, "it has no weight");
  std::vector<float> values(element_count(weights[0].shape).value_or(0));
  DOPPLER_TRY(decode_f32(weights[0], 0, values));
  return values;
}

Result<std::vector<float>> run_setup(const OpSetup& setup, reference::Threads& threads) {
  DOPPLER_TRY(check_setup(setup));
  std::vector<float> out(setup.tokens() * setup.width);
  reference::OpCall call{.kind = setup.kind, .params = setup.params};
  for (const OpSetup::Rows& input : setup.inputs) call.inputs.push_back({input.data, input.width});
  call.outputs = {{out, setup.width, setup.heads}};
  for (const TensorView& weight : setup.weights) call.weights.push_back(&weight);
  for (const auto& bias : setup.biases) call.biases.push_back(bias ? &*bias : nullptr);
  std::vector<TensorView> biases;  // of experts: side by side, as the op finds them
  if (setup.kind == OpKind::kExpertMatmul) {
    for (const auto& bias : setup.biases) biases.push_back(bias.value_or(TensorView()));
    call.weights.resize(1);
    call.biases.assign(biases.empty() || !setup.biases[0] ? 0 : 1, biases.data());
  }
  call.rope = &setup.rope;
  call.ids = setup.ids;
  call.positions = setup.positions;
  std::vector<std::size_t> all(setup.tokens());
  for (std::size_t t = 0; t < all.size(); ++t) all[t] = t;
  call.wanted = all;
  OwnState state(setup);
  call.state = &state;
  if (setup.kind != OpKind::kAttention) {
    DOPPLER_TRY(reference::run_op(call, threads));
    return out;
  }
  const RowsAsCache cache(setup.inputs[1], setup.inputs[2], std::get<AttentionParams>(setup.params).head_dim);
  call.cache = &cache;
  call.head_map = setup.head_map;
  call.sees = setup.sees;
  call.keys = setup.inputs[1].data.size() / setup.inputs[1].width;
  DOPPLER_TRY(reference::run_op(call, threads));
  return out;
}

std::optional<std::size_t> OpExperiment::find(Stage stage, int layer) const {
  for (std::size_t op = 0; op < plan_.ops.size(); ++op) {
    bool found = false;
    for_each_name(plan_, output(op), [&](Stage name, int at) { found |= name == stage && at == layer; });
    if (found) return op;
  }
  return std::nullopt;
}

// Where a layer reads the keys and values of another, they are inputs all the same; so are keys that hold the
// values.
std::vector<ValueId> OpExperiment::inputs(std::size_t index) const {
  const Op& op = plan_.ops[index];
  std::vector<ValueId> ids = op.inputs;
  const auto* a = std::get_if<AttentionParams>(&op.params);
  if (a != nullptr && a->value_dim > 0 && ids.size() == 2) ids.push_back(ids[1]);
  if (a == nullptr || a->kv_layer < 0) return ids;
  for (const Op& other : plan_.ops) {
    if (other.kind == OpKind::kAttention && other.layer == a->kv_layer)
      ids.insert(ids.end(), other.inputs.begin() + 1, other.inputs.end());
  }
  return ids;
}

std::vector<std::string> OpExperiment::missing(std::size_t op) const {
  std::vector<std::string> names;
  for (const ValueId id : inputs(op)) {
    if (rows_.locate(plan_, id)) continue;
    for (std::string& name : behind(id)) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<std::string> OpExperiment::behind(ValueId id) const {
  if (plan_.values[id].stage != Stage::kNone) return {value_name(plan_, id)};
  for (std::size_t op = 0; op < plan_.ops.size(); ++op) {
    const std::vector<ValueId>& outputs = plan_.ops[op].outputs;
    if (std::ranges::find(outputs, id) == outputs.end()) continue;
    if (std::vector<std::string> names = missing(op); !names.empty()) return names;
  }
  return {value_name(plan_, id)};
}

Result<std::vector<float>> OpExperiment::recorded(std::size_t op) const {
  return rows_.read(plan_, plan_.ops[op].outputs[0]);
}

Result<OpSetup> OpExperiment::setup(std::size_t index) const {
  const Op& op = plan_.ops[index];
  if (const std::vector<std::string> names = missing(index); !names.empty()) {
    return fail(ErrorCode::kNotFound,
                "The op {} of layer {} cannot be run again: its input {} is not recorded.",
                op_title(plan_, op), op.layer, fmt::join(names, ", "));
  }
  OpSetup setup{.kind = op.kind, .stage = output(index).stage, .layer = op.layer, .params = op.params};
  setup.width = output(index).width, setup.heads = output(index).heads;
  for (const ValueId id : inputs(index)) {
    const Value& value = plan_.values[id];
    DOPPLER_ASSIGN(std::vector<float> data, rows_.read(plan_, id));
    setup.inputs.push_back({value.width, value.heads, std::move(data)});
  }
  const auto* experts = std::get_if<ExpertParams>(&op.params);
  const WeightId count = experts != nullptr ? experts->experts : 1;
  for (const WeightId id : op.weights) {
    for (WeightId e = 0; e < count; ++e) setup.weights.push_back(weights_[id + e]);
  }
  for (const WeightId id : op.biases) {
    for (WeightId e = 0; e < count; ++e)
      setup.biases.push_back(id == kNoWeight ? std::nullopt : std::optional(weights_[id + e]));
  }
  if (const auto* rope = std::get_if<RopeParams>(&op.params)) setup.rope = plan_.rope_tables[rope->table];
  setup.ids.assign(rows_.ids().begin(), rows_.ids().end());
  for (std::size_t t = 0; t < setup.ids.size(); ++t) setup.positions.push_back(static_cast<std::int32_t>(t));
  return setup;
}

Result<std::vector<float>> OpExperiment::run(std::size_t op, const OpChange& change) {
  DOPPLER_ASSIGN(OpSetup made, setup(op));
  if (change) change(made);
  return run_setup(made, threads_);
}

}  // namespace doppler::diagnosis
