// Repairs of what a product adds: its bias, which follows from inputs and output, so that it is measured and
// compared with what is stored.
#include <algorithm>
#include <cmath>

#include "diagnosis/doctor/head_rows.h"
#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis::repairs {
namespace {

// The product with another bias: `changed` in the place of `stored`.
std::vector<float> output_with(const OpCase& c, std::span<const float> stored,
                               std::span<const float> changed) {
  std::vector<float> out = c.output();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t at = i % c.width();
    out[i] = static_cast<float>(static_cast<double>(out[i]) - stored[at] + changed[at]);
  }
  return out;
}

// No bias, and those that other products have.
void stored_biases(OpCase& c) {
  const TensorView& bias = *c.setup().biases[0];
  c.attempt("bias_missing", "no bias is added", fmt::format("Leave {} out.", bias.name),
            [](OpSetup& s) { s.biases.clear(); });
  for (const Op& op : c.plan().ops) {
    for (const WeightId id : op.biases) {
      if (id == kNoWeight) continue;
      const TensorView& other = c.context().weights[id];
      if (other.shape != bias.shape || other.data.data() == bias.data.data()) continue;
      c.attempt("stale_weight", fmt::format("the bias is {}", other.name), {},
                [&](OpSetup& s) { s.biases[0] = other; });
      c.add_fix({Fix::Kind::kTensor,
                 bias.name,
                 fmt::format("the values of {}", other.name),
                 {},
                 [other](std::uint64_t row, std::span<float> values) {
                   return decode_f32(other, row * values.size(), values);
                 }});
    }
  }
}

Fix values_fix(const std::string& name, std::string what, std::vector<float> values) {
  return {Fix::Kind::kTensor,
          name,
          std::move(what),
          {},
          [values = std::move(values)](std::uint64_t, std::span<float> to) -> Status {
            std::ranges::copy(std::span(values).first(std::min(values.size(), to.size())), to.begin());
            return {};
          }};
}

void read_otherwise(OpCase& c, const TensorView& bias, std::span<const float> stored) {
  std::vector<float> values(c.width());
  for (const Relayout& layout : relayouts(bias, 0)) {
    if (std::string_view(layout.cause) != "wrong_dtype" || !layout.read(0, values)) continue;
    c.consider(layout.cause, layout.says, layout.repair, output_with(c, stored, values));
    if (layout.type)
      c.add_fix({Fix::Kind::kTensor,
                 bias.name,
                 fmt::format("type {}", dtype_name(*layout.type)),
                 {},
                 layout.read,
                 layout.type});
  }
}

// In the other order of rotary pairs, as rows are that were put right without their bias.
void permute(OpCase& c, const TensorView& bias, std::span<const float> stored) {
  if (!rows_may_be_paired(c)) return;
  const std::size_t dim = head_dim(c);
  std::vector<float> values(c.width());
  for (const bool pairs : {true, false}) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = stored[pairs ? unpaired(i, dim) : paired(i, dim)];
    c.consider(
        "weight_permuted",
        fmt::format("{} is put in the order of {}, as its weight's rows are", bias.name,
                    pairs ? "halves of a head (Hugging Face's)" : "neighbouring rotary pairs (GGUF's)"),
        "Permute the bias as the rows of its weight are.", output_with(c, stored, values));
    c.add_fix(values_fix(bias.name, pairs ? "values unpaired" : "values paired", values));
  }
}

void multiply(OpCase& c, const TensorView& bias, std::span<const float> stored,
              std::span<const double> measured) {
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < stored.size(); ++i)
    products += measured[i] * stored[i], squares += static_cast<double>(stored[i]) * stored[i];
  if (!(squares > 0)) return;
  double scale = products / squares;
  const bool twice = std::abs(scale - 0.5) < 1e-3;
  if (twice) scale = 0.5;
  std::vector<float> values(stored.begin(), stored.end());
  for (float& x : values) x = static_cast<float>(x * scale);
  c.consider(twice ? "bias_twice" : "weight_scaled",
             twice ? fmt::format("{} is added once, not twice", bias.name)
                   : fmt::format("{} is multiplied by {:.4g}", bias.name, scale),
             {}, output_with(c, stored, values), twice ? 1 : 0.95);
  c.add_fix(values_fix(bias.name, fmt::format("times {:.4g}", scale), values));
}

}  // namespace

void weight_bias(OpCase& c) {
  if (c.tokens() < 3) return;
  const bool has_bias = !c.setup().biases.empty() && c.setup().biases[0];
  if (!c.direct()) {
    if (has_bias) stored_biases(c);
    return;
  }
  std::vector<double> offset(c.width());
  std::vector<float> out = c.output();
  for (std::size_t i = 0; i < out.size(); ++i)
    offset[i % c.width()] += (static_cast<double>(c.target()[i]) - out[i]) / static_cast<double>(c.tokens());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(out[i] + offset[i % c.width()]);
  if (!has_bias) {
    c.consider("bias_missing", "a bias is added", {}, out);
    return;
  }
  const TensorView& bias = *c.setup().biases[0];
  std::vector<float> stored(c.width());
  if (!decode_f32(bias, 0, stored)) return;
  stored_biases(c);
  read_otherwise(c, bias, stored);
  permute(c, bias, stored);
  std::vector<double> measured = offset;
  for (std::size_t i = 0; i < measured.size(); ++i) measured[i] += stored[i];
  multiply(c, bias, stored, measured);
  const bool zero = std::ranges::all_of(stored, [](float x) { return x == 0; });
  c.consider(zero ? "bias_missing" : "weight_wrong",
             zero ? fmt::format("{} is not zero", bias.name)
                  : fmt::format("no other bias, and none at all, explains what {} adds", bias.name),
             {}, out, 0.8);
}

}  // namespace doppler::diagnosis::repairs
