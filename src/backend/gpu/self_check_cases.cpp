// The inputs and the plain loops of the self-check: all from a variant's values, so that code that uses a
// kernel need not know how it is checked.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "backend/gpu/recorder.h"
#include "backend/gpu/self_check.h"
#include "backend/gpu/self_check_inputs.h"
#include "backend/gpu/shader_values.h"
#include "base/float16.h"

namespace doppler::gpu {
Activations given_activations(const Values& v, Sequence& sequence, Case& c) {
  const std::size_t padded = v["UNITS_K"] * 64;
  Activations a{.x = std::vector<double>(padded)};
  if (v["ACT"] == 0) {
    const std::vector<float> row = sequence.numbers(v["X_OFFSET"] + padded);
    c.input("x", row);
    for (std::size_t k = 0; k < v["WIDTH"]; ++k) a.x[k] = row[v["X_OFFSET"] + k];
    return a;
  }
  std::vector<std::uint32_t> codes(padded / 4);
  std::vector<float> scales;
  for (std::uint32_t& word : codes) word = sequence.word();
  const auto code = [&](std::size_t k) {
    return static_cast<std::int8_t>(codes[k / 4] >> (8 * (k % 4)) & 255);
  };
  for (std::size_t block = 0; block < padded / 32; ++block) {
    const float scale = sequence.number() / 127;  // values as large as floats are
    int sum = 0;
    for (std::size_t k = block * 32; k < block * 32 + 32; ++k) {
      // -128 is no code of an activation.
      if (code(k) == -128) codes[k / 4] ^= 1u << (8 * (k % 4));
      sum += code(k);
      a.x[k] = static_cast<double>(scale) * code(k);
    }
    scales.push_back(scale);
    scales.push_back(scale * static_cast<float>(sum));
  }
  c.inputs["x8"] = std::move(codes);
  c.input("xs", scales);
  return a;
}

namespace {

// norm_prologue.wgsl: the residual stream, a branch, and the norm of their sum.
Activations normed_activations(const Values& v, Sequence& sequence, Case& c) {
  const std::size_t width = v["WIDTH"];
  const bool add = v["ADD"] != 0, carry = v["CARRY"] != 0, post = v["POST"] != 0;
  const std::vector<float> residual = sequence.numbers(width), branch = sequence.numbers(width),
                           weights = sequence.numbers(2 * width);
  c.input("residual", residual);
  c.input("norm_weights", weights);
  std::vector<double> h(residual.begin(), residual.end());
  if (add) {
    c.input("branch", branch);
    if (carry) c.outputs["carried"] = width;
    const double factor =
        post ? inverse_root(std::vector<double>(branch.begin(), branch.end()), v.number("EPS_BITS")) : 1;
    for (std::size_t i = 0; i < width; ++i) {
      h[i] += branch[i] * factor * (post ? weights[width + i] : 1);
      if (carry) c.expected.push_back({i, h[i], 1e-5 * (1 + std::abs(h[i])), "carried"});
    }
  }
  const double factor = inverse_root(h, v.number("EPS_BITS"));
  for (std::size_t i = 0; i < width; ++i) h[i] *= factor * weights[i];
  return left_by_prologue(v, std::move(h));
}

Case gemv_case(const Values& v) {
  const std::size_t r = v["R"], padded = v["UNITS_K"] * 64, all = v["ROWS"], sets = 1 + (v["EPI"] == 1);
  const std::size_t groups =
      std::min<std::size_t>((all + r - 1) / r, std::max<std::uint64_t>(1, kMostValues / (r * padded * sets)));
  const std::size_t rows = std::min(all, groups * r);
  Sequence sequence;
  Case c;
  const Activations a = v["PRO"] == 1   ? normed_activations(v, sequence, c)
                        : v["PRO"] == 2 ? combined_activations(v, sequence, c)
                                        : given_activations(v, sequence, c);
  const std::size_t width = v["PRO"] == 0 && v["ACT"] == 0 ? v["WIDTH"] : padded;
  PackedWeights weights(v, sets == 1 ? rows : 2 * all, rows, sets == 1 ? rows : all, sequence);
  const std::vector<float> bias = sequence.numbers(v["BIAS"] != 0 ? (sets == 1 ? rows : 2 * all) : 0);
  if (!bias.empty()) c.input("bias", bias);
  // A row's sum, and how far an f32 sum in any order may lie from it; a wrong product changes it by its share
  // of all, 1/16384 at the least. A product with a neighbouring code is as good.
  const auto sum_of = [&](std::size_t row) {
    double sum = bias.empty() ? 0 : bias[row], size = std::abs(sum), largest = 0;
    for (std::size_t k = 0; k < width; ++k) {
      const double w = weights.value(row, k);
      largest = std::max(largest, std::abs(w));
      sum += w * a.x[k];
      size += std::abs(a.x[k]);
    }
    return std::pair(sum, size * largest * 1e-6 + 2 * a.step * largest);
  };
  const bool quantised = sets == 2 && v["QUANTISE_OUT"] != 0;
  const std::size_t offset = quantised ? 0 : v["OUT_OFFSET"];
  if (quantised) {
    c.outputs["out8"] = rows / 4;
    c.outputs["outs"] = rows / 32 * 2;
  } else {
    c.outputs["out"] = offset + rows;
  }
  c.groups = {static_cast<std::uint32_t>(groups), 1, 1};
  for (std::size_t row = 0; row < rows; ++row) {
    const auto [sum, error] = sum_of(row);
    Case::Expected expected{offset + row, sum, error};
    if (sets == 2) expected = gated_value(v, {sum, error}, sum_of(all + row), offset + row);
    expected.output = quantised ? "out8" : "out";
    c.expected.push_back(expected);
  }
  c.inputs["codes"] = std::move(weights.codes);
  if (!weights.scales.empty()) c.inputs["scales"] = std::move(weights.scales);
  return c;
}

// Tokens of a product in tiles: all of a tile but one, or as many as a split has room for.
std::size_t tokens_of_tile(const Values& v) {
  const std::size_t most = v["TM"] - 1;
  return v["SPLITS"] > 1 ? std::min<std::size_t>(most, v["SPLIT_STRIDE"] / v["OUT_STRIDE"]) : most;
}

// The first tile of rows, for all tokens of a tile but one; grouped, of the first expert, its tokens in
// reverse order.
Case gemm_case(const Values& v) {
  const bool grouped = v["GROUPED"] != 0;
  const std::size_t first = v["FIRST"];
  const std::size_t tokens = tokens_of_tile(v), rows = std::min<std::size_t>(v["ROWS"], v["TN"]);
  const std::size_t padded = v["UNITS_K"] * 64, splits = v["SPLITS"];
  Sequence sequence;
  Case c;
  PackedWeights weights(v, first + rows, first + rows, first + rows, sequence);
  const std::vector<float> bias = sequence.numbers(v["BIAS"] != 0 ? v["ROWS"] : 0);
  if (!bias.empty()) c.input("bias", bias);
  if (grouped) {
    for (std::size_t i = tokens; i > 0; --i) c.inputs["order"].push_back(static_cast<std::uint32_t>(i - 1));
    c.inputs["tiles"] = {0, 0, static_cast<std::uint32_t>(tokens), 0};
  } else {
    c.inputs["step"].assign(v["COUNT"] + 1, static_cast<std::uint32_t>(tokens));
  }
  std::vector<std::uint32_t>& words = c.inputs["x8"];
  std::vector<float> scales;
  const auto code = [](std::uint32_t word, std::size_t byte) {
    return static_cast<int>(static_cast<std::int8_t>(word >> (8 * byte) & 255));
  };
  for (std::size_t block = 0; block < v["TM"] * padded / 32; ++block) {
    int sum = 0;
    for (std::size_t w = 0; w < 8; ++w) {
      words.push_back(sequence.word());
      for (std::size_t b = 0; b < 4; ++b) {
        // -128 is no code of an activation.
        if (code(words.back(), b) == -128) words.back() ^= 1u << (8 * b);
        sum += code(words.back(), b);
      }
    }
    const bool shares = v["WIDE"] != 0 && block % 8 != 0;
    scales.push_back(shares ? scales[scales.size() - 2] : sequence.number());
    scales.push_back(scales.back() * static_cast<float>(sum));
  }
  c.input("xs", scales);
  c.outputs["out"] = v["OUT_OFFSET"] + (splits - 1) * v["SPLIT_STRIDE"] + tokens * v["OUT_STRIDE"];
  c.groups = {1, 1, static_cast<std::uint32_t>(splits)};
  // The columns that a workgroup along z takes.
  const std::size_t steps = (v["UNITS_K"] + v["UK"] - 1) / v["UK"];
  const std::size_t part = (steps + splits - 1) / splits * v["UK"] * 64;
  // A prime, so that rows of every thread and of both halves of a tile are among them.
  for (std::size_t row = 0; row < rows; row += 7) {
    std::vector<double> w(padded);
    double largest = 0;
    for (std::size_t k = 0; k < padded; ++k) {
      w[k] = weights.value(first + row, k);
      largest = std::max(largest, std::abs(w[k]));
    }
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t z = 0; z < splits; ++z) {
        double sum = bias.empty() ? 0 : bias[row], size = std::abs(sum);
        for (std::size_t k = z * part; k < std::min(padded, (z + 1) * part); ++k) {
          const std::size_t at = (grouped && v["OWN"] == 0 ? token / v["CHOSEN"] : token) * padded + k;
          const double x = static_cast<double>(scales[at / 32 * 2]) * code(words[at / 4], at % 4);
          sum += w[k] * x;
          size += std::abs(x);
        }
        // Where sums are kept beside large numbers they are rounded to codes, here of a scale of 1 at most.
        const bool biased =
            v["WIDE"] != 0 && v["SCALES"] == static_cast<std::uint64_t>(ScaleForm::kSuper32Min);
        const double rounding = biased ? std::sqrt(part / 32.0) * largest / 4 : 0;
        const std::size_t to = grouped
                                   ? token / v["CHOSEN"] * v["OUT_STRIDE"] + token % v["CHOSEN"] * v["ROWS"]
                                   : token * v["OUT_STRIDE"];
        c.expected.push_back(
            {v["OUT_OFFSET"] + z * v["SPLIT_STRIDE"] + to + row, sum, size * largest * 1e-6 + rounding});
      }
    }
  }
  c.inputs["codes"] = std::move(weights.codes);
  c.inputs["scales"] = std::move(weights.scales);
  return c;
}

// The first tile of rows, for all tokens of a tile but one.
Case float_gemm_case(const Values& v) {
  const std::size_t tokens = tokens_of_tile(v), rows = std::min<std::size_t>(v["ROWS"], v["TN"]);
  const std::size_t width = v["WIDTH"], splits = v["SPLITS"], x_stride = v["X_STRIDE"];
  Sequence sequence;
  Case c;
  PackedWeights weights(v, rows, rows, rows, sequence);
  const std::vector<float> bias = sequence.numbers(v["BIAS"] != 0 ? v["ROWS"] : 0);
  if (!bias.empty()) c.input("bias", bias);
  c.inputs["step"].assign(v["COUNT"] + 1, static_cast<std::uint32_t>(tokens));
  const std::vector<float> x = sequence.numbers(v["X_OFFSET"] + tokens * x_stride);
  c.input("x", x);
  c.outputs["out"] = v["OUT_OFFSET"] + (splits - 1) * v["SPLIT_STRIDE"] + tokens * v["OUT_STRIDE"];
  c.groups = {1, 1, static_cast<std::uint32_t>(splits)};
  // The columns that a workgroup along z takes.
  const std::size_t part = (v["UNITS_K"] + splits - 1) / splits * 64;
  // A prime, so that rows of every thread are among them.
  for (std::size_t row = 0; row < rows; row += 7) {
    std::vector<double> w(width);
    double largest = 0;
    for (std::size_t k = 0; k < width; ++k) {
      w[k] = weights.value(row, k);
      largest = std::max(largest, std::abs(w[k]));
    }
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t z = 0; z < splits; ++z) {
        double sum = bias.empty() ? 0 : bias[row], size = std::abs(sum);
        for (std::size_t k = z * part; k < std::min(width, (z + 1) * part); ++k) {
          const double value = x[v["X_OFFSET"] + token * x_stride + k];
          sum += w[k] * value;
          size += std::abs(value);
        }
        c.expected.push_back({v["OUT_OFFSET"] + z * v["SPLIT_STRIDE"] + token * v["OUT_STRIDE"] + row, sum,
                              size * std::max(largest, 1.0) * 1e-6});
      }
    }
  }
  c.inputs["codes"] = std::move(weights.codes);
  if (!weights.scales.empty()) c.inputs["scales"] = std::move(weights.scales);
  return c;
}

// As the self-check of 8-bit products. Weights and activations are halves, whose roundings are errors of
// either sign: a sum's lie within eight deviations, of which a weight's product with the largest factor is
// one in 2^11.
Case gemm_half_case(const Values& v) {
  const std::size_t tokens = v["TM"] - 1, rows = std::min<std::size_t>(v["ROWS"], v["TN"]);
  const std::size_t padded = v["UNITS_K"] * 64, splits = v["SPLITS"], room = v["HALF_TOKENS"];
  Sequence sequence;
  Case c;
  PackedWeights weights(v, rows, rows, rows, sequence);
  const std::vector<float> bias = sequence.numbers(v["BIAS"] != 0 ? v["ROWS"] : 0);
  if (!bias.empty()) c.input("bias", bias);
  c.inputs["step"].assign(v["COUNT"] + 1, static_cast<std::uint32_t>(tokens));
  // Halves by token and value; in x16 the two middle ones of four change places, and all are a 32nd.
  std::vector<float> x(v["TM"] * padded);
  std::vector<std::uint16_t> halves(padded * room);
  for (std::size_t token = 0; token < v["TM"]; ++token) {
    for (std::size_t k = 0; k < padded; ++k) {
      constexpr std::size_t kPlace[] = {0, 2, 1, 3};
      const std::uint16_t half = f32_to_f16(sequence.number() / 32);
      x[token * padded + k] = f16_to_f32(half) * 32;
      halves[(k / 32 * room + token) * 32 + k % 32 / 4 * 4 + kPlace[k % 4]] = half;
    }
  }
  std::vector<std::uint32_t>& words = c.inputs["x16"];
  words.resize(halves.size() / 2);
  std::memcpy(words.data(), halves.data(), halves.size() * 2);
  c.outputs["out"] = v["OUT_OFFSET"] + (splits - 1) * v["SPLIT_STRIDE"] + v["TM"] * v["OUT_STRIDE"];
  c.groups = {1, 1, static_cast<std::uint32_t>(splits)};
  const std::size_t steps = v["UNITS_K"] * 2 / v["KB"];
  const std::size_t part = ((steps + splits - 1) / splits + 1) / 2 * 2 * v["KB"] * 32;
  for (std::size_t row = 0; row < rows; row += 7) {
    std::vector<double> w(padded);
    double largest = 0;
    for (std::size_t k = 0; k < padded; ++k) {
      w[k] = weights.value(row, k);
      largest = std::max(largest, std::abs(w[k]));
    }
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t z = 0; z < splits; ++z) {
        double sum = bias.empty() ? 0 : bias[row], squares = 0;
        for (std::size_t k = z * part; k < std::min(padded, (z + 1) * part); ++k) {
          const double factor = x[token * padded + k];
          sum += w[k] * factor;
          squares += factor * factor;
        }
        const double allowed = 8 * largest * std::sqrt(squares) / 2048 + 1e-6 * std::abs(sum);
        c.expected.push_back(
            {v["OUT_OFFSET"] + z * v["SPLIT_STRIDE"] + token * v["OUT_STRIDE"] + row, sum, allowed});
      }
    }
  }
  c.inputs["codes"] = std::move(weights.codes);
  if (!weights.scales.empty()) c.inputs["scales"] = std::move(weights.scales);
  return c;
}

// Variants that store values for taps only are run when a tap asks for them.
bool covers_gemv(const Values& v) {
  const WeightFormat format{static_cast<CodeForm>(v["FORM"]), static_cast<ScaleForm>(v["SCALES"])};
  const std::uint64_t bytes = v["ROWS"] * 2 * v["UNITS_K"] * format.pieces() * 16;
  for (const char* emitted :
       {"EMIT_PARTS", "EMIT_ACT", "EMIT_NORMED", "EMIT_BLOCKS", "EMIT_POST", "EMIT_ATTN"}) {
    if (v[emitted] != 0) return false;
  }
  return v["EPI"] == 0 || bytes <= kMostWeightBytes;
}

// Of the weights in front of a grouped product's.
std::uint64_t grouped_bytes(const Values& v) {
  const WeightFormat format{static_cast<CodeForm>(v["FORM"]), static_cast<ScaleForm>(v["SCALES"])};
  return (v["FIRST"] + v["ROWS"]) * v["UNITS_K"] * format.pieces() * 16;
}

struct CheckedKernel {
  std::string_view file;
  bool (*covers)(const Values& values);
  Case (*make)(const Values& values);
};
constexpr CheckedKernel kChecked[] = {
    {"gemv.wgsl", covers_gemv, gemv_case},
    {"gemv_columns.wgsl", covers_columns, columns_case},
    {"gemm.wgsl",
     [](const Values& v) {
       return v["TM"] != 0 && (v["GROUPED"] == 0 || grouped_bytes(v) <= kMostWeightBytes);
     },
     gemm_case},
    {"gemm_float.wgsl", [](const Values& v) { return v["TM"] != 0; }, float_gemm_case},
    {"gemm_half.wgsl", [](const Values& v) { return v["TM"] != 0; }, gemm_half_case},
    {"batch_norm.wgsl", [](const Values& v) { return v["QUANT"] < 2 && v["EMIT"] == 0; }, batch_norm_case},
    {"batch_quantise.wgsl", [](const Values& v) { return v["UNITS_K"] != 0; }, quantise_case},
    {"quantise.wgsl", [](const Values& v) { return v["UNITS_K"] != 0; }, quantise_case},
    {"embed.wgsl", [](const Values& v) { return v["ROWS"] != 0 && v["ADDS"] == 0; }, embed_case},
    {"norm.wgsl", [](const Values& v) { return v["DIM"] != 0; }, norm_case},
    {"attention.wgsl", [](const Values& v) { return v["KV_HEADS"] != 0 && v["EMIT_SCORES"] == 0; },
     attention_case},
    {"attention_half.wgsl", [](const Values& v) { return v["EMIT_SCORES"] == 0; }, attention_case},
    {"attention_tiled.wgsl", [](const Values& v) { return v["BQ"] != 0 && v["EMIT_SCORES"] == 0; },
     attention_case},
    {"attention_decode.wgsl",
     [](const Values& v) { return v["LP"] != 0 && v["EMIT_ROPE"] == 0 && v["EMIT_NORM"] == 0; },
     decode_attention_case},
    {"rope_append.wgsl", covers_rope, rope_append_case},
    {"attention_combine.wgsl", [](const Values& v) { return v["PARTS"] != 0; }, combine_case},
    {"expert_in.wgsl", covers_experts, expert_in_case},
    {"expert_out.wgsl", covers_experts, expert_out_case},
    {"route.wgsl", [](const Values& v) { return v["EXPERTS"] != 0; }, route_case},
};

// Where the scales of an output's 8-bit blocks are; null for outputs of other kinds.
const char* scales_of(std::string_view output) {
  return output == "out8" ? "outs" : output == "x8" ? "xs" : nullptr;
}

float scale_of(std::span<const std::byte> scales, std::size_t block) {
  float scale = 0;
  std::memcpy(&scale, &scales[block * 8], 4);
  return scale;
}

// Beside a block's scale stands the sum of its codes, times the scale.
bool has_sum_of_codes(std::span<const std::byte> scales, std::span<const std::byte> codes,
                      std::size_t block) {
  float scale[2];
  std::memcpy(scale, &scales[block * 8], 8);
  int sum = 0;
  for (std::size_t i = block * 32; i < block * 32 + 32; ++i) sum += static_cast<std::int8_t>(codes[i]);
  return std::abs(scale[1] - scale[0] * static_cast<float>(sum)) <= 1e-5f * std::abs(scale[1]);
}

Result<std::string> run(Device& device, std::shared_ptr<const Kernel> kernel, const Case& c) {
  std::vector<Bound> bounds;
  std::vector<Buffer> buffers;
  for (const auto& [name, words] : c.inputs) {
    DOPPLER_ASSIGN(Buffer buffer,
                   device.make_filled("self-check", words.size() * 4, [&](std::span<std::byte> out) {
                     std::memcpy(out.data(), words.data(), words.size() * 4);
                   }));
    bounds.push_back({name, std::move(buffer)});
  }
  // Outputs that a kernel does not write stay NaN.
  for (const auto& [name, words] : c.outputs) {
    DOPPLER_ASSIGN(Buffer buffer, device.make_filled("self-check", words * 4, [](std::span<std::byte> to) {
      std::memset(to.data(), 0xff, to.size());
    }));
    bounds.push_back({name, std::move(buffer)});
  }
  DOPPLER_ASSIGN(const BoundKernel bound, BoundKernel::create(device, std::move(kernel), bounds));
  Recorder recorder(device);
  recorder.dispatch(bound, c.groups);
  DOPPLER_TRY(recorder.submit());
  std::map<std::string, std::vector<std::byte>, std::less<>> results;
  for (const Bound& output : bounds) {
    if (!c.outputs.contains(std::string(output.name)) && !c.written.contains(output.name)) continue;
    DOPPLER_ASSIGN(results[std::string(output.name)], device.download(output.buffer));
  }
  for (const Case::Expected& e : c.expected) {
    const std::vector<std::byte>& bytes = results.find(e.output)->second;
    float got = 0;
    double allowed = e.allowed;
    if (const char* scales = scales_of(e.output)) {
      const std::vector<std::byte>& of_blocks = results.find(scales)->second;
      const float scale = scale_of(of_blocks, e.at / 32);
      got = scale * static_cast<float>(static_cast<std::int8_t>(bytes[e.at]));
      allowed += 0.51 * std::abs(scale);
      if (e.at % 32 == 0 && !has_sum_of_codes(of_blocks, bytes, e.at / 32))
        return fmt::format("the sum of the codes of block {} of {} is wrong", e.at / 32, e.output);
      if (c.wide && scale != scale_of(of_blocks, e.at / 256 * 8))
        return fmt::format("block {} of {} has a scale of its own", e.at / 32, e.output);
    } else if (c.halves.contains(e.output)) {
      std::uint16_t half = 0;
      std::memcpy(&half, &bytes[e.at * 2], 2);
      got = f16_to_f32(half);
    } else {
      std::memcpy(&got, &bytes[e.at * 4], 4);
    }
    if (std::abs(got - e.value) <= allowed) continue;
    return fmt::format("value {} of {} is {} and should be {}", e.at, e.output, got, e.value);
  }
  return std::string();
}

}  // namespace

bool can_check(std::string_view file, const ShaderValues& values) {
  const Values named(values);
  return std::ranges::any_of(kChecked, [&](const CheckedKernel& checked) {
    return file.starts_with(checked.file) && checked.covers(named);
  });
}

Result<std::string> difference_from_cpu(Device& device, std::shared_ptr<const Kernel> kernel,
                                        const ShaderValues& values, system::Mutex* turn) {
  const Values named(values);
  for (const CheckedKernel& checked : kChecked) {
    if (!kernel->label().starts_with(checked.file) || !checked.covers(named)) continue;
    const Case made = checked.make(named);
    std::optional<system::Lock> lock;
    if (turn != nullptr) lock.emplace(*turn);
    const Device::Counters before = device.counters;
    auto result = run(device, kernel, made);
    device.counters = before;  // not part of the program's own
    return result;
  }
  return std::string();
}

}  // namespace doppler::gpu
