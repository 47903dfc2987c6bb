#include "backend/reference/recurrent_ops.h"

#include <algorithm>
#include <cmath>

#include "model/activation.h"

namespace doppler::reference {
namespace {

Result<std::vector<float>> decoded(const TensorView& tensor) {
  std::vector<float> values(element_count(tensor.shape).value_or(0));
  DOPPLER_TRY(decode_f32(tensor, 0, values));
  return values;
}

std::size_t tokens_of(const OpCall& call) {
  return call.positions.size();
}

const float* row(const OpCall& call, std::size_t input, std::size_t token) {
  return &call.inputs[input].data[token * call.inputs[input].width];
}

// The values [first, first + count) of a token's state, zero where its sequence begins.
float* state_of(const OpCall& call, std::size_t token, std::size_t first, std::size_t count) {
  float* state = call.state->of(token) + first;
  if (call.positions[token] == 0) std::fill_n(state, count, 0.0f);
  return state;
}

Status convolution(const OpCall& call, Threads& threads) {
  const auto& p = std::get<ConvolutionParams>(call.params);
  const Output& out = call.outputs[0];
  const std::size_t channels = out.width, kept = p.taps - 1;
  DOPPLER_ASSIGN(const std::vector<float> weight, decoded(*call.weights[0]));
  std::vector<float> bias(channels);
  if (!call.biases.empty() && call.biases[0] != nullptr) DOPPLER_TRY(decode_f32(*call.biases[0], 0, bias));
  threads.run(channels, 1, out.data.size() * p.taps, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = 0; t < tokens_of(call); ++t) {
      float* state = call.state->of(t);
      for (std::size_t c = begin; c < end; ++c) {
        const float now = row(call, 0, t)[c];
        double sum = bias[c] + static_cast<double>(weight[c * p.taps + kept]) * now;
        for (std::size_t k = 0; k < kept; ++k) {
          float& before = state[k * channels + c];
          if (call.positions[t] == 0) before = 0;
          sum += static_cast<double>(weight[c * p.taps + k]) * before;
        }
        for (std::size_t k = 0; k + 1 < kept; ++k) state[k * channels + c] = state[(k + 1) * channels + c];
        if (kept > 0) state[(kept - 1) * channels + c] = now;
        out.data[t * channels + c] = static_cast<float>(activate(p.activation, sum));
      }
    }
  });
  return {};
}

Status delta_rule(const OpCall& call, Threads& threads) {
  const auto& p = std::get<DeltaParams>(call.params);
  const std::size_t size = std::size_t{p.key_dim} * p.value_dim;
  const auto head = [&](std::size_t t, std::size_t h) {
    const std::size_t key_head = h / (p.heads / p.key_heads);
    const float *q = row(call, 0, t) + key_head * p.key_dim, *k = row(call, 1, t) + key_head * p.key_dim;
    const float* v = row(call, 2, t) + h * p.value_dim;
    const double beta = row(call, 3, t)[h], decay = std::exp(static_cast<double>(row(call, 4, t)[h]));
    float* s = state_of(call, t, h * size, size);
    for (std::size_t j = 0; j < p.value_dim; ++j) {
      double read = 0;
      for (std::size_t i = 0; i < p.key_dim; ++i) read += k[i] * (decay * s[i * p.value_dim + j]);
      const double change = beta * (v[j] - read);
      double sum = 0;
      for (std::size_t i = 0; i < p.key_dim; ++i) {
        const double updated = decay * s[i * p.value_dim + j] + k[i] * change;
        s[i * p.value_dim + j] = static_cast<float>(updated);
        sum += q[i] * updated;
      }
      call.outputs[0].data[(t * p.heads + h) * p.value_dim + j] = static_cast<float>(sum);
    }
  };
  threads.run(p.heads, 1, tokens_of(call) * p.heads * size * 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t h = begin; h < end; ++h) {
      for (std::size_t t = 0; t < tokens_of(call); ++t) head(t, h);
    }
  });
  return {};
}

Status scan(const OpCall& call, Threads& threads) {
  const auto& p = std::get<ScanParams>(call.params);
  const std::size_t size = std::size_t{p.head_dim} * p.states;
  DOPPLER_ASSIGN(const std::vector<float> skip, decoded(*call.weights[0]));
  const auto head = [&](std::size_t t, std::size_t h) {
    const std::size_t group = h / (p.heads / p.groups);
    const float* x = row(call, 0, t) + h * p.head_dim;
    const float *b = row(call, 1, t) + group * p.states, *c = row(call, 2, t) + group * p.states;
    const double step = row(call, 3, t)[h], decay = std::exp(static_cast<double>(row(call, 4, t)[h]));
    float* s = state_of(call, t, h * size, size);
    for (std::size_t i = 0; i < p.head_dim; ++i) {
      double sum = static_cast<double>(skip[h]) * x[i];
      for (std::size_t n = 0; n < p.states; ++n) {
        const double updated = decay * s[i * p.states + n] + step * x[i] * b[n];
        s[i * p.states + n] = static_cast<float>(updated);
        sum += updated * c[n];
      }
      call.outputs[0].data[(t * p.heads + h) * p.head_dim + i] = static_cast<float>(sum);
    }
  };
  threads.run(p.heads, 1, tokens_of(call) * p.heads * size * 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t h = begin; h < end; ++h) {
      for (std::size_t t = 0; t < tokens_of(call); ++t) head(t, h);
    }
  });
  return {};
}

Status channel_scan(const OpCall& call, Threads& threads) {
  const auto& p = std::get<ScanParams>(call.params);
  const std::size_t states = p.states;
  DOPPLER_ASSIGN(const std::vector<float> rates, decoded(*call.weights[0]));
  DOPPLER_ASSIGN(const std::vector<float> skip, decoded(*call.weights[1]));
  const auto channel = [&](std::size_t t, std::size_t i) {
    const double x = row(call, 0, t)[i], step = row(call, 3, t)[i];
    const float *b = row(call, 1, t), *c = row(call, 2, t);
    float* s = state_of(call, t, i * states, states);
    double sum = skip[i] * x;
    for (std::size_t n = 0; n < states; ++n) {
      const double rate = -std::exp(static_cast<double>(rates[i * states + n]));
      const double updated = std::exp(step * rate) * s[n] + step * x * b[n];
      s[n] = static_cast<float>(updated);
      sum += updated * c[n];
    }
    call.outputs[0].data[t * p.heads + i] = static_cast<float>(sum);
  };
  threads.run(p.heads, 1, tokens_of(call) * p.heads * states * 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t t = 0; t < tokens_of(call); ++t) channel(t, i);
    }
  });
  return {};
}

}  // namespace

Status run_recurrent_op(const OpCall& call, Threads& threads) {
  switch (call.kind) {
    case OpKind::kConvolution:
      return convolution(call, threads);
    case OpKind::kDeltaRule:
      return delta_rule(call, threads);
    case OpKind::kScan:
      return scan(call, threads);
    case OpKind::kChannelScan:
      return channel_scan(call, threads);
    default:
      return fail(ErrorCode::kInternal, "The op {} keeps no state.", op_name(call.kind));
  }
}

}  // namespace doppler::reference
