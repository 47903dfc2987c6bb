// Faults of layers that keep a state: what a convolution multiplies, what a state decays by, and where a
// state begins anew or does not.
#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "diagnosis/faults/faults_table.h"
#include "model/activation.h"

namespace doppler::diagnosis::faults {
namespace {

using When = FaultPlace::When;
using Computed = Fault::Computed;
using enum RecurrentKind;

constexpr RecurrentKind kAllKinds[] = {kShortConvolution, kDeltaNet, kMamba2, kMamba1};
constexpr RecurrentKind kDecaying[] = {kDeltaNet, kMamba2};  // whose decay is a value of its own
constexpr RecurrentKind kStepping[] = {kMamba2, kMamba1};    // whose time step is one

bool is_among(RecurrentKind kind, std::span<const RecurrentKind> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}
// -1: the model has no layer of these kinds.
int first_of(const ModelSpec& spec, std::span<const RecurrentKind> kinds) {
  const auto found = std::ranges::find_if(
      spec.layers, [&](const LayerSpec& layer) { return is_among(layer.recurrent.kind, kinds); });
  return found == spec.layers.end() ? -1 : static_cast<int>(found - spec.layers.begin());
}
// A right answer about one layer must name it.
int last_of(const ModelSpec& spec, std::span<const RecurrentKind> kinds) {
  for (int i = static_cast<int>(spec.layers.size()) - 1; i >= 0; --i) {
    if (is_among(spec.layers[static_cast<std::size_t>(i)].recurrent.kind, kinds)) return i;
  }
  return -1;
}
auto where_any(std::span<const RecurrentKind> kinds) {
  return [=](const Subject& s) { return first_of(s.spec, kinds) >= 0; };
}
const RecurrentSpec& recurrent_of(const ModelSpec& spec, int layer) {
  return spec.layers[static_cast<std::size_t>(layer)].recurrent;
}
auto at_first_of(std::span<const RecurrentKind> kinds, Stage stage, When when = When::kPrompt) {
  return [=](const Subject& s) { return FaultPlace{stage, first_of(s.spec, kinds), when}; };
}

std::vector<float> values_of(const Weights& weights, WeightRole role, int layer) {
  const WeightId id = weights.find(role, layer);
  if (id == kNoWeight) return {};
  std::vector<float> values(element_count(weights[id].shape).value_or(0));
  if (!decode_f32(weights[id], 0, values)) return {};
  return values;
}

// ---- weights

// Stored as float32 again, whatever the type was.
void change_values(Site& site, WeightRole role, int layer,
                   const std::function<void(std::span<float>, const Shape&)>& change) {
  site.alter(role, layer, [&](TensorView& tensor, std::vector<std::byte>& bytes) {
    std::vector<float> values(element_count(tensor.shape).value_or(0));
    if (!decode_f32(tensor, 0, values)) return;
    change(values, tensor.shape);
    const auto changed = std::as_bytes(std::span(values));
    bytes.assign(changed.begin(), changed.end());
    tensor.dtype = DType::kF32;
  });
}

void reverse_taps(Site& site) {
  change_values(site, WeightRole::kConvolution, last_of(site.spec(), kAllKinds),
                [](std::span<float> values, const Shape& shape) {
                  const std::size_t taps = shape.back();
                  for (std::size_t at = 0; at < values.size(); at += taps)
                    std::ranges::reverse(values.subspan(at, taps));
                });
}

constexpr RecurrentKind kWithRates[] = {kDeltaNet, kMamba2, kMamba1};
void store_rates(Site& site) {
  const int layer = last_of(site.spec(), kWithRates);
  const bool channels = recurrent_of(site.spec(), layer).kind == kMamba1;
  change_values(site, channels ? WeightRole::kDecayRates : WeightRole::kDecayRate, layer,
                [](std::span<float> values, const Shape&) {
                  for (float& x : values) x = std::exp(x);
                });
}
FaultPlace place_of_rates(const Subject& s) {
  const int layer = last_of(s.spec, kWithRates);
  const RecurrentKind kind = recurrent_of(s.spec, layer).kind;
  return {kind == kMamba1 ? Stage::kSsmOut : kind == kMamba2 ? Stage::kSsmA : Stage::kDeltaDecay, layer};
}

// ---- values

// The convolution gives each token what belongs to the one before it: one zero too many stands in front.
void convolve_late(Site& site) {
  struct Slot {
    std::vector<float> before;
  };
  const Weights weights = site.weights();
  const ModelSpec spec = site.spec();
  site.run_with([=](const BackendOptions&) {
    auto fault = std::make_unique<HookFault>();
    fault->watches = [](Stage stage, int) { return stage == Stage::kConvOut; };
    fault->change = [=, slots = std::map<std::pair<int, std::int32_t>, Slot>()](const Computed& computed,
                                                                                Stage, int layer) mutable {
      const std::size_t width = computed.plan.values[computed.value].width;
      std::vector<float> bias = values_of(weights, WeightRole::kConvolutionBias, layer);
      bias.resize(width);
      const bool plain = recurrent_of(spec, layer).kind == kShortConvolution;
      for (std::size_t t = 0; t < computed.rows; ++t) {
        const auto row = computed.data.subspan(t * width, width);
        std::vector<float>& before = slots[{layer, computed.step.slots[t]}].before;
        if (computed.step.positions[t] == 0) {  // nothing but the bias
          before = bias;
          for (float& x : before)
            x = static_cast<float>(plain ? x : activate(Activation::kSilu, static_cast<double>(x)));
        }
        if (before.size() != width) before.assign(width, 0);
        std::swap_ranges(row.begin(), row.end(), before.begin());
      }
      return true;
    };
    return fault;
  });
}

// `change(decay, rate)`: rate is the weight of the head, whose exponential multiplies.
std::function<void(Site&)> change_decay(
    std::function<double(double decay, double rate, double bias)> change) {
  return [change = std::move(change)](Site& site) {
    const Weights weights = site.weights();
    site.run_with([=](const BackendOptions&) {
      auto fault = std::make_unique<HookFault>();
      fault->watches = [](Stage stage, int) { return stage == Stage::kSsmA || stage == Stage::kDeltaDecay; };
      fault->change = [=](const Computed& computed, Stage, int layer) {
        const std::size_t width = computed.plan.values[computed.value].width;
        const std::vector<float> rates = values_of(weights, WeightRole::kDecayRate, layer),
                                 biases = values_of(weights, WeightRole::kStepBias, layer);
        if (rates.size() != width || biases.size() != width) return false;
        for (std::size_t i = 0; i < computed.data.size(); ++i)
          computed.data[i] =
              static_cast<float>(change(computed.data[i], rates[i % width], biases[i % width]));
        return true;
      };
      return fault;
    });
  };
}

// softplus(x + b) without b.
double without_bias(double step, double bias) {
  return std::log1p(std::exp(std::log(std::expm1(step)) - bias));
}

// Time steps of Mamba are a value; those of a delta net show in its decay only.
void leave_out_step_bias(Site& site) {
  if (first_of(site.spec(), kStepping) < 0) {
    change_decay([](double decay, double rate, double bias) {
      return -std::exp(rate) * without_bias(-decay / std::exp(rate), bias);
    })(site);
    return;
  }
  const Weights weights = site.weights();
  site.run_with([=](const BackendOptions&) {
    auto fault = std::make_unique<HookFault>();
    fault->watches = [](Stage stage, int) { return stage == Stage::kSsmDt; };
    fault->change = [=](const Computed& computed, Stage, int layer) {
      const std::size_t width = computed.plan.values[computed.value].width;
      const std::vector<float> biases = values_of(weights, WeightRole::kStepBias, layer);
      if (biases.size() != width) return false;
      for (std::size_t i = 0; i < computed.data.size(); ++i)
        computed.data[i] = static_cast<float>(without_bias(computed.data[i], biases[i % width]));
      return true;
    };
    return fault;
  });
}
FaultPlace place_of_step(const Subject& s) {
  const int stepping = first_of(s.spec, kStepping);
  return stepping >= 0 ? FaultPlace{Stage::kSsmDt, stepping}
                       : FaultPlace{Stage::kDeltaDecay, first_of(s.spec, kDecaying)};
}
// Limits of the step would hide what the bias was.
bool has_free_step(const Subject& s) {
  return first_of(s.spec, kWithRates) >= 0 && std::ranges::all_of(s.spec.layers, [](const LayerSpec& l) {
           return l.recurrent.min_step <= 0 && std::isinf(l.recurrent.max_step);
         });
}
FaultPlace place_of_decay(const Subject& s) {
  const int layer = first_of(s.spec, kDecaying);
  return {recurrent_of(s.spec, layer).kind == kMamba2 ? Stage::kSsmA : Stage::kDeltaDecay, layer};
}

// ---- states

std::function<void(Site&)> each_state(std::function<bool(StepInput&)> change) {
  return hook([change = std::move(change)](HookFault& fault, const BackendOptions&) {
    fault.tokens = [change](const Op& op, Fault::Moment, StepInput& seen) {
      return keeps_state(op.kind) && change(seen);
    };
  });
}

// No token stands at position 0, where a state begins: memory that nobody has written is zero, so that only
// what comes after clear() is wrong.
bool begin_never(StepInput& seen) {
  const bool begins = std::ranges::any_of(seen.positions, [](std::int32_t p) { return p == 0; });
  for (std::int32_t& p : seen.positions) p += begins ? 1 : 0;
  return begins;
}

// The first token of every step stands at position 0.
bool begin_always(StepInput& seen) {
  std::map<std::int32_t, std::int32_t> first;
  for (std::size_t t = 0; t < seen.size(); ++t) first.try_emplace(seen.slots[t], seen.positions[t]);
  for (std::size_t t = 0; t < seen.size(); ++t) seen.positions[t] -= first[seen.slots[t]];
  return true;
}

bool share_slot(StepInput& seen) {
  const bool several = std::ranges::any_of(seen.slots, [&](std::int32_t s) { return s != seen.slots[0]; });
  std::ranges::fill(seen.slots, std::int32_t{seen.slots[0]});
  return several;
}

}  // namespace

std::vector<FaultRow> recurrent_weight_faults() {
  return {
      {{"convolution_reversed", FaultKind::kData, "convolution_taps", "models with recurrent layers",
        "the taps of the last layer's convolution lie in reverse"},
       where_any(kAllKinds),
       [](const Subject& s) { return FaultPlace{Stage::kConvOut, last_of(s.spec, kAllKinds)}; },
       reverse_taps},
      {{"decay_not_logarithms", FaultKind::kData, "decay_rate", "delta nets and Mamba",
        "what the last layer's state decays by is stored instead of its logarithm"},
       where_any(kWithRates),
       place_of_rates,
       store_rates},
  };
}

std::vector<FaultRow> recurrent_execution_faults() {
  constexpr auto kExecution = FaultKind::kExecution;
  return {
      {{"convolution_late", kExecution, "convolution_shifted", "models with recurrent layers",
        "convolutions give each token what belongs to the one before it"},
       where_any(kAllKinds),
       at_first_of(kAllKinds, Stage::kConvOut),
       convolve_late},
      {{"decay_sign", kExecution, "decay_rate", "delta nets and Mamba 2",
        "states grow where they should decay"},
       where_any(kDecaying),
       place_of_decay,
       change_decay([](double decay, double, double) { return -decay; })},
      {{"decay_without_exp", kExecution, "decay_rate", "delta nets and Mamba 2",
        "states decay by A_log, not by its exponential"},
       where_any(kDecaying),
       place_of_decay,
       change_decay([](double decay, double rate, double) { return decay / std::exp(rate) * rate; })},
      {{"decay_rate_missing", kExecution, "decay_rate", "delta nets and Mamba 2",
        "states decay by the time step alone, without A_log"},
       where_any(kDecaying),
       place_of_decay,
       change_decay([](double decay, double rate, double) { return decay / std::exp(rate); })},
      {{"decay_in_16_bits", kExecution, "decay_precision", "delta nets and Mamba 2",
        "the decay is rounded to bfloat16"},
       where_any(kDecaying),
       place_of_decay,
       change_decay([](double decay, double, double) {
         return static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(decay))));
       })},
      {{"step_bias_missing", kExecution, "step_bias", "delta nets and Mamba",
        "the time step lacks its bias (dt_bias)"},
       has_free_step,
       place_of_step,
       leave_out_step_bias},
      {{"state_not_reset", kExecution, "state_not_reset", "models with recurrent layers",
        "after clear() a state goes on from where the sequence before ended"},
       where_any(kAllKinds),
       at_first_of(kAllKinds, Stage::kConvOut, When::kAgain),
       each_state(begin_never)},
      {{"state_not_carried", kExecution, "state_not_carried", "models with recurrent layers",
        "a state begins anew with every step"},
       where_any(kAllKinds),
       at_first_of(kAllKinds, Stage::kConvOut, When::kDecode),
       each_state(begin_always)},
      {{"states_shared", kExecution, "batch_unlike_single", "models with recurrent layers",
        "in a step of several sequences all go on from the first one's state"},
       where_any(kAllKinds),
       at_first_of(kAllKinds, Stage::kConvOut, When::kBeside),
       each_state(share_slot)},
  };
}

}  // namespace doppler::diagnosis::faults
