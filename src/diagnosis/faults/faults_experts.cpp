// Faults of feed-forwards of experts: their matrices in another order, gates and ups parted otherwise, blocks
// in another order, activations without their limits, routers that weigh and choose otherwise, and attention
// without its sinks.
#include <algorithm>

#include "diagnosis/faults/faults_table.h"

namespace doppler::diagnosis::faults {
namespace {

using Bytes = std::vector<std::byte>;

// The last layer, so that a right answer must name the layer; -1: the model has no experts.
int expert_layer(const ModelSpec& spec) {
  for (int i = static_cast<int>(spec.layers.size()) - 1; i >= 0; --i) {
    const LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (layer.has_ffn && layer.ffn.experts > 1) return i;
  }
  return -1;
}
int first_expert_layer(const Subject& s) {
  const auto found = std::ranges::find_if(
      s.spec.layers, [](const LayerSpec& layer) { return layer.has_ffn && layer.ffn.experts > 1; });
  return found == s.spec.layers.end() ? -1 : static_cast<int>(found - s.spec.layers.begin());
}
// Those of the layer that the data faults take.
const FfnSpec* experts_of(const Subject& s) {
  const int layer = expert_layer(s.spec);
  return layer < 0 ? nullptr : &s.spec.layers[static_cast<std::size_t>(layer)].ffn;
}
std::function<bool(const Subject&)> where(std::function<bool(const FfnSpec&)> is) {
  return [is = std::move(is)](const Subject& s) {
    const FfnSpec* ffn = experts_of(s);
    return ffn != nullptr && is(*ffn);
  };
}
bool is_gated(const FfnSpec& f) {
  return f.gated;
}
auto at_last(Stage stage) {
  return [=](const Subject& s) { return FaultPlace{stage, expert_layer(s.spec)}; };
}
auto at_first(Stage stage) {
  return [=](const Subject& s) { return FaultPlace{stage, first_expert_layer(s)}; };
}

std::function<void(Site&)> each_router(std::function<void(RouterSpec&)> change) {
  return [change = std::move(change)](Site& site) {
    for (LayerSpec& layer : site.spec().layers) change(layer.ffn.router);
  };
}
std::function<void(Site&)> each_ffn(std::function<void(FfnSpec&)> change) {
  return [change = std::move(change)](Site& site) {
    for (LayerSpec& layer : site.spec().layers) change(layer.ffn);
  };
}

// Every expert has what belongs to the one before it.
void shift_experts(Site& site) {
  const int layer = expert_layer(site.spec());
  for (const WeightRole role :
       {WeightRole::kGateExperts, WeightRole::kUpExperts, WeightRole::kDownExperts,
        WeightRole::kGateExpertsBias, WeightRole::kUpExpertsBias, WeightRole::kDownExpertsBias}) {
    const std::vector<TensorView> before = site.experts(role, layer);
    std::vector<TensorView> after = before;
    for (std::size_t e = 0; e < before.size(); ++e)
      after[e].data = before[(e + before.size() - 1) % before.size()].data;
    site.set_experts(role, layer, std::move(after));
  }
}

// Gates and ups of one stored tensor, whose rows take turns or stand one after the other, parted the other
// way.
void part_otherwise(Site& site, WeightRole gates, WeightRole ups, bool by_turns) {
  const int layer = expert_layer(site.spec());
  std::vector<TensorView> gate = site.experts(gates, layer), up = site.experts(ups, layer);
  for (std::size_t e = 0; e < gate.size(); ++e) {
    const std::size_t rows = gate[e].shape[0], row = gate[e].data.size() / rows;
    // The row `i` of the gates and then the ups, as the file that was parted wrongly has it.
    const auto from = [&](std::size_t i) {
      if (by_turns)  // read as taking turns, while one follows the other
        i = i < rows ? 2 * i : 2 * (i - rows) + 1;
      else  // the reverse
        i = i % 2 == 0 ? i / 2 : rows + i / 2;
      const TensorView& of = i < rows ? gate[e] : up[e];
      return of.data.subspan((i < rows ? i : i - rows) * row, row);
    };
    Bytes parts[2];
    for (std::size_t i = 0; i < 2 * rows; ++i) {
      const auto bytes = from(i);
      Bytes& to = parts[i < rows ? 0 : 1];
      to.insert(to.end(), bytes.begin(), bytes.end());
    }
    const auto first = site.keep(std::move(parts[0])), second = site.keep(std::move(parts[1]));
    gate[e].data = first, up[e].data = second;
    gate[e].mapped = up[e].mapped = false;
  }
  site.set_experts(gates, layer, std::move(gate));
  site.set_experts(ups, layer, std::move(up));
}
std::function<void(Site&)> parted(bool by_turns) {
  return [=](Site& site) {
    part_otherwise(site, WeightRole::kGateExperts, WeightRole::kUpExperts, by_turns);
    part_otherwise(site, WeightRole::kGateExpertsBias, WeightRole::kUpExpertsBias, by_turns);
  };
}

// The 32 codes of a block of MXFP4, a scale and 16 bytes, by `change`.
constexpr std::size_t kMxBytes = 17, kMxCodes = 16;
std::function<void(Site&)> mx_codes(void (*change)(std::span<std::byte> codes)) {
  return [=](Site& site) {
    const int layer = expert_layer(site.spec());
    std::vector<TensorView> gates = site.experts(WeightRole::kGateExperts, layer);
    for (TensorView& gate : gates) {
      Bytes bytes(gate.data.begin(), gate.data.end());
      for (std::size_t at = 0; at + kMxBytes <= bytes.size(); at += kMxBytes)
        change(std::span(bytes).subspan(at + 1, kMxCodes));
      gate.data = site.keep(std::move(bytes));
      gate.mapped = false;
    }
    site.set_experts(WeightRole::kGateExperts, layer, std::move(gates));
  };
}
void exchange_nibbles(std::span<std::byte> codes) {
  for (std::byte& code : codes) code = (code << 4) | (code >> 4);
}
// As published blocks have them, neighbours in one byte, read as if values 16 apart were.
void read_neighbours_as_halves(std::span<std::byte> codes) {
  std::byte all[2 * kMxCodes];
  for (std::size_t i = 0; i < kMxCodes; ++i)
    all[i] = codes[i] & std::byte{15}, all[i + kMxCodes] = codes[i] >> 4;
  for (std::size_t i = 0; i < kMxCodes; ++i) codes[i] = all[2 * i] | all[2 * i + 1] << 4;
}
bool has_mx_experts(const Subject& s) {
  const int layer = expert_layer(s.spec);
  const WeightId id = layer < 0 ? kNoWeight : s.weights.find(WeightRole::kGateExperts, layer);
  return id != kNoWeight && s.weights[id].dtype == DType::kMXFP4;
}

bool weighs_by_softmax(const FfnSpec& f) {
  const RouterSpec& r = f.router;
  return r.score == RouterScore::kSoftmaxOfChosen || (r.score == RouterScore::kSoftmax && !r.normalise);
}

std::vector<FaultRow> router_faults() {
  constexpr auto kDescription = FaultKind::kDescription;
  return {
      {{"router_softmax_order", kDescription, "router_weights", "experts that are weighed by a softmax",
        "the softmax is taken before the best are chosen, or after, the other way than in the model"},
       where(weighs_by_softmax),
       at_first(Stage::kRouterWeights),
       each_router([](RouterSpec& r) {
         r.score = r.score == RouterScore::kSoftmax ? RouterScore::kSoftmaxOfChosen : RouterScore::kSoftmax;
       })},
      {{"router_not_normalised", kDescription, "router_weights", "experts whose weights are made to sum to 1",
        "the weights of the chosen experts are not divided by their sum"},
       where([](const FfnSpec& f) { return f.router.normalise; }),
       at_first(Stage::kRouterWeights),
       each_router([](RouterSpec& r) { r.normalise = false; })},
      {{"router_scale_missing", kDescription, "router_weights", "experts whose weights are scaled",
        "the weights of the chosen experts are not multiplied by the model's number"},
       where([](const FfnSpec& f) { return f.router.scale != 1; }),
       at_first(Stage::kRouterWeights),
       each_router([](RouterSpec& r) { r.scale = 1; })},
      {{"router_correction_missing", kDescription, "router_choice",
        "experts that are chosen by corrected scores", "experts are chosen by their scores alone"},
       where([](const FfnSpec& f) { return f.router.correction; }),
       at_first(Stage::kRouterIds),
       each_router([](RouterSpec& r) { r.correction = false; })},
  };
}

}  // namespace

std::vector<FaultRow> expert_faults() {
  constexpr auto kDescription = FaultKind::kDescription, kData = FaultKind::kData;
  std::vector<FaultRow> rows = router_faults();
  const std::vector<FaultRow> more = {
      {{"expert_clamp_missing", kDescription, "activation_clamp", "gpt-oss",
        "gates and ups of experts are not limited"},
       where([](const FfnSpec& f) { return f.clamp > 0; }),
       at_first(Stage::kFfnAct),
       each_ffn([](FfnSpec& f) { f.clamp = 0; })},
      {{"expert_up_offset_missing", kDescription, "activation_offset", "gpt-oss",
        "activations are multiplied by up instead of up + 1"},
       where([](const FfnSpec& f) { return f.up_offset != 0; }),
       at_first(Stage::kFfnAct),
       each_ffn([](FfnSpec& f) { f.up_offset = 0; })},
      {{"sinks_missing", kDescription, "attention_sinks", "gpt-oss", "attention has no sinks"},
       [](const Subject& s) { return s.spec.layers.front().attention.sinks; },
       at(Stage::kAttnOut, 0),
       [](Site& site) {
         for (LayerSpec& layer : site.spec().layers) layer.attention.sinks = false;
       }},
      {{"experts_permuted", kData, "experts_permuted", "models with experts",
        "every expert of the last layer has the matrices of the one before it"},
       where([](const FfnSpec&) { return true; }),
       [](const Subject& s) {
         return FaultPlace{experts_of(s)->gated ? Stage::kFfnGate : Stage::kFfnUp, expert_layer(s.spec)};
       },
       shift_experts},
      {{"experts_interleaved", kData, "fused_split", "gated experts",
        "rows of gate and up, which follow each other, are read as taking turns"},
       where(is_gated),
       at_last(Stage::kFfnGate),
       parted(true)},
      {{"experts_not_interleaved", kData, "fused_split", "gated experts",
        "rows of gate and up, which take turns, are read as following each other"},
       where(is_gated),
       at_last(Stage::kFfnGate),
       parted(false)},
      {{"mxfp4_nibbles_exchanged", kData, "nibble_order", "MXFP4 experts",
        "low and high nibbles of the experts' blocks are exchanged"},
       has_mx_experts,
       at_last(Stage::kFfnGate),
       mx_codes(exchange_nibbles)},
      {{"mxfp4_nibbles_apart", kData, "nibble_order", "MXFP4 experts",
        "neighbours of a byte are read as values 16 apart"},
       has_mx_experts,
       at_last(Stage::kFfnGate),
       mx_codes(read_neighbours_as_halves)},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
