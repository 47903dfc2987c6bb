// Repairs of layers that keep a state, and of steps that another multiplies by one: convolutions, what states
// decay by, where states begin, norms of latents, gates of shared experts.
#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis::repairs {
namespace {

// The weight's values, each by `change`; nothing where one of them is no number then.
std::optional<std::vector<float>> changed_values(const TensorView& weight, double (*change)(double)) {
  std::vector<float> values(element_count(weight.shape).value_or(0));
  if (!decode_f32(weight, 0, values)) return std::nullopt;
  for (float& x : values) {
    x = static_cast<float>(change(x));
    if (!std::isfinite(x)) return std::nullopt;
  }
  return values;
}

// The inputs of the tokens `by` places on, of a sequence that begins and ends with zeros.
void shift_inputs(OpSetup& s, std::ptrdiff_t by) {
  OpSetup::Rows& in = s.inputs[0];
  const auto count = static_cast<std::ptrdiff_t>(s.tokens());
  std::vector<float> moved(in.data.size(), 0.0f);
  for (std::ptrdiff_t t = 0; t < count; ++t) {
    if (t + by < 0 || t + by >= count) continue;
    std::copy_n(in.data.begin() + (t + by) * static_cast<std::ptrdiff_t>(in.width), in.width,
                moved.begin() + t * static_cast<std::ptrdiff_t>(in.width));
  }
  in.data = std::move(moved);
}

void change_taps(OpCase& c, std::string says, const std::function<void(std::span<float> taps)>& change) {
  const TensorView& weight = c.setup().weights[0];
  std::vector<float> values(element_count(weight.shape).value_or(0));
  if (!decode_f32(weight, 0, values)) return;
  const std::size_t taps = weight.shape.back();
  for (std::size_t at = 0; at + taps <= values.size(); at += taps)
    change(std::span(values).subspan(at, taps));
  c.attempt("convolution_taps", std::move(says), {}, [&](OpSetup& s) { s.set_weight(weight.shape, values); });
}

void convolution_bias(OpCase& c) {
  const WeightId id = c.context().weights.find(WeightRole::kConvolutionBias, c.layer());
  const bool has = !c.setup().biases.empty() && c.setup().biases[0];
  if (has) {
    c.attempt("bias_missing", "no bias is added", "Leave out the convolution's bias.",
              [](OpSetup& s) { s.biases.clear(); });
  } else if (id != kNoWeight) {
    const TensorView& bias = c.context().weights[id];
    c.attempt("bias_missing", fmt::format("{} is added", bias.name),
              fmt::format("Add {} to what the convolution gives.", bias.name),
              [&](OpSetup& s) { s.biases = {bias}; });
  }
}

// A state that begins anew: at the first token that is wrong, where a step ends.
void state_begins(OpCase& c) {
  if (!c.direct()) return;
  const BadPlaces places = find_bad_places(c);
  if (places.tokens.empty() || places.tokens.front() == 0) return;
  const std::size_t at = places.tokens.front();
  c.attempt("state_not_carried",
            fmt::format("the state begins anew at token {}, as if nothing came before", c.rows()[at]), {},
            [at](OpSetup& s) { s.positions[at] = 0; });
}

// Values that a type of 16 bits holds, and near the right ones.
bool is_rounded(const OpCase& c, float (*round)(float), double unit) {
  bool any = false;
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    const float x = c.target()[i];
    if (round(x) != x || std::abs(x - c.output()[i]) > 1.01 * unit * std::abs(c.output()[i])) return false;
    any |= x != c.output()[i];
  }
  return any;
}

void rounded_decay(OpCase& c) {
  if (c.target().size() != c.tokens() * c.width()) return;  // of a chain that ends elsewhere
  const auto bf16 = [](float x) { return bf16_to_f32(f32_to_bf16(x)); };
  const auto f16 = [](float x) { return f16_to_f32(f32_to_f16(x)); };
  const bool is_bf16 = is_rounded(c, bf16, 0x1p-8);
  if (!is_bf16 && !is_rounded(c, f16, 0x1p-11)) return;
  c.keep({"decay_precision",
          fmt::format("it is rounded to 16 bits ({})", is_bf16 ? "bfloat16" : "float16"),
          {},
          0.1,
          1});
}

// Reads the logarithm of a rate in other ways. `weight`: of A_log.
void rates_read_otherwise(OpCase& c) {
  struct Reading {
    const char* says;
    double (*change)(double);
  };
  constexpr Reading kReadings[] = {
      {"holds the rates, of which the logarithm is wanted", [](double x) { return std::log(std::abs(x)); }},
      {"holds logarithms of logarithms", [](double x) { return std::exp(x); }},
      {"has the other sign", [](double x) { return -x; }},
  };
  const TensorView& weight = c.setup().weights[0];
  for (const Reading& reading : kReadings) {
    const auto values = changed_values(weight, reading.change);
    if (!values) continue;
    c.attempt(
        "decay_rate", fmt::format("{} {}", weight.name, reading.says),
        fmt::format("Convert {} again: it should hold the logarithm of what a state decays by.", weight.name),
        [&](OpSetup& s) {
          // The second weight of a scan stays.
          OpSetup made = s;
          made.set_weight(weight.shape, *values);
          s.weights[0] = made.weights[0];
          s.owned = std::move(made.owned);
        });
  }
}

// The layers' same weight, where a file has them exchanged.
void weight_of_other_layer(OpCase& c) {
  if (c.explained()) return;
  const TensorView& own = c.setup().weights[0];
  for (const Op& op : c.plan().ops) {
    if (op.kind != c.op().kind || op.layer == c.layer() || op.weights.empty()) continue;
    const TensorView& other = c.context().weights[op.weights[0]];
    if (other.shape != own.shape) continue;
    c.attempt("stale_weight", fmt::format("the weight is {}", other.name), {},
              [&](OpSetup& s) { s.weights[0] = other; });
  }
}

}  // namespace

void convolution(OpCase& c) {
  c.attempt("convolution_shifted", "each token gets what belongs to the one before it", {},
            [](OpSetup& s) { shift_inputs(s, -1); });
  c.attempt("convolution_shifted", "each token gets what belongs to the one after it", {},
            [](OpSetup& s) { shift_inputs(s, 1); });
  change_taps(c, "the taps stand in reverse", [](std::span<float> taps) { std::ranges::reverse(taps); });
  change_taps(c, "every tap is the one after it",
              [](std::span<float> taps) { std::ranges::rotate(taps, taps.begin() + 1); });
  change_taps(c, "every tap is the one before it",
              [](std::span<float> taps) { std::ranges::rotate(taps, taps.end() - 1); });
  convolution_bias(c);
  const Activation own = std::get<ConvolutionParams>(c.setup().params).activation;
  for (const Activation other : {Activation::kSilu, Activation::kIdentity}) {
    if (other == own) continue;
    c.attempt("activation", fmt::format("the activation behind it is {}", name_of(other)), {},
              [&](OpSetup& s) { std::get<ConvolutionParams>(s.params).activation = other; });
  }
  state_begins(c);
  weight_of_other_layer(c);
}

void decay_rate(OpCase& c) {
  rounded_decay(c);
  const OpSetup& s = c.setup();
  const std::size_t width = s.width;
  std::vector<float> logs(width);
  if (!decode_f32(s.weights[0], 0, logs)) return;
  const auto consider = [&](const char* says, const std::function<double(double x, double log)>& rule) {
    std::vector<float> out(s.inputs[0].data.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(rule(s.inputs[0].data[i], logs[i % width]));
    c.consider("decay_rate", says, {}, out);
  };
  consider("its sign is the other one, so that states grow",
           [](double x, double log) { return x * std::exp(log); });
  consider("it is A_log that multiplies, without an exponential",
           [](double x, double log) { return -x * log; });
  consider("A_log itself multiplies, with its sign", [](double x, double log) { return x * log; });
  consider("the time step alone decides, without A_log", [](double x, double) { return -x; });
  consider("the time step is the decay, with its sign", [](double x, double) { return x; });
  rates_read_otherwise(c);
  weight_of_other_layer(c);
}

void time_step(OpCase& c) {
  const TensorView& bias = c.setup().weights[0];
  const std::vector<float> none(c.setup().width, 0.0f);
  c.attempt("step_bias", fmt::format("{} is not added", bias.name),
            fmt::format("Add {} to the time step, before its softplus.", bias.name),
            [&](OpSetup& s) { s.set_weight(bias.shape, none); });
  c.attempt("step_bias", "its limits are left out", "Set time_step_limit.",
            [](OpSetup& s) { s.params = TimeStepParams{}; });
  weight_of_other_layer(c);
}

void state(OpCase& c) {
  state_begins(c);
  if (c.op().kind == OpKind::kChannelScan) rates_read_otherwise(c);
}

// A step that passes on what it reads, where the model has a norm or a gate.
void left_out_step(OpCase& c) {
  const Weights& weights = c.context().weights;
  if (c.stage() == Stage::kKvANorm || c.stage() == Stage::kQANorm) {
    const WeightId id = weights.find(
        c.stage() == Stage::kKvANorm ? WeightRole::kKvDownNorm : WeightRole::kQDownNorm, c.layer());
    if (id == kNoWeight) return;
    // Latents' norms have this epsilon in transformers, whatever rms_norm_eps says.
    for (const double eps : {1e-6, c.context().spec.norm.eps}) {
      c.attempt("latent_norm_missing", fmt::format("it is normalised with {}", weights[id].name),
                fmt::format("Normalise the latent with {} before anything reads it.", weights[id].name),
                [&](OpSetup& s) {
                  s.kind = OpKind::kRmsNorm;
                  s.params = NormParams{.eps = eps};
                  s.weights = {weights[id]};
                });
      if (c.explained()) return;
    }
    return;
  }
  const WeightId gate = weights.find(WeightRole::kSharedGate, c.layer());
  if (c.stage() == Stage::kFfnShared && gate != kNoWeight) {
    const auto x = c.other(Stage::kFfnNormed, c.layer());
    const TensorView& weight = weights[gate];
    std::vector<float> row(weight.cols());
    if (!x || x->size() != c.tokens() * row.size() || !decode_f32(weight, 0, row)) return;
    c.attempt(
        "shared_expert_gate", fmt::format("it is multiplied by the sigmoid of what {} gives", weight.name),
        fmt::format("Multiply the shared expert's result by sigmoid({} x).", weight.name), [&](OpSetup& s) {
          for (std::size_t t = 0; t < s.tokens(); ++t) {
            double logit = 0;
            for (std::size_t i = 0; i < row.size(); ++i)
              logit += static_cast<double>(row[i]) * (*x)[t * row.size() + i];
            for (std::size_t i = 0; i < s.inputs[0].width; ++i)
              s.inputs[0].data[t * s.inputs[0].width + i] *= static_cast<float>(1 / (1 + std::exp(-logit)));
          }
        });
  }
}

// What multiplies a step of a layer.
void multiplier(OpCase& c) {
  const double own = std::get<SoftcapParams>(c.setup().params).scale;
  const auto attempt = [&](double scale, double weight) {
    if (scale == own) return;
    c.attempt(
        "multiplier", fmt::format("{} is multiplied by {}", stage_name(c.stage()), number(scale)),
        fmt::format("Set the multiplier of {} to {} (it is {}).", stage_name(c.stage()), number(scale),
                    number(own)),
        [&](OpSetup& s) { std::get<SoftcapParams>(s.params).scale = scale; }, weight);
  };
  attempt(1, 1);
  attempt(1 / own, 1);
}

void residual_scale(OpCase& c) {
  const double own = std::get<AddParams>(c.setup().params).scale;
  const auto attempt = [&](double scale, double weight) {
    if (scale == own) return;
    c.attempt(
        "residual_scale", fmt::format("what is added is multiplied by {}", number(scale)),
        fmt::format("Set residual_multiplier (or the scale of depth) to {} (it is {}).", number(scale),
                    number(own)),
        [&](OpSetup& s) { std::get<AddParams>(s.params).scale = scale; }, weight);
  };
  attempt(1, 1);
  attempt(1 / own, 1);
  if (!c.direct() || c.explained()) return;
  const auto& in = c.setup().inputs;
  double products = 0, squares = 0;  // any other number shows as one ratio of all values
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    const double added = in[1].data[i];
    products += added * (static_cast<double>(c.target()[i]) - in[0].data[i]);
    squares += added * added;
  }
  if (squares <= 0) return;
  // Multipliers are published with few digits.
  const double measured = products / squares;
  for (const double digits : {1e2, 1e3, 1e4}) {
    const double rounded = std::round(measured * digits) / digits;
    if (rounded > 0 && std::abs(rounded - measured) < 1e-4 * rounded) attempt(rounded, 0.97);
    if (c.explained()) return;
  }
  if (measured > 0) attempt(measured, 0.9);
}

// Queries that grow with their position by steps: where steps are and how high follows from the rows.
void position_scale(OpCase& c) {
  const PositionScale own = std::get<PositionScale>(c.setup().params);
  const auto attempt = [&](std::string says, std::string repair, const PositionScale& scale) {
    if (scale == own) return;
    c.attempt("attention_scale", std::move(says), std::move(repair),
              [&](OpSetup& s) { std::get<PositionScale>(s.params) = scale; });
  };
  PositionScale none = own;
  none.beta = 0;
  attempt("queries do not grow with their position", "Leave the scale by position out.", none);
  for (std::uint32_t every = 1; every <= 65536; every *= 2) {
    PositionScale other = own;
    other.every = every;
    attempt(fmt::format("queries grow every {} positions", every),
            fmt::format("Set original_max_position_embeddings (or floor_scale) to {} (it is {}).", every,
                        own.every),
            other);
  }
  if (!c.direct() || c.explained()) return;
  std::size_t first = c.tokens();  // the first token that grows
  double height = 0;
  const OpSetup::Rows& in = c.setup().inputs[0];
  for (std::size_t t = 0; t < c.tokens() && first == c.tokens(); ++t) {
    double products = 0, squares = 0;
    for (std::size_t i = t * in.width; i < (t + 1) * in.width; ++i) {
      products += static_cast<double>(in.data[i]) * c.target()[i],
          squares += static_cast<double>(in.data[i]) * in.data[i];
    }
    height = squares > 0 ? products / squares - 1 : 0;
    if (std::abs(height) > 1e-5) first = t;
  }
  if (first == c.tokens()) return;
  const std::int32_t at = c.setup().positions[first];
  for (const std::uint32_t every : {own.every, static_cast<std::uint32_t>(at) + own.offset}) {
    if (every == 0) continue;
    PositionScale other = own;
    other.every = every;
    const double steps = std::log1p(std::floor((at + static_cast<double>(own.offset)) / every));
    if (!(steps > 0)) continue;
    other.beta = tidy(height / steps);
    attempt(fmt::format("queries grow by {} every {} positions", number(other.beta), every),
            fmt::format("Set the scale by position to {} (it is {}) every {} positions (it is {}).",
                        number(other.beta), number(own.beta), every, own.every),
            other);
  }
}

}  // namespace doppler::diagnosis::repairs
