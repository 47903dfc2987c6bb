// Repairs of feed-forwards of experts: their order, how gates and ups were parted, how their blocks are read,
// and how a router chooses and weighs them.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis::repairs {
namespace {

// Enough values that a wrong matrix cannot fit by chance, few enough to read single rows for.
constexpr std::size_t kSampledPlaces = 24;
// Along a chain whole weights are tried: beyond this many values of all experts each takes seconds.
constexpr std::uint64_t kMostExpertValues = 1 << 26;

// The product of each chosen expert, on some places of the output.
class ExpertProbe {
 public:
  using ReadExpert =
      std::function<Status(std::size_t expert, std::uint64_t row, std::span<float> values, double& bias)>;

  explicit ExpertProbe(const OpCase& c)
      : case_(c),
        setup_(c.setup()),
        chosen_(std::get<ExpertParams>(c.setup().params).chosen),
        part_(c.width() / chosen_) {
    const std::vector<std::size_t> bad = find_bad_places(c).columns;
    const std::size_t count = std::min(kSampledPlaces, bad.size());
    for (std::size_t i = 0; i < count; ++i) places_.push_back(bad[i * bad.size() / count]);
  }

  std::size_t expert_at(std::size_t token, std::size_t place) const {
    return static_cast<std::size_t>(setup_.inputs[1].data[token * chosen_ + place / part_]);
  }
  std::set<std::size_t> used() const {
    std::set<std::size_t> experts;
    for (const float id : setup_.inputs[1].data) {
      if (id >= 0 && id < static_cast<float>(setup_.weights.size()))
        experts.insert(static_cast<std::size_t>(id));
    }
    return experts;
  }

  double output(std::size_t token, std::size_t place, std::span<const float> row, double bias) const {
    const OpSetup::Rows& in = setup_.inputs[0];
    const std::size_t own = in.width == row.size() ? 0 : place / part_ * row.size();
    double sum = bias;
    for (std::size_t i = 0; i < row.size(); ++i)
      sum += static_cast<double>(row[i]) * in.data[token * in.width + own + i];
    return sum;
  }

  // The distance from the target, where each expert is read so.
  double ratio(const ReadExpert& read) const {
    std::vector<float> out(case_.tokens() * places_.size()), row(setup_.weights[0].cols());
    for (std::size_t t = 0; t < case_.tokens(); ++t) {
      for (std::size_t i = 0; i < places_.size(); ++i) {
        double bias = 0;
        if (!read(expert_at(t, places_[i]), places_[i] % part_, row, bias)) return INFINITY;
        out[t * places_.size() + i] = static_cast<float>(output(t, places_[i], row, bias));
      }
    }
    return places_.empty() ? INFINITY : case_.judge_columns(places_, out);
  }

  double own_bias(std::size_t expert, std::uint64_t row) const {
    float bias = 0;
    if (setup_.biases.empty() || !setup_.biases[expert]) return 0;
    return decode_f32(*setup_.biases[expert], row, {&bias, 1}) ? bias : 0;
  }

  // Whose matrix gives what the target holds for `expert`; nothing if none does, or several do.
  std::optional<std::size_t> holder_of(std::size_t expert) const {
    std::optional<std::size_t> holder;
    std::vector<float> row(setup_.weights[0].cols());
    for (std::size_t other = 0; other < setup_.weights.size(); ++other) {
      std::size_t seen = 0;
      bool fits = true;
      for (std::size_t t = 0; t < case_.tokens() && fits; ++t) {
        for (std::size_t at = 0; at < places_.size() && fits; ++at) {
          const std::size_t place = places_[at];
          if (expert_at(t, place) != expert) continue;
          if (!decode_f32(setup_.weights[other], place % part_ * row.size(), row)) return std::nullopt;
          const double found = output(t, place, row, own_bias(other, place % part_));
          const double target = case_.target()[t * case_.width() + place];
          // Other values of the same size have much the same allowance.
          constexpr double kAlike = 4;
          fits = std::abs(found - target) <= kAlike * case_.allowed_at(t, place);
          ++seen;
        }
      }
      if (!fits || seen == 0) continue;
      if (holder) return std::nullopt;
      holder = other;
    }
    return holder;
  }

 private:
  const OpCase& case_;
  const OpSetup& setup_;
  std::size_t chosen_, part_;
  std::vector<std::size_t> places_;
};

const char* const kInOrder = "Store each expert's matrices under the number that the router gives it.";

// Expert e gets the matrices and biases of source(e).
void take_experts(OpSetup& s, const std::function<std::size_t(std::size_t)>& source) {
  const auto weights = s.weights;
  const auto biases = s.biases;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    s.weights[e] = weights[source(e)];
    if (!biases.empty()) s.biases[e] = biases[source(e)];
  }
}

Fix rows_of(const TensorView& to, const TensorView& from, std::string what) {
  return {
      Fix::Kind::kTensor, to.name, std::move(what), {}, [from](std::uint64_t row, std::span<float> values) {
        return decode_f32(from, row * values.size(), values);
      }};
}

// Every product of the layer's experts has them in the same order, and so has their bias.
void add_order_fixes(OpCase& c, const std::function<std::size_t(std::size_t)>& source) {
  const Weights& weights = c.context().weights;
  const std::size_t experts = c.setup().weights.size();
  for (const WeightRole role :
       {WeightRole::kGateExperts, WeightRole::kUpExperts, WeightRole::kDownExperts,
        WeightRole::kGateExpertsBias, WeightRole::kUpExpertsBias, WeightRole::kDownExpertsBias}) {
    const WeightId first = weights.find(role, c.layer());
    if (first == kNoWeight || weights.count(first) != experts) continue;
    for (std::size_t e = 0; e < experts; ++e) {
      const TensorView &to = weights[static_cast<WeightId>(first + e)],
                       &from = weights[static_cast<WeightId>(first + source(e))];
      if (source(e) != e) c.add_fix(rows_of(to, from, fmt::format("the values of {}", from.name)));
    }
  }
}

void attempt_order(OpCase& c, std::string says, const std::function<std::size_t(std::size_t)>& source) {
  c.attempt("experts_permuted", std::move(says), kInOrder, [&](OpSetup& s) { take_experts(s, source); });
  add_order_fixes(c, source);
}

void shifted_experts(OpCase& c) {
  const std::size_t all = c.setup().weights.size();
  for (const std::size_t by : {std::size_t{1}, all - 1}) {
    attempt_order(c, fmt::format("expert i is what is stored as i {} 1", by == 1 ? '+' : '-'),
                  [&](std::size_t e) { return (e + by) % all; });
  }
  attempt_order(c, "the experts are stored in reverse", [&](std::size_t e) { return all - 1 - e; });
}

// The tensors of the other half of gate and up, with its biases; nothing for other products.
struct Half {
  bool gate = true;  // the op's own half
  std::vector<TensorView> weights, biases;
};
std::optional<Half> other_half(const OpCase& c, const OpSetup& s) {
  if (s.stage != Stage::kFfnGate && s.stage != Stage::kFfnUp) return std::nullopt;
  const bool gate = s.stage == Stage::kFfnGate;
  const Weights& weights = c.context().weights;
  Half half{gate, {}, {}};
  const auto take = [&](WeightRole role, std::vector<TensorView>& to) {
    const WeightId first = weights.find(role, s.layer);
    if (first == kNoWeight) return;
    const auto found = weights.tensors().subspan(first, weights.count(first));
    to.assign(found.begin(), found.end());
  };
  take(gate ? WeightRole::kUpExperts : WeightRole::kGateExperts, half.weights);
  take(gate ? WeightRole::kUpExpertsBias : WeightRole::kGateExpertsBias, half.biases);
  if (half.weights.size() != s.weights.size() || half.weights[0].shape != s.weights[0].shape ||
      half.weights[0].dtype != s.weights[0].dtype)
    return std::nullopt;
  return half;
}

// The rows of the right half, of a tensor and its sibling that were one and were parted wrongly.
std::vector<std::byte> parted(const TensorView& own, const TensorView& other, bool gate, bool by_turns) {
  const std::size_t rows = own.shape[0], row = own.data.size() / rows;
  std::vector<std::byte> bytes;
  bytes.reserve(own.data.size());
  for (std::size_t r = 0; r < rows; ++r) {
    // As the file has it: gates, then ups; or by turns.
    const std::size_t at = by_turns ? 2 * r + (gate ? 0 : 1) : r + (gate ? 0 : rows);
    const bool in_gate = by_turns ? at < rows : at % 2 == 0;  // where the wrong parting has put it
    const std::size_t place = by_turns ? at % rows : at / 2;
    const TensorView& from = in_gate == gate ? own : other;
    const auto begin = from.data.begin() + static_cast<std::ptrdiff_t>(place * row);
    bytes.insert(bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
  }
  return bytes;
}

void own_bytes(OpSetup& s, TensorView& tensor, std::vector<std::byte> bytes) {
  s.owned.push_back(std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
  tensor.data = *s.owned.back();
}

void part_again(const OpCase& c, OpSetup& s, bool by_turns) {
  const auto half = other_half(c, s);
  if (!half) return;
  for (std::size_t e = 0; e < s.weights.size(); ++e) {
    own_bytes(s, s.weights[e], parted(s.weights[e], half->weights[e], half->gate, by_turns));
    if (!s.biases.empty() && s.biases[e] && e < half->biases.size())
      own_bytes(s, *s.biases[e], parted(*s.biases[e], half->biases[e], half->gate, by_turns));
  }
}

// The way `i` of reading the bytes, of all experts.
void add_layout_fixes(OpCase& c, std::size_t i) {
  const Weights& weights = c.context().weights;
  const std::size_t own[] = {c.index()};
  for (const std::size_t op : c.scope().empty() ? std::span<const std::size_t>(own) : c.scope()) {
    const WeightId first = c.plan().ops[op].weights[0];
    for (std::size_t e = 0; e < weights.count(first); ++e) {
      const TensorView& weight = weights[static_cast<WeightId>(first + e)];
      const std::vector<Relayout> ways = relayouts(weight, 0);
      if (i >= ways.size()) continue;
      c.add_fix({Fix::Kind::kTensor, weight.name, ways[i].cause, {}, ways[i].read, ways[i].type});
    }
  }
}

// Another way of reading every expert's bytes.
void layouts_of_experts(OpCase& c, const ExpertProbe& probe) {
  const OpSetup& s = c.setup();
  std::map<std::size_t, std::vector<Relayout>> by_expert;
  for (const std::size_t e : probe.used()) by_expert[e] = relayouts(s.weights[e], 0);
  if (by_expert.empty()) return;
  const std::vector<Relayout>& first = by_expert.begin()->second;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].search && c.explained()) return;
    const double ratio =
        probe.ratio([&](std::size_t e, std::uint64_t row, std::span<float> values, double& bias) -> Status {
          const auto found = by_expert.find(e);
          if (found == by_expert.end()) return fail(ErrorCode::kNotFound, "There is no such expert.");
          bias = probe.own_bias(e, row);
          return found->second[i].read(row, values);
        });
    c.keep({first[i].cause, "of every expert, as of the first, " + first[i].says, first[i].repair, ratio,
            first[i].weight});
    add_layout_fixes(c, i);
  }
}

// The same along a chain, as few ways as the blocks have.
void layouts_along(OpCase& c) {
  const OpSetup& own = c.setup();
  if (own.weights.size() * own.weights[0].rows() * own.weights[0].cols() > kMostExpertValues) {
    c.leave_out(fmt::format("other readings of {} and its kind", own.weights[0].name));
    return;
  }
  const std::vector<Relayout> ways = relayouts(own.weights[0], 0);
  for (std::size_t i = 0; i < ways.size() && !ways[i].search && !c.explained(); ++i) {
    if (!ways[i].same_size) continue;
    c.attempt(
        ways[i].cause, "of every expert, as of the first, " + ways[i].says, ways[i].repair,
        [&](OpSetup& s) {
          for (TensorView& weight : s.weights) {
            std::vector<float> values(weight.rows() * weight.cols());
            const TensorView from = weight;
            const std::vector<Relayout> of_expert = relayouts(from, 0);
            for (std::uint64_t r = 0; r < from.rows(); ++r) {
              if (!of_expert[i].read(r, std::span(values).subspan(r * from.cols(), from.cols()))) return;
            }
            const auto bytes = std::as_bytes(std::span(values));
            weight.dtype = DType::kF32;
            own_bytes(s, weight, {bytes.begin(), bytes.end()});
          }
        },
        ways[i].weight);
    add_layout_fixes(c, i);
  }
}

std::string readable_score(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax:
      return "the softmax of all experts";
    case RouterScore::kSigmoid:
      return "the sigmoid of each expert";
    case RouterScore::kSoftmaxOfChosen:
      return "the softmax of the chosen experts";
    case RouterScore::kSparseMixer:
      break;
  }
  return "SparseMixer's share";
}

}  // namespace

void experts_order(OpCase& c) {
  if (c.setup().weights.size() < 2) return;
  if (!c.direct() || c.scope().size() > 1) {
    shifted_experts(c);
    return;
  }
  const ExpertProbe probe(c);
  std::map<std::size_t, std::size_t> holder;
  std::string example;
  std::set<std::size_t> by;
  const std::size_t all = c.setup().weights.size();
  for (const std::size_t e : probe.used()) {
    holder[e] = probe.holder_of(e).value_or(e);
    if (holder[e] == e) continue;
    by.insert((holder[e] + all - e) % all);
    if (example.empty()) example = fmt::format("expert {} is what is stored as {}", e, holder[e]);
  }
  if (example.empty()) return;
  if (by.size() == 1 && *by.begin() + 1 == all) example = "expert i is what is stored as i - 1";
  if (by.size() == 1 && *by.begin() < all - 1)
    example = fmt::format("expert i is what is stored as i + {}", *by.begin());
  attempt_order(c, std::move(example), [&](std::size_t e) {
    const auto found = holder.find(e);
    return found == holder.end() ? e : found->second;
  });
}

void experts_parted(OpCase& c) {
  if (c.explained() || !other_half(c, c.setup())) return;
  for (const bool by_turns : {true, false}) {
    c.attempt("fused_split",
              by_turns ? "the rows of each expert's gate and up take turns in the file"
                       : "the rows of each expert's gate come before those of its up in the file",
              by_turns ? "Part gate_up_proj by turns: even rows are the gate's, odd ones the up's."
                       : "Part gate_up_proj in the middle: the first half is the gate, the second the up.",
              [&](OpSetup& s) { part_again(c, s, by_turns); });
  }
  c.attempt("gate_up_swapped", "gate and up of every expert change places",
            "Exchange the gate and up projections.", [&](OpSetup& s) {
              auto half = other_half(c, s);
              if (!half) return;
              s.weights = std::move(half->weights);
              if (half->biases.size() == s.biases.size()) std::ranges::copy(half->biases, s.biases.begin());
            });
}

void experts_layout(OpCase& c) {
  if (c.explained()) return;
  if (c.direct() && c.scope().size() <= 1)
    layouts_of_experts(c, ExpertProbe(c));
  else
    layouts_along(c);
}

namespace {

// Every expert's bias, each value by the one at another place.
void biases_otherwise(OpCase& c, const char* cause, const char* says, float sign, bool reversed) {
  c.attempt(
      cause, says, {},
      [&](OpSetup& s) {
        for (std::optional<TensorView>& bias : s.biases) {
          if (!bias) continue;
          std::vector<float> values(element_count(bias->shape).value_or(0));
          if (!decode_f32(*bias, 0, values)) return;
          for (float& x : values) x *= sign;
          if (reversed) std::ranges::reverse(values);
          s.replace(*bias, values);
        }
      },
      0.95);
}

// What another layer's experts have, where a file has two layers exchanged.
void experts_of_other_layers(OpCase& c) {
  const Weights& weights = c.context().weights;
  for (const Op& op : c.plan().ops) {
    if (c.explained()) return;
    const bool same = op.kind == OpKind::kExpertMatmul && op.layer != c.layer() &&
                      c.plan().values[op.outputs[0]].stage == c.stage();
    if (!same || weights.count(op.weights[0]) != c.setup().weights.size()) continue;
    for (const bool of_bias : {false, true}) {
      const bool has_biases = !op.biases.empty() && op.biases[0] != kNoWeight && !c.setup().biases.empty();
      if (of_bias && !has_biases) continue;
      c.attempt(
          "stale_weight",
          fmt::format("the experts' {} are those of layer {}", of_bias ? "biases" : "weights", op.layer), {},
          [&](OpSetup& s) {
            for (std::size_t e = 0; e < s.weights.size(); ++e) {
              const WeightId id = static_cast<WeightId>((of_bias ? op.biases[0] : op.weights[0]) + e);
              if (of_bias)
                s.biases[e] = weights[id];
              else
                s.weights[e] = weights[id];
            }
          });
    }
  }
}

}  // namespace

void experts_bias(OpCase& c) {
  if (c.explained()) return;
  if (!c.setup().biases.empty()) {
    c.attempt("bias_missing", "the experts have no biases", "Leave the experts' biases out.",
              [](OpSetup& s) { s.biases.clear(); });
    biases_otherwise(c, "weight_scaled", "the experts' biases are multiplied by -1", -1, false);
    biases_otherwise(c, "weight_permuted", "the experts' biases stand in reverse", 1, true);
  }
  experts_of_other_layers(c);
  for (const double scale : {2.0, 0.5}) {
    if (!c.direct()) return;
    const ExpertProbe probe(c);
    const double ratio =
        probe.ratio([&](std::size_t e, std::uint64_t row, std::span<float> values, double& bias) -> Status {
          bias = probe.own_bias(e, row);
          DOPPLER_TRY(decode_f32(c.setup().weights[e], row * values.size(), values));
          for (float& x : values) x = static_cast<float>(x * scale);
          return {};
        });
    c.keep({"weight_scaled",
            fmt::format("the experts' weights are multiplied by {}", number(scale)),
            {},
            ratio,
            0.95});
    for (const TensorView& weight : c.setup().weights) {
      c.add_fix({Fix::Kind::kTensor,
                 weight.name,
                 fmt::format("multiplied by {}", number(scale)),
                 {},
                 [weight, scale](std::uint64_t row, std::span<float> values) -> Status {
                   DOPPLER_TRY(decode_f32(weight, row * values.size(), values));
                   for (float& x : values) x = static_cast<float>(x * scale);
                   return {};
                 }});
    }
  }
}

void route_weights(OpCase& c) {
  const RouterSpec own = std::get<RouteParams>(c.setup().params).router;
  if (own.score == RouterScore::kSparseMixer) return;
  // Those of published models: dots.llm1, DeepSeek V2 and V3, GLM 4.5 and 4.7, Kimi K2, LongCat.
  std::set<double> scales = {own.scale, 1, 1.5, 1.8, 2, 2.5, 2.827, 6, 16};
  for (const LayerSpec& layer : c.context().spec.layers) {
    if (layer.has_ffn && layer.ffn.experts > 0) scales.insert(layer.ffn.router.scale);
  }
  const auto attempt = [&](RouterScore score, bool normalise, double scale, double weight) {
    if (score == own.score && normalise == own.normalise && scale == own.scale) return;
    std::string says, repair;
    if (score != own.score) {
      says = fmt::format("an expert's weight is {}", readable_score(score));
      repair =
          fmt::format("Take {} as its weight (it is {}).", readable_score(score), readable_score(own.score));
    }
    if (normalise != own.normalise) {
      says += fmt::format("{}the weights of the chosen are {}divided by their sum",
                          says.empty() ? "" : ", and ", normalise ? "" : "not ");
      repair = fmt::format("{}Set norm_topk_prob to {}.", repair.empty() ? "" : repair + " ", normalise);
    }
    if (scale != own.scale) {
      says += fmt::format("{}weights are multiplied by {}", says.empty() ? "" : ", and ", number(scale));
      repair = fmt::format("{}Set routed_scaling_factor to {} (it is {}).",
                           repair.empty() ? "" : repair + " ", number(scale), number(own.scale));
    }
    const bool fits = c.attempt(
        "router_weights", std::move(says), std::move(repair),
        [&](OpSetup& s) {
          RouterSpec& router = std::get<RouteParams>(s.params).router;
          router.score = score, router.normalise = normalise, router.scale = scale;
        },
        weight);
    if (normalise != own.normalise) c.add_setting("ffn.router.normalise", normalise ? "true" : "false");
    if (scale != own.scale) c.add_setting("ffn.router.scale", number(scale));
    if (fits && score != own.score && normalise == own.normalise && own.score == RouterScore::kSoftmax &&
        score == RouterScore::kSoftmaxOfChosen)
      c.add_setting("ffn.router.normalise", "true");  // which is the same
  };
  std::vector<double> in_order(scales.begin(), scales.end());
  std::ranges::stable_partition(in_order, [&](double scale) { return scale == own.scale; });
  for (const double scale : in_order) {
    if (c.explained() && scale != own.scale && !c.direct()) break;
    // One thing at a time is likelier than two.
    attempt(own.score, !own.normalise, scale, 1);
    attempt(own.score, own.normalise, scale, 1);
    for (const RouterScore score :
         {RouterScore::kSoftmaxOfChosen, RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      if (score == own.score) continue;
      attempt(score, own.normalise, scale, 1);
      attempt(score, !own.normalise, scale, 0.95);
    }
  }
  if (c.explained() || !c.direct()) return;
  double products = 0, squares = 0;  // any other number shows as one ratio of all weights
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    products += static_cast<double>(c.output()[i]) * c.target()[i];
    squares += static_cast<double>(c.output()[i]) * c.output()[i];
  }
  if (squares > 0) attempt(own.score, own.normalise, own.scale * products / squares, 0.9);
}

void route_choice(OpCase& c) {
  const RouterSpec own = std::get<RouteParams>(c.setup().params).router;
  if (c.setup().weights.empty()) {
    for (const WeightRole role : {WeightRole::kRouterCorrection}) {
      if (c.context().weights.find(role, c.layer()) == kNoWeight) continue;
      c.attempt("router_choice", "scores are corrected before experts are chosen",
                "Add the router's correction (e_score_correction_bias) to the scores before choosing.",
                [&](OpSetup& s) {
                  const WeightId id = c.context().weights.find(role, s.layer);
                  if (id == kNoWeight) return;
                  s.weights = {c.context().weights[id]};
                  std::get<RouteParams>(s.params).router.correction = true;
                });
    }
  } else {
    c.attempt("router_choice", "scores are not corrected before experts are chosen",
              "Choose experts by their scores alone.", [](OpSetup& s) {
                s.weights.clear();
                std::get<RouteParams>(s.params).router.correction = false;
              });
  }
  const auto attempt = [&](std::string says, std::string repair,
                           const std::function<void(RouterSpec&)>& change) {
    c.attempt("router_choice", std::move(says), std::move(repair),
              [&](OpSetup& s) { change(std::get<RouteParams>(s.params).router); });
  };
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    if (score == own.score || own.score == RouterScore::kSparseMixer) continue;
    attempt(fmt::format("experts are chosen by {}", readable_score(score)),
            fmt::format("Choose experts by {} (it is {}).", readable_score(score), readable_score(own.score)),
            [&](RouterSpec& r) { r.score = score; });
  }
  if (own.groups > 1) {
    attempt("experts are chosen among all groups", "Set n_group and topk_group to 1.",
            [](RouterSpec& r) { r.groups = r.kept_groups = 1; });
  }
  for (std::uint32_t kept = 1; kept < own.groups; ++kept) {
    if (kept == own.kept_groups) continue;
    attempt(fmt::format("experts are chosen among the best {} groups", kept),
            fmt::format("Set topk_group to {} (it is {}).", kept, own.kept_groups),
            [&](RouterSpec& r) { r.kept_groups = kept; });
    c.add_setting("ffn.router.kept_groups", std::to_string(kept));
  }
  // Along a chain what it chooses from was not recorded.
  if (c.explained() || c.setup().weights.empty() || !c.direct()) return;
  // The logits are right and no rule explains the choice: it is what is added to them.
  const TensorView& correction = c.setup().weights[0];
  std::vector<float> stored(element_count(correction.shape).value_or(0));
  if (!decode_f32(correction, 0, stored)) return;
  const bool zero = std::ranges::all_of(stored, [](float x) { return x == 0; });
  c.keep({zero ? "truncated_weight" : "weight_wrong",
          zero ? fmt::format("{} is not zero", correction.name)
               : fmt::format("{} holds other values, as no rule of choosing explains the choice",
                             correction.name),
          {},
          0.6,
          0.5});
}

// Limits, offset and slope of an activation that has any, or that no plain one explains.
void gated_limits(OpCase& c) {
  const auto own = std::get<GatedParams>(c.setup().params);
  if (c.setup().inputs.size() != 2 || own.activation != Activation::kSilu || c.explained()) return;
  struct Change {
    const char* cause;
    double GatedParams::* value;
    double to;
    const char *says, *repair;
  };
  constexpr double kGptOssLimit = 7, kGptOssSlope = 1.702;
  const Change changes[] = {
      {"activation_clamp", &GatedParams::clamp, kGptOssLimit, "gate and up are limited to 7",
       "Limit gate and up to 7."},
      {"activation_clamp", &GatedParams::clamp, 0, "gate and up are not limited",
       "Do not limit gate and up."},
      {"activation_offset", &GatedParams::up_offset, 1, "1 is added to up",
       "Multiply the activation by up + 1."},
      {"activation_offset", &GatedParams::up_offset, 0, "nothing is added to up",
       "Multiply the activation by up."},
      {"activation", &GatedParams::alpha, kGptOssSlope, "the activation is x sigmoid(1.702 x)",
       "Take x sigmoid(1.702 x) for the activation."},
      {"activation", &GatedParams::alpha, 1, "the activation is x sigmoid(x)",
       "Take x sigmoid(x) (silu) for the activation."},
  };
  for (const Change& change : changes) {
    if (own.*change.value == change.to) continue;
    c.attempt(change.cause, change.says, change.repair,
              [&](OpSetup& s) { std::get<GatedParams>(s.params).*change.value = change.to; });
  }
  for (const Change& one : changes) {
    for (const Change& two : changes) {
      if (c.explained() || &two <= &one || one.value == two.value || own.*one.value == one.to ||
          own.*two.value == two.to)
        continue;
      c.attempt(
          one.cause, fmt::format("{} and {}", one.says, two.says),
          fmt::format("{} {}", one.repair, two.repair),
          [&](OpSetup& s) {
            std::get<GatedParams>(s.params).*one.value = one.to;
            std::get<GatedParams>(s.params).*two.value = two.to;
          },
          0.95);
    }
  }
}

// A limit that no published model has: the misfit of one too low or too high grows steadily.
void search_limit(OpCase& c) {
  if (c.explained() || !c.direct() || c.setup().inputs.size() != 2 ||
      std::get<GatedParams>(c.setup().params).activation != Activation::kSilu)
    return;
  const auto with = [](double limit) {
    return [limit](OpSetup& s) { std::get<GatedParams>(s.params).clamp = limit; };
  };
  double low = 1e-3, high = 1e3;
  for (int i = 0; i < 80 && high / low > 1 + 1e-7; ++i) {
    const double u = low * std::cbrt(high / low), v = high / std::cbrt(high / low);
    if (c.ratio_with(with(u)) < c.ratio_with(with(v)))
      high = v;
    else
      low = u;
  }
  const double limit = std::sqrt(low * high);
  c.attempt("activation_clamp", fmt::format("gate and up are limited to {}", number(limit)),
            fmt::format("Limit gate and up to {}.", number(limit)), with(limit), 0.9);
}

void attention_sinks(OpCase& c) {
  if (!c.setup().weights.empty()) {
    c.attempt("attention_sinks", "attention has no sinks", "Leave the sinks out of attention.",
              [](OpSetup& s) { s.weights.clear(); });
    return;
  }
  const auto sinks_of = [&](int layer) { return c.context().weights.find(WeightRole::kSinks, layer); };
  if (sinks_of(c.layer()) == kNoWeight) return;
  c.attempt("attention_sinks", "the softmax counts a sink for each head",
            fmt::format("Bind {} to attention, and those of the other layers.",
                        c.context().weights[sinks_of(c.layer())].name),
            [&](OpSetup& s) {
              if (sinks_of(s.layer) != kNoWeight) s.weights = {c.context().weights[sinks_of(s.layer)]};
            });
}

}  // namespace doppler::diagnosis::repairs
