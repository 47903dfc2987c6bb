// The self-check of gemv_columns.wgsl: its first workgroup, for all columns but one.
#include <algorithm>
#include <cmath>

#include "backend/gpu/self_check_inputs.h"
#include "model/activation.h"

namespace doppler::gpu {
namespace {

// Activations of several tokens, [token][UNITS_K * 64], bound as floats or in blocks of 8 bits.
std::vector<double> many_activations(const Values& v, std::size_t tokens, Sequence& sequence, Case& c) {
  const std::size_t padded = v["UNITS_K"] * 64;
  std::vector<double> x(tokens * padded);
  if (v["ACT"] == 0) {
    const std::vector<float> rows = sequence.numbers(v["X_OFFSET"] + (tokens - 1) * v["X_STRIDE"] + padded);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % padded < v["WIDTH"]) x[i] = rows[v["X_OFFSET"] + i / padded * v["X_STRIDE"] + i % padded];
    }
    c.input("x", rows);
    return x;
  }
  std::vector<std::uint32_t>& words = c.inputs["x8"];
  std::vector<float> scales;
  for (std::size_t block = 0; block < x.size() / 32; ++block) {
    const float scale = sequence.number() / 127;  // values as large as floats are
    int sum = 0;
    for (std::size_t k = block * 32; k < block * 32 + 32; ++k) {
      if (k % 4 == 0) words.push_back(sequence.word());
      const std::uint32_t shift = 8 * (k % 4);
      // -128 is no code of an activation.
      if ((words.back() >> shift & 255) == 128) words.back() ^= 1u << shift;
      const int code = static_cast<std::int8_t>(words.back() >> shift & 255);
      sum += code;
      x[k] = static_cast<double>(scale) * code;
    }
    scales.push_back(scale);
    scales.push_back(scale * static_cast<float>(sum));
  }
  c.input("xs", scales);
  return x;
}

}  // namespace

bool covers_columns(const Values& v) {
  const WeightFormat format{static_cast<CodeForm>(v["FORM"]), static_cast<ScaleForm>(v["SCALES"])};
  const std::uint64_t bytes = v["ROWS"] * 2 * v["UNITS_K"] * format.pieces() * 16;
  return v["COLUMNS"] != 0 && v["EMIT_ACT"] == 0 && (v["EPI"] == 0 || bytes <= kMostWeightBytes);
}

Case columns_case(const Values& v) {
  const bool gated = v["EPI"] == 1;
  const std::size_t tokens = v["COLUMNS"] - 1, all = v["ROWS"], padded = v["UNITS_K"] * 64;
  const std::size_t rows = std::min<std::size_t>(all, v["R"] * v["SETS"] / (gated ? 2 : 1));
  Sequence sequence;
  Case c;
  const std::vector<double> x = many_activations(v, tokens, sequence, c);
  PackedWeights weights(v, gated ? 2 * all : rows, rows, gated ? all : rows, sequence);
  const std::vector<float> bias = sequence.numbers(v["BIAS"] != 0 ? (gated ? 2 * all : rows) : 0);
  if (!bias.empty()) c.input("bias", bias);
  c.inputs["step"].assign(v["COUNT"] + 1, static_cast<std::uint32_t>(tokens));
  if (gated) {
    c.outputs["out8"] = tokens * v["OUT_UNITS"] * 16;
    c.outputs["outs"] = tokens * v["OUT_UNITS"] * 4;
  } else {
    c.outputs["out"] = v["OUT_OFFSET"] + tokens * v["OUT_STRIDE"];
  }
  // A row's sum, and how far an f32 sum in any order may lie from it: a value that is a code less a minimum
  // is summed as these two.
  const auto sum_of = [&](std::size_t row, std::size_t token) {
    double sum = bias.empty() ? 0 : bias[row], size = std::abs(sum), largest = 0;
    for (std::size_t k = 0; k < padded; ++k) {
      const double w = weights.value(row, k);
      largest = std::max(largest, std::abs(w));
      sum += w * x[token * padded + k];
      size += std::abs(x[token * padded + k]);
    }
    return std::pair(sum, size * largest * 1e-6);
  };
  // A prime, so that rows of every thread and of both sets are among them.
  for (std::size_t row = 0; row < rows; row += 3) {
    for (std::size_t token = 0; token < tokens; ++token) {
      const auto [sum, error] = sum_of(row, token);
      if (!gated) {
        c.expected.push_back({v["OUT_OFFSET"] + token * v["OUT_STRIDE"] + row, sum, error});
        continue;
      }
      c.expected.push_back(
          gated_value(v, {sum, error}, sum_of(all + row, token), token * v["OUT_UNITS"] * 64 + row));
    }
  }
  c.inputs["codes"] = std::move(weights.codes);
  if (!weights.scales.empty()) c.inputs["scales"] = std::move(weights.scales);
  return c;
}

}  // namespace doppler::gpu
