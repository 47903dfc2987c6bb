// The self-check's cases of experts: their products, and their choice.
#include <optional>

#include "backend/gpu/self_check_inputs.h"
#include "backend/routing.h"
#include "model/activation.h"

namespace doppler::gpu {
namespace {

// Bytes of a layer's experts that a check may upload: those of 20 billion weights in 24 layers, in 5 bits.
constexpr std::uint64_t kMostExpertBytes = 512 << 20;

std::uint64_t expert_bytes(const Values& v) {
  const WeightFormat format{static_cast<CodeForm>(v["FORM"]), static_cast<ScaleForm>(v["SCALES"])};
  const std::uint64_t sets = v["PLACE_LANES"] == 0 ? 2 : 1;
  return sets * v["EXPERTS"] * v["ROWS"] * v["UNITS_K"] * format.pieces() * 16;
}

// Small ones are all random, and a token is sent to the second, too; of large ones the first has weights.
bool is_small(const Values& v) {
  return expert_bytes(v) <= 8 << 20;
}
std::size_t expert_at(const Values& v, std::size_t place) {
  return is_small(v) ? (place + 1) % std::min<std::size_t>(2, v["EXPERTS"]) : 0;
}

std::vector<float> ids_of(const Values& v, std::size_t places) {
  std::vector<float> ids(v["IDS_OFFSET"]);
  for (std::size_t place = 0; place < places; ++place) ids.push_back(static_cast<float>(expert_at(v, place)));
  return ids;
}

// Rows of a workgroup or some, so that a check takes no longer than it has to.
std::size_t rows_of(const Values& v) {
  const std::size_t most = kMostValues / (v["UNITS_K"] * 64 * std::max<std::uint64_t>(v["CHOSEN"], 2));
  return std::min<std::size_t>(v["ROWS"], std::max<std::size_t>(most / v["R"], 1) * v["R"]);
}

// A sum of products, and how far an f32 sum in any order may lie from it.
struct Sum {
  double value = 0, allowed = 0;
};
Sum sum_of(const PackedWeights& weights, std::size_t row, std::span<const double> x, double step) {
  Sum sum;
  double size = 0, largest = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double w = weights.value(row, k);
    largest = std::max(largest, std::abs(w));
    sum.value += w * x[k];
    size += std::abs(x[k]);
  }
  sum.allowed = size * largest * 1e-6 + 2 * step * largest;
  return sum;
}

// gate.wgsl.
double gated_value(const Values& v, double gate, double up) {
  if (v["SHAPED"] == 0) return activate(static_cast<Activation>(v["ACTIVATION"]), gate) * up;
  const double limit = v.number("GATE_LIMIT_BITS"), g = std::min(gate, limit);
  return g / (1 + std::exp(-g * v.number("ALPHA_BITS"))) *
         (std::clamp(up, -limit, limit) + v.number("UP_OFFSET_BITS"));
}

}  // namespace

bool covers_experts(const Values& v) {
  for (const char* emitted : {"EMIT_PARTS", "EMIT_ACT"}) {
    if (v[emitted] != 0) return false;
  }
  return expert_bytes(v) <= kMostExpertBytes;
}

namespace {

// The router's logits, what else it reads, and what is expected of it. `best`: an expert that is to be the
// first.
void add_routing(const Values& v, Sequence& sequence, Case& c, std::optional<std::size_t> best,
                 const std::string& ids_name, const char* ids_out) {
  const std::size_t experts = v["EXPERTS"], chosen = v["CHOSEN"];
  const bool weighs = v["WEIGH"] != 0 || v["ROUTES"] != 0;
  const RouterSpec router{
      .score = static_cast<RouterScore>(v["SCORE"]),
      .top_k = static_cast<std::uint32_t>(chosen),
      .groups = static_cast<std::uint32_t>(std::max<std::uint64_t>(v["GROUPS"], 1)),
      .kept_groups = static_cast<std::uint32_t>(std::max<std::uint64_t>(v["KEPT_GROUPS"], 1)),
      .group_best = static_cast<std::uint32_t>(v["GROUP_BEST"]),
      .normalise = v["NORMALISE"] != 0,
      .norm_eps = v.number("NORM_EPS_BITS"),
      .norm_floor = v.number("NORM_FLOOR_BITS"),
      .scale = weighs ? v.number("SCALE_BITS") : 1,
      .jitter = v.number("BAND_BITS") / 2};
  std::vector<float> all = sequence.numbers(v["LOGITS_OFFSET"] + experts);
  std::vector<float> corrections = sequence.numbers(v["CORRECTED"] != 0 ? experts : 0);
  const std::vector<float> each = sequence.numbers(v["EACH"] != 0 ? experts : 0);
  if (best) {  // all others lie within (-1, 1)
    all[v["LOGITS_OFFSET"] + *best] = 3;
    if (!corrections.empty()) corrections[*best] = 1;
  }
  c.input("logits", all);
  const std::span<const float> logits = std::span(all).subspan(v["LOGITS_OFFSET"]);
  std::vector<float> ids(chosen), weights(chosen);
  choose_experts(router, logits, corrections, ids);
  if (v["WEIGH"] != 1) {
    const std::size_t offset = v["IDS_OFFSET"] + v["OUT_OFFSET"];  // one of them
    if (!corrections.empty()) c.input("corrections", corrections);
    c.outputs[ids_name] = offset + chosen;
    for (std::size_t i = 0; i < chosen; ++i) c.expected.push_back({offset + i, ids[i], 0, ids_out});
  } else {
    std::vector<float> given(v["IDS_OFFSET"]);
    given.insert(given.end(), ids.begin(), ids.end());
    c.input("ids", given);
  }
  if (!weighs) return;
  if (!each.empty()) c.input("each", each);
  weigh_experts(router, logits, ids, each, weights);
  c.outputs["weights_out"] = v["WEIGHTS_OFFSET"] + chosen;
  for (std::size_t i = 0; i < chosen; ++i) {
    c.expected.push_back(
        {v["WEIGHTS_OFFSET"] + i, weights[i], 1e-5 * std::abs(weights[i]) + 1e-7, "weights_out"});
  }
}

}  // namespace

Case expert_in_case(const Values& v) {
  const std::size_t all = v["EXPERTS"] * v["ROWS"], rows = rows_of(v);
  Sequence sequence;
  Case c;
  if (v["ROUTES"] != 0) {
    add_routing(v, sequence, c, expert_at(v, 0), "ids_out", "ids_out");
  } else {
    c.input("ids", ids_of(v, 1));
  }
  const Activations a = given_activations(v, sequence, c);
  const PackedWeights weights(v, 2 * all, is_small(v) ? all : rows, all, sequence);
  const std::size_t first = expert_at(v, 0) * v["ROWS"];
  std::vector<float> biases[2];
  for (std::vector<float>& bias : biases) bias = sequence.numbers(v["BIAS"] != 0 ? all : 0);
  if (v["BIAS"] != 0) {
    c.input("gate_bias", biases[0]);
    c.input("up_bias", biases[1]);
  }
  const bool quantised = v["QUANTISE_OUT"] != 0;
  if (quantised) {
    c.outputs["out8"] = rows / 4;
    c.outputs["outs"] = rows / 32 * 2;
  } else {
    c.outputs["out"] = rows;
  }
  c.groups = {static_cast<std::uint32_t>(rows / v["R"]), 1, 1};
  for (std::size_t row = 0; row < rows; ++row) {
    Sum sums[2];
    for (std::size_t n = 0; n < 2; ++n) {
      sums[n] = sum_of(weights, n * all + first + row, a.x, a.step);
      if (v["BIAS"] != 0) sums[n].value += biases[n][first + row];
    }
    const double value = gated_value(v, sums[0].value, sums[1].value);
    // No activation is steeper than 1.2, and none is larger than what it is taken of.
    const double offset = v["SHAPED"] != 0 ? std::abs(v.number("UP_OFFSET_BITS")) : 0;
    const double allowed = (1.2 * sums[0].allowed + 1e-5 * std::abs(sums[0].value)) *
                               (std::abs(sums[1].value) + sums[1].allowed + offset) +
                           sums[1].allowed * std::abs(sums[0].value);
    c.expected.push_back({row, value, allowed, quantised ? "out8" : "out"});
  }
  c.inputs["codes"] = weights.codes;
  if (!weights.scales.empty()) c.inputs["scales"] = weights.scales;
  return c;
}

Case expert_out_case(const Values& v) {
  const std::size_t chosen = v["CHOSEN"], padded = v["UNITS_K"] * 64, all = v["EXPERTS"] * v["ROWS"],
                    rows = rows_of(v);
  Sequence sequence;
  Case c;
  c.input("ids", ids_of(v, chosen));
  const bool weighted = v["WEIGHTED"] != 0, adds = v["ADDS"] != 0;
  const std::vector<float> weights = sequence.numbers(v["WEIGHTS_OFFSET"] + chosen),
                           z = sequence.numbers(v["Z_OFFSET"] + v["ROWS"]), bias = sequence.numbers(all);
  if (weighted) c.input("weights", weights);
  if (adds) c.input("z", z);
  if (v["BIAS"] != 0) c.input("bias", bias);
  // Each place's activations.
  std::vector<double> x(chosen * padded);
  if (v["ACT"] == 0) {
    const std::vector<float> floats = sequence.numbers(v["X_OFFSET"] + chosen * v["WIDTH"]);
    c.input("x", floats);
    for (std::size_t place = 0; place < chosen; ++place) {
      for (std::size_t k = 0; k < v["WIDTH"]; ++k)
        x[place * padded + k] = floats[v["X_OFFSET"] + place * v["WIDTH"] + k];
    }
  } else {
    std::vector<float> scales;
    std::vector<std::uint32_t>& words = c.inputs["x8"];
    for (std::size_t block = 0; block < x.size() / 32; ++block) {
      const float scale = sequence.number();
      int sum = 0;
      for (std::size_t k = block * 32; k < block * 32 + 32; ++k) {
        const int code = static_cast<int>(sequence.next() % 255) - 127;
        if (k % 4 == 0) words.push_back(0);
        words.back() |= std::uint32_t{static_cast<std::uint8_t>(code)} << (8 * (k % 4));
        sum += code;
        x[k] = static_cast<double>(scale) * code;
      }
      scales.push_back(scale);
      scales.push_back(scale * static_cast<float>(sum));
    }
    c.input("xs", scales);
  }
  const PackedWeights matrices(v, all, is_small(v) ? all : rows, all, sequence);
  c.outputs["out"] = v["OUT_OFFSET"] + rows;
  c.groups = {static_cast<std::uint32_t>((rows + v["R"] - 1) / v["R"]), 1, 1};
  for (std::size_t row = 0; row < rows; ++row) {
    double value = adds ? z[v["Z_OFFSET"] + row] : 0, allowed = 1e-6 * std::abs(value);
    for (std::size_t place = 0; place < chosen; ++place) {
      const std::size_t at = expert_at(v, place) * v["ROWS"] + row;
      Sum sum = sum_of(matrices, at, std::span(x).subspan(place * padded, padded), 0);
      if (v["BIAS"] != 0) sum.value += bias[at];
      const double weight = weighted ? weights[v["WEIGHTS_OFFSET"] + place] : 1;
      value += weight * sum.value;
      allowed += std::abs(weight) * (sum.allowed + 1e-6 * std::abs(sum.value));
    }
    c.expected.push_back({v["OUT_OFFSET"] + row, value, allowed});
  }
  c.inputs["codes"] = matrices.codes;
  if (!matrices.scales.empty()) c.inputs["scales"] = matrices.scales;
  return c;
}

Case route_case(const Values& v) {
  Sequence sequence;
  Case c;
  c.groups = {1, 1, 1};
  add_routing(v, sequence, c, std::nullopt, "out", "out");
  if (v["QUANTISES"] == 0) return c;
  const std::vector<float> given = sequence.numbers(v["GIVEN_OFFSET"] + v["WIDTH"]);
  const std::size_t padded = v["UNITS_K"] * 64;
  c.input("given", given);
  c.outputs["out8"] = padded / 4;
  c.outputs["outs"] = padded / 32 * 2;
  c.groups.x += static_cast<std::uint32_t>((padded / 4 + v["THREADS"] - 1) / v["THREADS"]);
  for (std::size_t k = 0; k < padded; ++k) {
    const double value = k < v["WIDTH"] ? given[v["GIVEN_OFFSET"] + k] : 0;
    c.expected.push_back({k, value, 1e-6, "out8"});
  }
  return c;
}

}  // namespace doppler::gpu
