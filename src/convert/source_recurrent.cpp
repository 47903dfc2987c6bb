#include "convert/source_recurrent.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/gguf_recurrent.h"

namespace doppler::convert {
namespace {

const LayerSpec& layer_of(const ModelSpec& spec, const WeightTensor& wanted) {
  return spec.layers[static_cast<std::size_t>(std::max(wanted.layer, 0))];
}

// The values of a small tensor, to be changed.
Status take_values(SourceTensor& tensor) {
  if (!tensor.values.empty()) return {};
  for (const TensorView& part : tensor.parts) {
    const std::size_t begin = tensor.values.size();
    tensor.values.resize(begin + element_count(part.shape).value_or(0));
    DOPPLER_TRY(decode_f32(part, 0, std::span(tensor.values).subspan(begin)));
  }
  tensor.parts.clear();
  return {};
}

// The source's place of each of so many rows, of which those behind `kept` belong to heads, `rows` to one.
std::vector<std::uint64_t> tiled_order(const RecurrentSpec& r, std::uint64_t kept, std::uint64_t rows) {
  const TiledHeads tiles{r.groups, r.heads / r.groups};
  std::vector<std::uint64_t> order(kept + r.heads * rows);
  std::iota(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), 0);
  for (std::uint64_t head = 0; head < r.heads; ++head) {
    for (std::uint64_t i = 0; i < rows; ++i)
      order[kept + tiles.place_of(head) * rows + i] = kept + head * rows + i;
  }
  return order;
}

Status tile_heads(const RecurrentSpec& r, WeightRole role, SourceTensor& tensor) {
  using enum WeightRole;
  const std::uint64_t keys = 2 * std::uint64_t{r.keys()};
  switch (role) {
    case kMixerInConv:
    case kConvolution:
      tensor.row_order = tiled_order(r, keys, r.head_dim);
      return {};
    case kMixerInGate:
      tensor.row_order = tiled_order(r, 0, r.head_dim);
      return {};
    case kMixerInB:
    case kMixerInA:
      tensor.row_order = tiled_order(r, 0, 1);
      return {};
    case kMixerOut:
      tensor.column_order = tiled_order(r, 0, r.head_dim);
      return {};
    case kStepBias:
    case kDecayRate: {
      DOPPLER_TRY(take_values(tensor));
      const std::vector<float> old = tensor.values;
      const std::vector<std::uint64_t> order = tiled_order(r, 0, 1);
      for (std::size_t i = 0; i < order.size(); ++i) tensor.values[i] = old[order[i]];
      return {};
    }
    default:
      return {};
  }
}

// What a row of the tensor is multiplied by.
float factor_of(const ModelSpec& spec, const LayerSpec& l, WeightRole role, std::uint64_t row) {
  using enum WeightRole;
  const auto part = [&] {
    const RecurrentSpec& r = l.recurrent;
    const std::uint64_t inner = r.inner(), keys = r.keys();
    const std::uint64_t ends[] = {inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys};
    const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends, row) - std::begin(ends));
    return r.part_scales[at];
  };
  const double factor = [&] {
    switch (role) {
      case kTokenEmbedding:
        return spec.embedding_scale;
      case kHead:
        return spec.logit_scale;
      case kQ:
      case kV:
        return l.attn_in_scale;
      case kK:
        return l.attn_in_scale * l.attention.key_scale;
      case kKBias:
        return l.attention.key_scale;
      case kO:
      case kOBias:
        return l.attn_out_scale;
      case kMixerIn:
        return l.recurrent.in_scale * part();
      case kMixerInBias:
        return part();
      case kMixerOut:
      case kMixerOutBias:
        return l.recurrent.out_scale;
      case kGate:
      case kGateBias:
        return l.ffn.gate_scale;
      case kDown:
      case kDownBias:
        return l.ffn.out_scale;
      default:
        return 1.0;
    }
  }();
  return static_cast<float>(factor);
}

}  // namespace

Status arrange_recurrent(const ModelSpec& spec, const GgufRule& rule, const WeightTensor& wanted,
                         SourceTensor& tensor) {
  using enum WeightRole;
  const RecurrentSpec& r = layer_of(spec, wanted).recurrent;
  const WeightRole role = wanted.info->role;
  if (wanted.layer < 0 || !r.exists()) return {};
  const bool tiled =
      rule.tiled_value_heads && r.kind == RecurrentKind::kDeltaNet && r.heads > r.groups && r.groups > 1;
  if (tiled) DOPPLER_TRY(tile_heads(r, role, tensor));
  if (role == kDecayRate || role == kDecayRates) {
    DOPPLER_TRY(take_values(tensor));
    for (float& value : tensor.values) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  }
  const bool mamba2 = r.kind == RecurrentKind::kMamba2;
  if (mamba2 && (role == kDecayRate || role == kSkip)) tensor.shape = {r.heads, 1};
  if (mamba2 && role == kMixerNorm) tensor.shape = {r.norm_groups, r.inner() / r.norm_groups};
  // With rows of one value each, vectors are written as values.
  if (mamba2 && role == kSkip) DOPPLER_TRY(take_values(tensor));
  return {};
}

std::vector<SourceTensor> part_by_use(const ModelSpec& spec, const GgufRule& rule, const WeightTensor& wanted,
                                      const TensorView& whole) {
  using enum WeightRole;
  const RecurrentSpec& r = layer_of(spec, wanted).recurrent;
  const std::uint64_t share = r.heads / r.groups, values = share * r.head_dim, key = r.state_dim,
                      group = 2 * key + 2 * values;
  std::vector<std::uint64_t> convolved, gate;
  const auto take = [&](std::vector<std::uint64_t>& to, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t g = 0; g < r.groups; ++g) {
      for (std::uint64_t i = 0; i < count; ++i) to.push_back(g * group + first + i);
    }
  };
  take(convolved, 0, key);
  take(convolved, key, key);
  take(convolved, 2 * key, values);
  take(gate, 2 * key + values, values);
  std::vector<SourceTensor> out;
  for (auto& [role, order] : {std::pair(kMixerInConv, &convolved), {kMixerInGate, &gate}}) {
    out.push_back({.name = weight_name(rule.weight_names, role, wanted.layer, &spec),
                   .shape = {order->size(), wanted.shape[1]},
                   .parts = {whole},
                   .row_order = std::move(*order)});
  }
  return out;
}

Status multiply(const ModelSpec& spec, const WeightTensor& wanted, SourceTensor& tensor) {
  using enum WeightRole;
  const LayerSpec& layer = layer_of(spec, wanted);
  const bool vector = tensor.shape.size() < 2;
  const std::uint64_t count = vector ? tensor.columns() : tensor.rows();
  std::vector<float> factors(count);
  bool changes = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    factors[i] = factor_of(spec, layer, wanted.info->role, i);
    changes = changes || factors[i] != 1;
  }
  if (!changes) return {};
  if (!vector) {
    tensor.factors = std::move(factors);
    return {};
  }
  DOPPLER_TRY(take_values(tensor));
  for (std::uint64_t i = 0; i < count; ++i) tensor.values[i] *= factors[i];
  return {};
}

bool ties_after_multiplying(const ModelSpec& spec) {
  return spec.tied_head && spec.embedding_scale == spec.logit_scale;
}

void leave_multipliers_out(ModelSpec& spec) {
  spec.embedding_scale = spec.logit_scale = 1;
  for (LayerSpec& layer : spec.layers) {
    layer.attn_in_scale = layer.attn_out_scale = layer.attention.key_scale = 1;
    layer.ffn.gate_scale = layer.ffn.out_scale = 1;
    layer.recurrent.in_scale = layer.recurrent.out_scale = 1;
    layer.recurrent.part_scales.fill(1);
  }
}

}  // namespace doppler::convert
