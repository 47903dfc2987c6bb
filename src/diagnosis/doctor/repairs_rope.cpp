// Repairs of rotary embeddings. The angles follow from a rotation's input and output, so bases and scalings
// need no search.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/settings.h"
#include "model/rope.h"

namespace doppler::diagnosis::repairs {
namespace {

// What models use, the commonest first.
constexpr double kBases[] = {10000, 500000, 1e6, 1e5, 1e7, 150000, 50000, 160000, 5e6, 8e6, 25000, 1000, 100};

struct Layout {
  RopeLayout layout;
  const char *name, *says;
};
constexpr Layout kLayouts[] = {
    {RopeLayout::kHalf, "half", "pairs lie half a head apart, (i, i + d/2)"},
    {RopeLayout::kInterleaved, "interleaved", "pairs are neighbours, (2i, 2i + 1)"},
    {RopeLayout::kInterleavedToHalf, "interleaved (rope_interleave)",
     "pairs are neighbours, (2i, 2i + 1), and lie half a head apart when they have turned"},
};

RopeSpec spec_of(const OpCase& c) {
  const auto& layers = c.context().spec.layers;
  const auto layer = static_cast<std::size_t>(std::max(c.layer(), 0));
  return layer < layers.size() ? layers[layer].attention.rope : RopeSpec{};
}

std::size_t dims_per_head(const OpCase& c) {
  return c.setup().width / c.setup().heads;
}

// Longrope chooses by the context; the longest position recorded is all that counts here.
std::uint64_t context_of(const OpCase& c) {
  return c.context().experiment.rows().ids().size();
}

bool attempt_spec(OpCase& c, const char* cause, std::string says, std::string repair, const RopeSpec& spec,
                  double weight = 1, double value = 0) {
  if (spec.rotary_dim == 0 || spec.rotary_dim > dims_per_head(c)) return false;
  const RopeTable table = make_rope_table(spec, context_of(c));
  return c.attempt(
      cause, std::move(says), std::move(repair), [&](OpSetup& s) { s.rope = table; }, weight, value);
}

void add_rope_setting(OpCase& c, const char* value, const std::string& json) {
  const auto& layers = c.context().spec.layers;
  const auto layer = static_cast<std::size_t>(std::max(c.layer(), 0));
  const std::uint32_t turning = spec_of(c).rotary_dim;
  if (layer >= layers.size() || json.empty() || turning == 0 || turning > dims_per_head(c)) return;
  for (Fix& fix : rope_setting(layers[layer].attention.kind, value, json)) c.add_fix(std::move(fix));
}

// Inverse frequencies and magnitude that the target was rotated with: for each pair the angle at the smallest
// position that is not 0, which fixes its multiples, summed over heads.
struct Measured {
  std::vector<double> frequency;
  double magnitude = 1;
};
std::optional<Measured> measure_angles(const OpCase& c, RopeLayout layout, std::size_t rotary_dim) {
  const OpSetup& s = c.setup();
  std::size_t at = s.tokens();
  for (std::size_t t = 0; t < s.tokens(); ++t) {
    if (s.positions[t] > 0 && (at == s.tokens() || s.positions[t] < s.positions[at])) at = t;
  }
  if (at == s.tokens()) return std::nullopt;
  const std::size_t dim = dims_per_head(c), pairs = rotary_dim / 2;
  Measured found;
  double before = 0, after = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    double cos = 0, sin = 0;
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::size_t base = at * s.width + h * dim + std::get<RopeParams>(s.params).begin;
      const bool from_halves = layout == RopeLayout::kHalf, to_halves = layout != RopeLayout::kInterleaved;
      const auto first = [&](bool halves) { return base + (halves ? i : 2 * i); };
      const auto second = [&](bool halves) { return base + (halves ? i + pairs : 2 * i + 1); };
      const double x = s.inputs[0].data[first(from_halves)], y = s.inputs[0].data[second(from_halves)];
      const double u = c.target()[first(to_halves)], v = c.target()[second(to_halves)];
      cos += x * u + y * v, sin += x * v - y * u;
      before += x * x + y * y, after += u * u + v * v;
    }
    found.frequency.push_back(std::atan2(sin, cos) / s.positions[at]);
  }
  found.magnitude = before > 0 ? std::sqrt(after / before) : 1;
  return found;
}

// The base that explains the measured angles best, by their logarithms; the first pair turns by 1 whatever
// the base.
std::optional<double> fit_theta(const Measured& measured, std::size_t rotary_dim) {
  double products = 0, squares = 0;
  for (std::size_t i = 1; i < measured.frequency.size(); ++i) {
    if (measured.frequency[i] <= 1e-6) continue;  // too small to measure in float32 rows
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    // Small angles are known less well: their error is that of the rows, whatever the angle.
    const double weight = measured.frequency[i] * measured.frequency[i];
    products += weight * exponent * std::log(measured.frequency[i]);
    squares += weight * exponent * exponent;
  }
  if (squares == 0) return std::nullopt;
  return std::exp(products / squares);
}

// Bases are round numbers.
double rounded(double theta) {
  const double scale = std::pow(10, std::floor(std::log10(theta)) - 1);
  return std::round(theta / scale) * scale;
}

}  // namespace

void rope_layout(OpCase& c) {
  const auto& own = c.setup().rope.inverse_frequency;
  if (std::ranges::all_of(own, [](double f) { return f == 0; }))
    attempt_spec(c, "rope_missing", "queries and keys rotate at all", {}, spec_of(c));
  const RopeLayout layout = std::get<RopeParams>(c.setup().params).layout;
  for (const Layout& other : kLayouts) {
    if (other.layout == layout) continue;
    c.attempt("rope_layout", other.says,
              fmt::format("Set the rope layout to {}, or undo the permutation of the query and key rows.",
                          other.name),
              [&](OpSetup& s) { std::get<RopeParams>(s.params).layout = other.layout; });
  }
}

void rope_theta(OpCase& c) {
  RopeSpec spec = spec_of(c);
  const double own = spec.theta;
  const auto attempt = [&](double theta, double weight) {
    spec.theta = theta;
    const bool agrees = attempt_spec(
        c, "rope_theta", fmt::format("the base is {}", number(theta)),
        fmt::format("Set rope_theta of {} to {} (it is {}).",
                    c.context().spec.layers[static_cast<std::size_t>(c.layer())].attention.kind ==
                            AttentionKind::kSliding
                        ? "the local layers"
                        : "the layer",
                    number(theta), number(own)),
        spec, weight, theta);
    add_rope_setting(c, "theta", number(theta));
    return agrees;
  };
  attempt(own, 1);  // the plan's table may not be the description's
  for (const LayerSpec& layer : c.context().spec.layers) {
    if (layer.attention.rope.theta != own && !c.explained()) attempt(layer.attention.rope.theta, 1);
  }
  for (const double theta : kBases) {
    if (theta != own) attempt(theta, 1);
  }
  if (c.explained() || !c.direct()) return;
  const auto measured = measure_angles(c, std::get<RopeParams>(c.setup().params).layout, spec.rotary_dim);
  const auto theta = measured ? fit_theta(*measured, spec.rotary_dim) : std::nullopt;
  if (!theta || !std::isfinite(*theta) || *theta < 1) return;
  if (!attempt(rounded(*theta), 0.97)) attempt(*theta, 0.9);
}

namespace {

// By how much the slowest pair that can be measured turns less than without a scaling: the factor of one.
std::optional<double> measured_factor(const OpCase& c) {
  RopeSpec plain = spec_of(c);
  plain.scaling = {};
  if (!c.direct() || plain.rotary_dim == 0 || plain.rotary_dim > dims_per_head(c)) return std::nullopt;
  const auto measured = measure_angles(c, std::get<RopeParams>(c.setup().params).layout, plain.rotary_dim);
  const RopeTable table = make_rope_table(plain, context_of(c));
  if (!measured) return std::nullopt;
  for (std::size_t i = table.inverse_frequency.size(); i-- > 0;) {
    constexpr double kLeast = 1e-5;  // radians; below it what float32 rows leave of an angle is noise
    if (!(measured->frequency[i] > kLeast) || !(table.inverse_frequency[i] > 0)) continue;
    const double factor = table.inverse_frequency[i] / measured->frequency[i];
    const double half = std::round(factor * 2) / 2;  // factors are round numbers
    if (half > 1 && std::abs(half - factor) < 0.02 * factor) return half;
    return std::nullopt;
  }
  return std::nullopt;
}

struct Scaled {
  std::string says;
  RopeSpec spec;
};

// Every scaling to try, with the layer's own base.
std::vector<Scaled> scalings(const OpCase& c) {
  const RopeSpec own = spec_of(c);
  std::vector<Scaled> all;
  const auto attempt = [&](std::string says, const RopeSpec& spec) {
    all.push_back({std::move(says), spec});
  };
  // Scalings of the model's other layers, then published ones.
  for (const LayerSpec& layer : c.context().spec.layers) {
    if (layer.attention.rope.scaling == own.scaling) continue;
    RopeSpec spec = own;
    spec.scaling = layer.attention.rope.scaling;
    attempt(fmt::format("it is scaled as other layers are: {}", name_of(spec.scaling.kind)), spec);
  }
  RopeSpec spec = own;
  spec.scaling.truncate = !own.scaling.truncate;
  if (own.scaling.kind == RopeScalingKind::kYarn) attempt("yarn's range is rounded otherwise", spec);
  spec = own;  // changes of one number before whole scalings
  for (const double change : {1.0, 0.1 * std::log(std::max(own.scaling.factor, 1.0)) + 1}) {
    spec.scaling.attention_factor = spec.scaling.long_attention_factor = change;
    if (change != own.scaling.attention_factor)
      attempt(fmt::format("the attention factor is {}", number(change)), spec);
  }
  spec.scaling = {};
  attempt("nothing is scaled", spec);
  std::vector<double> factors = {2, 4, 8, 16, 32, 40, own.scaling.factor};  // 40: DeepSeek's
  if (const auto measured = measured_factor(c)) factors.push_back(*measured);
  const bool has_factor = own.scaling.kind == RopeScalingKind::kYarn ||
                          own.scaling.kind == RopeScalingKind::kLlama3 ||
                          own.scaling.kind == RopeScalingKind::kLinear;
  for (const double factor : factors) {  // one number before whole scalings
    if (!has_factor || factor == own.scaling.factor) continue;
    spec = own;
    spec.scaling.factor = factor;
    if (own.scaling.attention_factor != 1) spec.scaling.attention_factor = 0.1 * std::log(factor) + 1;
    attempt(fmt::format("the factor of {} is {}", name_of(own.scaling.kind), number(factor)), spec);
  }
  if (has_factor && own.scaling.original_context > 0 && c.direct()) {
    for (double original = 64; original <= 262144; original *= 2) {
      if (original == own.scaling.original_context) continue;
      spec = own;
      spec.scaling.original_context = original;
      attempt(fmt::format("original_max_position_embeddings is {}", number(original)), spec);
    }
  }
  for (const double factor : factors) {
    if (factor == 1) continue;
    spec.scaling = {.kind = RopeScalingKind::kLinear, .factor = factor};
    attempt(fmt::format("positions are divided by {} (linear)", number(factor)), spec);
    for (const double original : {own.scaling.original_context, 8192.0, 4096.0, 32768.0, 64.0}) {
      if (original == 0) continue;
      spec.scaling = {.kind = RopeScalingKind::kLlama3, .factor = factor, .original_context = original};
      attempt(fmt::format("it is llama3's with the factor {} from {}", number(factor), number(original)),
              spec);
      spec.scaling.kind = RopeScalingKind::kYarn;
      spec.scaling.attention_factor = 0.1 * std::log(factor) + 1;
      attempt(fmt::format("it is yarn's with the factor {} from {}", number(factor), number(original)), spec);
      spec.scaling.attention_factor = 1;
      attempt(fmt::format("it is yarn's with the factor {} from {}, without its attention factor",
                          number(factor), number(original)),
              spec);
      if (factor != 32) continue;  // gpt-oss's
      spec.scaling.attention_factor = 0.1 * std::log(factor) + 1, spec.scaling.truncate = false;
      attempt(fmt::format("it is yarn's with the factor {} from {}, its range not rounded", number(factor),
                          number(original)),
              spec);
      spec.scaling.truncate = true;
    }
  }
  if (own.scaling.kind == RopeScalingKind::kLlama3) {  // its two other numbers
    for (const double low : {1.0, 2.0, 4.0}) {
      for (const double high : {4.0, 8.0, 2.0}) {
        if (low >= high) continue;
        spec = own;
        spec.scaling.low_freq_factor = low, spec.scaling.high_freq_factor = high;
        attempt(fmt::format("low_freq_factor is {} and high_freq_factor {}", low, high), spec);
      }
    }
  }
  return all;
}

bool attempt_scaled(OpCase& c, const Scaled& scaled) {
  const bool agrees = attempt_spec(c, "rope_scaling", scaled.says,
                                   fmt::format("Set rope_scaling so that {}.", scaled.says), scaled.spec, 1);
  add_rope_setting(c, "scaling", scaling_text(scaled.spec));
  return agrees;
}

}  // namespace

void rope_scaling(OpCase& c) {
  for (const Scaled& scaled : scalings(c)) attempt_scaled(c, scaled);
}

namespace {

// One of several things that a rotation may do otherwise besides.
struct Besides {
  std::string says;
  std::function<void(OpSetup& setup)> change;
};

// The other layout, and the rows of a norm that the plan lacks and the recording has.
std::vector<Besides> besides(const OpCase& c) {
  const bool half = std::get<RopeParams>(c.setup().params).layout == RopeLayout::kHalf;
  const auto turn_layout = [half](OpSetup& s) {
    std::get<RopeParams>(s.params).layout = half ? RopeLayout::kInterleaved : RopeLayout::kHalf;
  };
  std::vector<Besides> all = {
      {half ? "pairs are neighbours, (2i, 2i + 1)" : "pairs lie half a head apart", turn_layout}};
  const Stage norm = c.stage() == Stage::kQRope ? Stage::kQNorm : Stage::kKNorm;
  const auto planned = [&](const Value& v) { return v.stage == norm && v.layer == c.layer(); };
  if (!c.direct() || std::ranges::any_of(c.plan().values, planned)) return all;
  if (const auto rows = c.other(norm, c.layer()); rows && rows->size() == c.setup().inputs[0].data.size()) {
    const auto read_norm = [rows = *rows](OpSetup& s) { s.inputs[0].data = rows; };
    all.push_back({fmt::format("it reads {}", stage_name(norm)), read_norm});
    all.push_back({fmt::format("it reads {}, and {}", stage_name(norm), all[0].says), [=](OpSetup& s) {
                     turn_layout(s);
                     read_norm(s);
                   }});
  }
  return all;
}

// A table with something else; true if both together agree.
bool attempt_besides(OpCase& c, const char* cause, const std::string& says, const RopeSpec& spec,
                     const Besides& other) {
  if (spec.rotary_dim == 0 || spec.rotary_dim > dims_per_head(c)) return false;
  const RopeTable table = make_rope_table(spec, context_of(c));
  return c.attempt(cause, fmt::format("{} and {}", says, other.says),
                   fmt::format("Set the rotary embedding so that {} and {}.", says, other.says),
                   [&](OpSetup& s) {
                     s.rope = table;
                     other.change(s);
                   });
}

}  // namespace

// A base and a scaling that are both wrong: the angles of either alone agree nowhere.
void rope_both(OpCase& c) {
  if (c.explained()) return;
  const double own = spec_of(c).theta;
  const auto says_base = [](double theta) { return fmt::format("the base is {}", number(theta)); };
  for (Scaled& scaled : scalings(c)) {
    for (const double theta : kBases) {
      if (theta == own) continue;
      scaled.spec.theta = theta;
      const bool agrees =
          attempt_spec(c, "rope_theta", fmt::format("{} and {}", says_base(theta), scaled.says),
                       fmt::format("Set rope_theta to {} (it is {}), and rope_scaling so that {}.",
                                   number(theta), number(own), scaled.says),
                       scaled.spec, 1, theta);
      add_rope_setting(c, "theta", number(theta));
      add_rope_setting(c, "scaling", scaling_text(scaled.spec));
      if (agrees) return;
    }
  }
  // The base and how much of a head turns.
  const auto dim = static_cast<std::uint32_t>(dims_per_head(c));
  for (const std::uint32_t rotary : {dim, dim / 2, dim / 4, dim * 3 / 4}) {
    RopeSpec spec = spec_of(c);
    if (rotary % 2 != 0 || rotary == spec.rotary_dim || rotary == 0) continue;
    spec.rotary_dim = rotary;
    for (const double theta : kBases) {
      spec.theta = theta;
      const bool agrees = attempt_spec(
          c, "rope_theta",
          fmt::format("{} and {} of the {} dims of a head rotate", says_base(theta), rotary, dim),
          fmt::format("Set rope_theta to {} (it is {}), and partial_rotary_factor to {}.", number(theta),
                      number(own), static_cast<double>(rotary) / dim),
          spec, 1, theta);
      add_rope_setting(c, "theta", number(theta));
      add_rope_setting(c, "rotary_dim", std::to_string(rotary));
      if (agrees) return;
    }
  }
  if (!c.direct()) return;  // along a chain any two changes are tried
  for (const Besides& other : besides(c)) {
    for (const double theta : kBases) {
      RopeSpec spec = spec_of(c);
      spec.theta = theta;
      if (attempt_besides(c, theta == own ? "rope_layout" : "rope_theta", says_base(theta), spec, other))
        return;
    }
    for (const Scaled& scaled : scalings(c)) {
      if (attempt_besides(c, "rope_scaling", scaled.says, scaled.spec, other)) return;
    }
  }
}

void rope_position(OpCase& c) {
  const auto attempt = [&](std::string says, const std::function<std::int32_t(std::int32_t)>& position) {
    c.attempt("rope_position", std::move(says), {}, [&](OpSetup& s) {
      for (std::int32_t& p : s.positions) p = position(p);
    });
  };
  const std::int32_t last = *std::ranges::max_element(c.setup().positions);
  const auto count = static_cast<std::int32_t>(context_of(c));
  attempt("positions begin at 1", [](std::int32_t p) { return p + 1; });
  attempt("positions begin one earlier", [](std::int32_t p) { return p - 1; });
  attempt("every token stands at position 0", [](std::int32_t) { return 0; });
  attempt("every token stands at the last position", [&](std::int32_t) { return last; });
  attempt("every token stands at position 1", [](std::int32_t) { return 1; });
  attempt("positions count backwards", [&](std::int32_t p) { return last - p; });
  attempt("positions turn the other way", [](std::int32_t p) { return -p; });
  for (std::int32_t by = 2; by <= 2 * count && by <= 64 && !c.explained(); ++by)
    attempt(fmt::format("positions begin at {}", by), [&](std::int32_t p) { return p + by; });
  attempt("positions count double", [](std::int32_t p) { return 2 * p; });
}

void rope_dims(OpCase& c) {
  RopeSpec spec = spec_of(c);
  const auto dim = static_cast<std::uint32_t>(dims_per_head(c));
  const std::uint32_t begins = std::get<RopeParams>(c.setup().params).begin;
  const auto turning = 2 * static_cast<std::uint32_t>(c.setup().rope.inverse_frequency.size());
  for (const std::uint32_t begin : {0u, dim - std::min(turning, dim)}) {
    if (begin == begins || begin + turning > dim) continue;
    c.attempt("rope_dims",
              fmt::format("the {} {} of the {} dims of a head rotate, not others",
                          begin == 0 ? "first" : "last", turning, dim),
              fmt::format("Rotate dims {} to {} of each head (here: {} to {}).", begin, begin + turning - 1,
                          begins, begins + turning - 1),
              [&](OpSetup& s) { std::get<RopeParams>(s.params).begin = begin; });
  }
  const std::uint32_t own = spec.rotary_dim;
  for (const std::uint32_t rotary : {dim, dim / 2, dim / 4, dim * 3 / 4, dim * 2 / 5, dim / 8}) {
    if (rotary % 2 != 0 || rotary == own || rotary == 0) continue;
    spec.rotary_dim = rotary;
    attempt_spec(c, "rope_dims", fmt::format("{} of the {} dims of a head rotate", rotary, dim),
                 fmt::format("Set partial_rotary_factor to {} (rotary dims are {}).",
                             static_cast<double>(rotary) / dim, own),
                 spec);
    add_rope_setting(c, "rotary_dim", std::to_string(rotary));
  }
  // Gemma 4's: the first pairs turn, and angles count as if all did.
  for (const std::uint32_t parts : {1u, 2u, 3u}) {
    spec = spec_of(c);
    spec.rotary_dim = dim;
    spec.still_pairs = dim / 2 - dim * parts / 4 / 2;
    if (spec == spec_of(c)) continue;
    attempt_spec(c, "rope_dims",
                 fmt::format("of the {} pairs of a head the first {} turn, by angles as if all did", dim / 2,
                             dim / 2 - spec.still_pairs),
                 fmt::format("Set rope_type to proportional and partial_rotary_factor to {}.", parts / 4.0),
                 spec);
  }
}

namespace {

// Along a chain a norm that the plan lacks has no rows to read: it is computed, for queries and keys alike.
void lacking_norms(OpCase& c) {
  const auto role = [](Stage stage) {
    return stage == Stage::kQRope ? WeightRole::kQNorm : WeightRole::kKNorm;
  };
  const Weights& weights = c.context().weights;
  const auto planned = [&](const Value& v) { return v.stage == Stage::kQNorm && v.layer == c.layer(); };
  if (weights.find(role(c.stage()), c.layer()) == kNoWeight || std::ranges::any_of(c.plan().values, planned))
    return;
  const NormSpec& norm = c.context().spec.norm;
  c.attempt("qk_norm_missing", "queries and keys are normalised before they turn", {}, [&](OpSetup& s) {
    const WeightId id = weights.find(role(s.stage), s.layer);
    if (id == kNoWeight) return;
    OpSetup before = s;
    before.kind = OpKind::kRmsNorm;
    before.params = NormParams{norm.eps, norm.weight_offset};
    before.weights = {weights[id]};
    if (auto rows = c.context().experiment.run(before)) s.inputs[0].data = std::move(*rows);
  });
  c.say_what_lacks(Stage::kQNorm);
}

}  // namespace

void rope_input(OpCase& c) {
  if (!c.direct()) lacking_norms(c);
  if (c.scope().size() > 1) return;
  c.consider("rope_missing", "nothing is rotated", {}, c.setup().inputs[0].data);
  const bool query = c.stage() == Stage::kQRope || c.stage() == Stage::kQNorm;
  const WeightId norm_weight =
      c.context().weights.find(query ? WeightRole::kQNorm : WeightRole::kKNorm, c.layer());
  const bool has_norm = norm_weight != kNoWeight;
  for (const OpCase::Other& other : c.others(c.width())) {
    if (other.rows == c.setup().inputs[0].data || other.layer != c.layer()) continue;
    const bool norm = other.stage == Stage::kQNorm || other.stage == Stage::kKNorm;
    const bool projection = other.stage == (query ? Stage::kQProj : Stage::kKProj);
    c.attempt(norm && !has_norm      ? "qk_norm_missing"
              : (norm || projection) ? "qk_norm_misplaced"
                                     : "uniform_fields_swapped",
              fmt::format("it reads {}", stage_name(other.stage)), {},
              [&](OpSetup& s) { s.inputs[0].data = other.rows; });
  }
  if ((c.stage() != Stage::kQNorm && c.stage() != Stage::kKNorm) || !has_norm) return;
  // A rotation where the norm should be.
  c.attempt("qk_norm_misplaced", "it is normalised here, and rotated afterwards",
            "Normalise queries and keys before the rotary embedding.", [&](OpSetup& s) {
              s.kind = OpKind::kRmsNorm;
              s.params = NormParams{c.context().spec.norm.eps, c.context().spec.norm.weight_offset};
              s.weights = {c.context().weights[norm_weight]};
            });
}

// For any other angles: if they are proportional to the positions, the finding gives the measured
// frequencies.
void rope_measured(OpCase& c) {
  if (c.explained()) return;
  const RopeSpec own = spec_of(c);
  for (const auto& [layout, name, says] : kLayouts) {
    const auto measured = measure_angles(c, layout, own.rotary_dim);
    if (!measured) return;
    const RopeTable mine = c.setup().rope;
    std::size_t first = 0;
    const auto differs = [&](std::size_t i) {
      return std::abs(measured->frequency[i] - mine.inverse_frequency[i]) >
             1e-4 * mine.inverse_frequency[i] + 1e-7;
    };
    while (first + 1 < measured->frequency.size() && !differs(first)) ++first;
    const double times = measured->frequency[first] / mine.inverse_frequency[first];
    // A full turn more leaves the same rows; angles beyond half a turn are measured as small ones.
    c.attempt(
        "rope_scaling",
        fmt::format(
            "the angles are those that were measured: pair {} turns {:.4g} times as far, and lengths are "
            "multiplied by {:.4g}",
            first, times, measured->magnitude),
        {},
        [&](OpSetup& s) {
          std::get<RopeParams>(s.params).layout = layout;
          s.rope.inverse_frequency = measured->frequency;
          s.rope.magnitude = measured->magnitude;
        },
        0.7);
  }
}

}  // namespace doppler::diagnosis::repairs
