// The self-check of what stands between products: norms, sums of branches, activations, 8-bit blocks,
// embeddings.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/gpu/self_check_inputs.h"
#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

constexpr std::size_t kTokens = 2;

void add_blocks(const Values& v, std::size_t tokens, Case& c) {
  c.outputs["x8"] = tokens * v["UNITS_K"] * 16;
  c.outputs["xs"] = tokens * v["UNITS_K"] * 4;
  c.wide = v["WIDE"] != 0;
}

}  // namespace

Case norm_case(const Values& v) {
  const std::size_t dim = v["DIM"], x_stride = v["X_STRIDE"], out_stride = v["OUT_STRIDE"];
  // As many heads as fit the views, of two tokens. A single token's row may begin behind its stride.
  const auto room = [dim](std::size_t stride, std::size_t offset) {
    return stride > offset ? (stride - offset) / dim : 0;
  };
  const std::size_t fitting = std::min(room(x_stride, v["X_OFFSET"]), room(out_stride, v["OUT_OFFSET"]));
  const std::size_t heads = std::clamp<std::size_t>(fitting, 1, 4);
  Sequence sequence;
  Case c;
  const bool own = v["OWN"] != 0, has_bias = v["BIAS"] != 0, layer = v["LAYER"] != 0;
  const std::size_t weights = own ? heads * dim : dim;
  const std::vector<float> x = sequence.numbers(x_stride + v["X_OFFSET"] + heads * dim),
                           weight = sequence.numbers(weights);
  const std::vector<float> bias = has_bias ? sequence.numbers(weights) : std::vector<float>(weights);
  c.input("x", x);
  c.input("weight", weight);
  if (has_bias) c.input("bias", bias);
  c.outputs["out"] = out_stride + v["OUT_OFFSET"] + heads * dim;
  c.groups = {static_cast<std::uint32_t>(heads), 2, 1};
  for (std::size_t row = 0; row < 2 * heads; ++row) {
    const std::size_t from = row / heads * x_stride + v["X_OFFSET"] + row % heads * dim;
    const std::size_t to = row / heads * out_stride + v["OUT_OFFSET"] + row % heads * dim;
    const std::size_t first = own ? row % heads * dim : 0;
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < dim; ++i) mean += layer ? x[from + i] / static_cast<double>(dim) : 0;
    for (std::size_t i = 0; i < dim; ++i) squares += (x[from + i] - mean) * (x[from + i] - mean);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(dim) + v.number("EPS_BITS"));
    for (std::size_t i = 0; i < dim; ++i) {
      const double scaled = factor * weight[first + i], value = (x[from + i] - mean) * scaled;
      const double lost = std::abs(value) + (layer ? std::abs(mean * scaled) : 0) + std::abs(bias[first + i]);
      c.expected.push_back({to + i, value + bias[first + i], lost * 1e-5});
    }
  }
  return c;
}

double inverse_root(const std::vector<double>& x, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
}

// batch_norm.wgsl: the residual stream, a branch in parts, and the norm of their sum, of two tokens.
Case batch_norm_case(const Values& v) {
  const std::size_t width = v["WIDTH"], parts = std::max<std::size_t>(v["PARTS"], 1), tokens = 2;
  const bool add = v["ADD"] != 0, post = v["POST"] != 0, norm = v["NORM"] != 0;
  const bool floats = norm && v["FLOATS"] != 0, blocks = norm && v["QUANT"] != 0;
  Sequence sequence;
  Case c;
  const auto rows_of = [&](std::size_t stride, std::size_t offset) {
    return (tokens - 1) * stride + offset + width;
  };
  const std::size_t part_stride = v["PART_STRIDE"];
  const std::vector<float> residual = sequence.numbers(rows_of(v["RESIDUAL_STRIDE"], v["RESIDUAL_OFFSET"])),
                           weight = sequence.numbers(width), post_weight = sequence.numbers(width);
  const std::vector<float> branch =
      sequence.numbers(add ? (parts - 1) * part_stride + rows_of(v["BRANCH_STRIDE"], v["BRANCH_OFFSET"]) : 0);
  c.input("residual", residual);
  if (add) c.input("branch", branch);
  if (post) c.input("post_weight", post_weight);
  if (norm) c.input("weight", weight);
  if (add) c.outputs["h_out"] = rows_of(v["H_STRIDE"], v["H_OFFSET"]);
  if (floats) c.outputs["x_out"] = rows_of(v["X_STRIDE"], v["X_OFFSET"]);
  if (blocks) add_blocks(v, tokens, c);
  c.groups = {1, tokens, 1};
  for (std::size_t token = 0; token < tokens; ++token) {
    std::vector<double> h(width), p(width, 0);
    for (std::size_t i = 0; i < width; ++i) {
      h[i] = residual[token * v["RESIDUAL_STRIDE"] + v["RESIDUAL_OFFSET"] + i];
      for (std::size_t part = 0; add && part < parts; ++part)
        p[i] += branch[part * part_stride + token * v["BRANCH_STRIDE"] + v["BRANCH_OFFSET"] + i];
    }
    const double of_branch = post ? inverse_root(p, v.number("POST_EPS_BITS")) : 1;
    for (std::size_t i = 0; i < width; ++i) {
      h[i] += p[i] * of_branch * (post ? post_weight[i] : 1);
      if (add)
        c.expected.push_back(
            {token * v["H_STRIDE"] + v["H_OFFSET"] + i, h[i], 1e-5 * (1 + std::abs(h[i])), "h_out"});
    }
    const double factor = norm ? inverse_root(h, v.number("EPS_BITS")) : 1;
    for (std::size_t i = 0; norm && i < width; ++i) {
      const double x = h[i] * factor * weight[i];
      const double allowed = 1e-5 * (1 + std::abs(x));
      if (floats) c.expected.push_back({token * v["X_STRIDE"] + v["X_OFFSET"] + i, x, allowed, "x_out"});
      if (blocks) c.expected.push_back({token * v["UNITS_K"] * 64 + i, x, allowed, "x8"});
    }
  }
  return c;
}

// batch_quantise.wgsl: a row, or the product of an activation and another row, in blocks; and quantise.wgsl,
// a row's.
Case quantise_case(const Values& v) {
  const std::size_t width = v["WIDTH"], padded = v["UNITS_K"] * 64;
  const bool gated = v["GATED"] != 0, stores = v["EMIT"] != 0, plain = v.has("X_STRIDE");
  const std::string a_at = plain ? "X" : "A";
  Sequence sequence;
  Case c;
  const auto row_of = [&](const std::string& name, std::size_t token) {
    return v[name + "_OFFSET"] + token * v[name + "_STRIDE"];
  };
  const std::vector<float> a = sequence.numbers(row_of(a_at, kTokens - 1) + width),
                           b = sequence.numbers(gated ? row_of("B", kTokens - 1) + width : 0);
  c.input(plain ? "x" : "a", a);
  if (gated) c.input("b", b);
  add_blocks(v, kTokens, c);
  if (stores) c.outputs["out"] = row_of("OUT", kTokens - 1) + width;
  const std::size_t each = plain ? 32 : 4;  // values of a thread
  c.groups = {ceil_div(padded / each, v["THREADS"]), kTokens, 1};
  for (std::size_t token = 0; token < kTokens; ++token) {
    for (std::size_t i = 0; i < padded; ++i) {
      const double x = i < width ? a[row_of(a_at, token) + i] : 0;
      Case::Expected expected{token * padded + i, x, 1e-6, "x8"};
      // An activation's own error on the GPU: a thousandth of what is multiplied.
      if (gated && i < width)
        expected = gated_value(v, {x, 1e-3}, {b[row_of("B", token) + i], 0}, token * padded + i);
      expected.output = "x8";
      c.expected.push_back(expected);
      if (stores && i < width)
        c.expected.push_back({row_of("OUT", token) + i, expected.value, expected.allowed});
    }
  }
  return c;
}

// Rows of the first tile of a table.
Case embed_case(const Values& v) {
  const std::size_t width = v["WIDTH"], rows = std::min<std::size_t>(v["ROWS"], kTileRows);
  Sequence sequence;
  Case c;
  PackedWeights weights(v, rows, rows, rows, sequence);
  const std::size_t ids[kTokens] = {rows - 1, rows / 2};
  std::vector<std::uint32_t>& step = c.inputs["step"];
  step.assign(v["IDS"] + kTokens, 0);
  c.outputs["out"] = kTokens * width;
  c.groups = {ceil_div(width / 4, v["THREADS"]), kTokens, 1};
  for (std::size_t token = 0; token < kTokens; ++token) {
    step[v["IDS"] + token] = static_cast<std::uint32_t>(v["ROW0"] + ids[token]);
    for (std::size_t i = 0; i < width; ++i) {
      const double value = weights.value(ids[token], i) * v.number("FACTOR_BITS");
      c.expected.push_back({token * width + i, value, 1e-5 * (1 + std::abs(value))});
    }
  }
  c.inputs["codes"] = std::move(weights.codes);
  if (!weights.scales.empty()) c.inputs["scales"] = std::move(weights.scales);
  return c;
}

}  // namespace doppler::gpu
