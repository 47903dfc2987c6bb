#include "backend/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace doppler::cpu {
namespace {

// Products that a thread should at least get: some 5 us of work, as much as waking costs.
constexpr std::size_t kWorthAThread = 65536;

Result<std::vector<float>> decoded(const TensorView& tensor) {
  std::vector<float> values(element_count(tensor.shape).value_or(0));
  DOPPLER_TRY(decode_f32(tensor, 0, values));
  return values;
}

std::vector<float> by_tap(const std::vector<float>& weight, std::size_t taps) {
  std::vector<float> turned(weight.size());
  const std::size_t channels = weight.size() / taps;
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t k = 0; k < taps; ++k) turned[k * channels + c] = weight[c * taps + k];
  }
  return turned;
}

class Runner {
 public:
  Runner(const Kernels& kernels, ThreadPool& pool, const RecurrentCall& call, const StepInput& input,
         KvCache& cache)
      : kernels_(*kernels.recurrent),
        pool_(pool),
        call_(call),
        input_(input),
        cache_(cache),
        layer_(static_cast<std::size_t>(std::max(call.op.layer, 0))) {}

  void run() {
    switch (call_.op.kind) {
      case OpKind::kColumns:
        return columns();
      case OpKind::kTimeStep:
        return time_step();
      case OpKind::kDecay:
        return decay();
      case OpKind::kConvolution:
        return convolution();
      case OpKind::kDeltaRule:
        return delta();
      case OpKind::kScan:
        return scan();
      case OpKind::kChannelScan:
        return channel_scan();
      default:
        return;
    }
  }

 private:
  std::size_t tokens() const { return input_.size(); }
  const float* in(std::size_t input, std::size_t token, std::size_t width) const {
    return call_.inputs[input] + token * width;
  }
  float* out(std::size_t token) const { return call_.out + token * call_.out_width; }
  std::uint32_t slot(std::size_t token) const { return static_cast<std::uint32_t>(input_.slots[token]); }
  bool begins(std::size_t token) const { return input_.positions[token] == 0; }

  // body(begin, end) over parts that each cost so many products.
  template <typename Body>
  void for_parts(std::size_t parts, std::size_t products, const Body& body) {
    pool_.parallel_for(parts, std::max<std::size_t>(1, kWorthAThread / std::max<std::size_t>(products, 1)),
                       std::cref(body));
  }

  // A head's state, zero where its sequence begins.
  float* state_of(std::size_t token, std::size_t head, std::size_t size) const {
    float* state = cache_.state(layer_, slot(token)) + head * size;
    if (begins(token)) std::fill_n(state, size, 0.0f);
    return state;
  }

  void columns() {
    const auto& p = std::get<ColumnsParams>(call_.op.params);
    for_parts(tokens(), call_.out_width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        float* to = out(t);
        for (const ColumnRange& range : p.ranges) {
          const auto scale = static_cast<float>(range.scale);
          for (std::size_t g = 0; g < range.groups && range.width > 0; ++g, to += range.width) {
            const float* from = in(0, t, call_.in_width) + g * (call_.in_width / range.groups) + range.first;
            for (std::size_t i = 0; i < range.width; ++i) to[i] = from[i] * scale;
          }
        }
      }
    });
  }

  void time_step() {
    const auto& p = std::get<TimeStepParams>(call_.op.params);
    const auto low = static_cast<float>(p.low), high = static_cast<float>(p.high);
    const std::size_t width = call_.out_width;
    for_parts(tokens() * width, 16, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const float x = call_.inputs[0][i] + call_.weights.first[i % width];
        const float step = std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
        call_.out[i] = std::isnan(x) ? x : std::clamp(step, low, high);
      }
    });
  }

  void decay() {
    const std::size_t width = call_.out_width;
    for (std::size_t i = 0; i < tokens() * width; ++i)
      call_.out[i] = call_.inputs[0][i] * call_.weights.first[i % width];
  }

  void convolution() {
    const auto& p = std::get<ConvolutionParams>(call_.op.params);
    const std::size_t channels = call_.out_width;
    // Parts of whole vectors of any machine, so that a channel's place in a vector is always the same.
    constexpr std::size_t kPart = 64;
    for_parts(
        (channels + kPart - 1) / kPart, kPart * p.taps * tokens(), [&](std::size_t begin, std::size_t end) {
          ConvolutionCall call{.weight = call_.weights.first.data(),
                               .bias = call_.weights.bias.empty() ? nullptr : call_.weights.bias.data(),
                               .channels = channels,
                               .taps = p.taps,
                               .begin = begin * kPart,
                               .end = std::min(end * kPart, channels),
                               .silu = p.activation == Activation::kSilu};
          for (std::size_t t = 0; t < tokens(); ++t) {
            call.in = in(0, t, channels);
            call.out = out(t);
            call.state = cache_.conv_state(layer_, slot(t));
            for (std::size_t k = 0; k + 1 < p.taps && begins(t); ++k)
              std::fill(call.state + k * channels + call.begin, call.state + k * channels + call.end, 0.0f);
            kernels_.convolve(call);
          }
        });
  }

  void delta() {
    const auto& p = std::get<DeltaParams>(call_.op.params);
    const std::size_t size = std::size_t{p.key_dim} * p.value_dim,
                      keys = std::size_t{p.key_heads} * p.key_dim;
    for_parts(p.heads, size * 4 * tokens(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t h = begin; h < end; ++h) {
        const std::size_t key_head = h / (p.heads / p.key_heads);
        for (std::size_t t = 0; t < tokens(); ++t) {
          kernels_.delta({.q = in(0, t, keys) + key_head * p.key_dim,
                          .k = in(1, t, keys) + key_head * p.key_dim,
                          .v = in(2, t, call_.out_width) + h * p.value_dim,
                          .beta = in(3, t, p.heads)[h],
                          .decay = std::exp(in(4, t, p.heads)[h]),
                          .key_dim = p.key_dim,
                          .value_dim = p.value_dim,
                          .state = state_of(t, h, size),
                          .out = out(t) + h * p.value_dim});
        }
      }
    });
  }

  void scan() {
    const auto& p = std::get<ScanParams>(call_.op.params);
    const std::size_t size = std::size_t{p.head_dim} * p.states, states = std::size_t{p.groups} * p.states;
    for_parts(p.heads, size * 4 * tokens(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t h = begin; h < end; ++h) {
        const std::size_t group = h / (p.heads / p.groups);
        for (std::size_t t = 0; t < tokens(); ++t) {
          kernels_.scan({.x = in(0, t, call_.out_width) + h * p.head_dim,
                         .b = in(1, t, states) + group * p.states,
                         .c = in(2, t, states) + group * p.states,
                         .step = in(3, t, p.heads)[h],
                         .decay = std::exp(in(4, t, p.heads)[h]),
                         .skip = call_.weights.first[h],
                         .rows = p.head_dim,
                         .states = p.states,
                         .state = state_of(t, h, size),
                         .out = out(t) + h * p.head_dim});
        }
      }
    });
  }

  void channel_scan() {
    const auto& p = std::get<ScanParams>(call_.op.params);
    const std::size_t channels = p.heads, states = p.states;
    for_parts(channels, states * 32 * tokens(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = 0; t < tokens(); ++t) {
        float* state = cache_.state(layer_, slot(t));
        if (begins(t)) std::fill(state + begin * states, state + end * states, 0.0f);
        kernels_.channel_scan({.x = in(0, t, channels),
                               .b = in(1, t, states),
                               .c = in(2, t, states),
                               .step = in(3, t, channels),
                               .rates = call_.weights.first.data(),
                               .skip = call_.weights.second.data(),
                               .begin = begin,
                               .end = end,
                               .states = states,
                               .state = state,
                               .out = out(t)});
      }
    });
  }

  const RecurrentKernels& kernels_;
  ThreadPool& pool_;
  const RecurrentCall& call_;
  const StepInput& input_;
  KvCache& cache_;
  const std::size_t layer_;
};

}  // namespace

bool is_recurrent_op(OpKind kind) {
  return kind == OpKind::kColumns || kind == OpKind::kTimeStep || kind == OpKind::kDecay || keeps_state(kind);
}

Result<RecurrentWeights> prepare_recurrent(const Op& op, const Weights& weights) {
  RecurrentWeights prepared;
  if (!is_recurrent_op(op.kind) || op.weights.empty()) return prepared;
  DOPPLER_ASSIGN(prepared.first, decoded(weights[op.weights[0]]));
  if (op.weights.size() > 1) {
    DOPPLER_ASSIGN(prepared.second, decoded(weights[op.weights[1]]));
  }
  if (!op.biases.empty() && op.biases[0] != kNoWeight) {
    DOPPLER_ASSIGN(prepared.bias, decoded(weights[op.biases[0]]));
  }
  if (op.kind == OpKind::kConvolution)
    prepared.first = by_tap(prepared.first, std::get<ConvolutionParams>(op.params).taps);
  if (op.kind == OpKind::kDecay || op.kind == OpKind::kChannelScan) {
    for (float& rate : prepared.first) rate = static_cast<float>(-std::exp(static_cast<double>(rate)));
  }
  return prepared;
}

void run_recurrent(const Kernels& kernels, ThreadPool& pool, const RecurrentCall& call,
                   const StepInput& input, KvCache& cache) {
  Runner(kernels, pool, call, input, cache).run();
}

}  // namespace doppler::cpu
