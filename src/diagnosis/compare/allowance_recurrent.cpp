#include "diagnosis/compare/allowance_recurrent.h"

#include <cmath>

#include "model/activation.h"

namespace doppler::diagnosis {
namespace {

// Half a unit in the last place of float32; what a product, a sum and the conversions around them lose
// together; and what exponentials and logarithms of vector kernels and GPUs do: as allowance.cpp has them.
constexpr double kUnit = 5.9604644775390625e-8;
constexpr double kSomeRoundings = 16 * kUnit, kOfFunction = 32 * kUnit;

Result<std::vector<float>> decoded_weight(const OpSetup& s, std::size_t i) {
  std::vector<float> values(element_count(s.weights[i].shape).value_or(0));
  DOPPLER_TRY(decode_f32(s.weights[i], 0, values));
  return values;
}

const float* row_of(const OpSetup& s, std::size_t input, std::size_t token) {
  return &s.inputs[input].data[token * s.inputs[input].width];
}

// exp(x) loses units with its argument's size.
double exp_rounding(double x) {
  return kSomeRoundings + 2 * kUnit * std::abs(x);
}

Result<std::vector<double>> element_bounds(const OpSetup& s) {
  std::vector<double> out(s.tokens() * s.width);
  if (const auto* p = std::get_if<ColumnsParams>(&s.params)) {
    std::size_t at = 0;
    for (std::size_t t = 0; t < s.tokens(); ++t) {
      for (const ColumnRange& range : p->ranges) {
        for (std::size_t i = 0; i < std::size_t{range.groups} * range.width; ++i) {
          const std::size_t group = i / range.width * (s.inputs[0].width / range.groups);
          const double x = row_of(s, 0, t)[group + range.first + i % range.width];
          out[at++] = range.scale == 1 ? 0 : 4 * kUnit * std::abs(x * range.scale);
        }
      }
    }
    return out;
  }
  DOPPLER_ASSIGN(const std::vector<float> weight, decoded_weight(s, 0));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double x = s.inputs[0].data[i], w = weight[i % s.width];
    out[i] = s.kind == OpKind::kTimeStep ? kOfFunction * (1 + std::abs(x) + std::abs(w))
                                         : (kSomeRoundings + exp_rounding(w)) * std::abs(x) * std::exp(w);
  }
  return out;
}

Result<std::vector<double>> convolution_bounds(const OpSetup& s) {
  const auto& p = std::get<ConvolutionParams>(s.params);
  DOPPLER_ASSIGN(const std::vector<float> weight, decoded_weight(s, 0));
  std::vector<float> bias(s.width);
  if (!s.biases.empty() && s.biases[0]) DOPPLER_TRY(decode_f32(*s.biases[0], 0, bias));
  std::vector<double> out(s.tokens() * s.width);
  std::size_t begin = 0;  // of the token's sequence
  for (std::size_t t = 0; t < s.tokens(); ++t) {
    if (s.positions[t] == 0) begin = t;
    for (std::size_t c = 0; c < s.width; ++c) {
      double sum = bias[c], size = std::abs(sum);
      for (std::size_t k = 0; k < p.taps && t - begin >= k; ++k) {
        const double term = weight[c * p.taps + p.taps - 1 - k] * static_cast<double>(row_of(s, 0, t - k)[c]);
        sum += term;
        size += std::abs(term);
      }
      double bound = kSomeRoundings * size;
      if (p.activation != Activation::kIdentity) {
        // The slopes of SiLU stay below 1.1.
        bound =
            1.1 * bound + (kOfFunction + 4 * kUnit * std::abs(sum)) * std::abs(activate(p.activation, sum));
      }
      out[t * s.width + c] = bound;
    }
  }
  return out;
}

// One column of one head's state goes along the sequence with the length of its error. What the rule does to
// a column, exp(g) (1 - beta k k'), lengthens no vector where beta |k|^2 lies between 0 and 2; else by that.
void follow_delta(const OpSetup& s, std::size_t h, std::size_t j, std::vector<double>& out) {
  const auto& p = std::get<DeltaParams>(s.params);
  const std::size_t key_head = h / (p.heads / p.key_heads);
  std::vector<double> state(p.key_dim);
  double error = 0;
  for (std::size_t t = 0; t < s.tokens(); ++t) {
    if (s.positions[t] == 0) {
      state.assign(p.key_dim, 0);
      error = 0;
    }
    const float *q = row_of(s, 0, t) + key_head * p.key_dim, *k = row_of(s, 1, t) + key_head * p.key_dim;
    const double v = row_of(s, 2, t)[h * p.value_dim + j], beta = row_of(s, 3, t)[h], g = row_of(s, 4, t)[h];
    const double decay = std::exp(g);
    double read = 0, keys = 0, queries = 0, size = 0;
    for (std::size_t i = 0; i < p.key_dim; ++i) {
      state[i] *= decay;
      read += k[i] * state[i];
      keys += static_cast<double>(k[i]) * k[i];
      queries += static_cast<double>(q[i]) * q[i];
      size += state[i] * state[i];
    }
    const double length = std::sqrt(size), key_length = std::sqrt(keys);
    const double sum = kSomeRoundings + kUnit * std::sqrt(static_cast<double>(p.key_dim)) / 4;
    error = decay * error * std::max(1.0, std::abs(1 - beta * keys)) +
            (exp_rounding(g) + kSomeRoundings) * length * (1 + std::abs(beta) * keys) +
            key_length * std::abs(beta) * (kSomeRoundings * std::abs(v) + sum * key_length * length);
    const double change = beta * (v - read);
    size = 0;
    for (std::size_t i = 0; i < p.key_dim; ++i) {
      state[i] += k[i] * change;
      size += state[i] * state[i];
    }
    out[(t * p.heads + h) * p.value_dim + j] = std::sqrt(queries) * (error + sum * std::sqrt(size));
  }
}

// What one value of Mamba's output reads: a row of states.
struct ScanRow {
  double x, step, skip;
  const float *b, *c;
  bool begins;
};

// `log_decay(n)`: of the state n.
template <typename Decay>
double follow_row(const ScanRow& row, const Decay& log_decay, std::vector<double>& state,
                  std::vector<double>& error) {
  double bound = kSomeRoundings * std::abs(row.skip * row.x), size = 0;
  for (std::size_t n = 0; n < state.size(); ++n) {
    if (row.begins) state[n] = error[n] = 0;
    const double a = log_decay(n), decay = std::exp(a), added = row.step * row.x * row.b[n];
    error[n] = decay * error[n] + (exp_rounding(a) + kSomeRoundings) * decay * std::abs(state[n]) +
               kSomeRoundings * std::abs(added);
    state[n] = decay * state[n] + added;
    bound += std::abs(row.c[n]) * error[n];
    size += std::abs(row.c[n] * state[n]);
  }
  return bound + kSomeRoundings * size;
}

void follow_scan(const OpSetup& s, std::size_t i, const std::vector<float>& skip, std::vector<double>& out) {
  const auto& p = std::get<ScanParams>(s.params);
  const std::size_t h = i / p.head_dim, group = h / (p.heads / p.groups);
  std::vector<double> state(p.states), error(p.states);
  for (std::size_t t = 0; t < s.tokens(); ++t) {
    const double a = row_of(s, 4, t)[h];
    const ScanRow row = {.x = row_of(s, 0, t)[i],
                         .step = row_of(s, 3, t)[h],
                         .skip = skip[h],
                         .b = row_of(s, 1, t) + group * p.states,
                         .c = row_of(s, 2, t) + group * p.states,
                         .begins = s.positions[t] == 0};
    out[t * s.width + i] = follow_row(row, [a](std::size_t) { return a; }, state, error);
  }
}

void follow_channel(const OpSetup& s, std::size_t i, const std::vector<float>& rates,
                    const std::vector<float>& skip, std::vector<double>& out) {
  const std::size_t states = std::get<ScanParams>(s.params).states;
  std::vector<double> state(states), error(states);
  for (std::size_t t = 0; t < s.tokens(); ++t) {
    const ScanRow row = {.x = row_of(s, 0, t)[i],
                         .step = row_of(s, 3, t)[i],
                         .skip = skip[i],
                         .b = row_of(s, 1, t),
                         .c = row_of(s, 2, t),
                         .begins = s.positions[t] == 0};
    // The rate is an exponential itself, whose error comes into the exponent.
    const auto decay = [&](std::size_t n) {
      return -row.step * std::exp(static_cast<double>(rates[i * states + n]));
    };
    out[t * s.width + i] = 4 * follow_row(row, decay, state, error);
  }
}

}  // namespace

Result<std::vector<double>> recurrent_bounds(const OpSetup& s, reference::Threads& threads) {
  if (s.kind == OpKind::kConvolution) return convolution_bounds(s);
  if (!keeps_state(s.kind)) return element_bounds(s);
  std::vector<std::vector<float>> weights(s.weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    DOPPLER_ASSIGN(weights[i], decoded_weight(s, i));
  }
  std::vector<double> out(s.tokens() * s.width);
  threads.run(s.width, 1, out.size() * 64, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (s.kind == OpKind::kDeltaRule) {
        const std::size_t dim = std::get<DeltaParams>(s.params).value_dim;
        follow_delta(s, i / dim, i % dim, out);
      } else if (s.kind == OpKind::kScan) {
        follow_scan(s, i, weights[0], out);
      } else {
        follow_channel(s, i, weights[0], weights[1], out);
      }
    }
  });
  return out;
}

}  // namespace doppler::diagnosis
