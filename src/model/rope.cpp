#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace doppler {
namespace {

using Frequencies = std::vector<double>;

void scale_linear(const RopeSpec& spec, Frequencies& frequencies) {
  for (double& f : frequencies) f /= spec.scaling.factor;
}

// Long wavelengths are stretched by the factor, short ones kept, those between blended.
void scale_llama3(const RopeSpec& spec, Frequencies& frequencies) {
  const RopeScaling& s = spec.scaling;
  const double low_wavelength = s.original_context / s.low_freq_factor;
  const double high_wavelength = s.original_context / s.high_freq_factor;
  for (double& f : frequencies) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > low_wavelength) {
      f /= s.factor;
    } else if (wavelength > high_wavelength) {
      const double blend =
          (s.original_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      f = (1 - blend) * f / s.factor + blend * f;
    }
  }
}

// YaRN: the ramp between kept and stretched frequencies runs over the pair index, between the pairs that turn
// beta_fast and beta_slow times within the original context.
void scale_yarn(const RopeSpec& spec, Frequencies& frequencies) {
  const RopeScaling& s = spec.scaling;
  const double dim = spec.rotary_dim;
  const auto pair_with_rotations = [&](double rotations) {
    return dim * std::log(s.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(spec.theta));
  };
  double low = pair_with_rotations(s.beta_fast), high = pair_with_rotations(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // the published code's guard against a division by zero
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * stretched + frequencies[i] * (1 - stretched);
  }
}

}  // namespace

RopeTable make_rope_table(const RopeSpec& spec, std::uint64_t context) {
  RopeTable table;
  table.inverse_frequency.resize(spec.rotary_dim / 2);
  for (std::size_t i = 0; i < table.inverse_frequency.size(); ++i) {
    table.inverse_frequency[i] = std::pow(spec.theta, -2.0 * static_cast<double>(i) / spec.rotary_dim);
  }
  const RopeScaling& s = spec.scaling;
  const auto still = std::min<std::size_t>(spec.still_pairs, table.inverse_frequency.size());
  switch (s.kind) {
    case RopeScalingKind::kNone:
      break;
    case RopeScalingKind::kLinear:
      scale_linear(spec, table.inverse_frequency);
      break;
    case RopeScalingKind::kLlama3:
      scale_llama3(spec, table.inverse_frequency);
      break;
    case RopeScalingKind::kYarn:
      scale_yarn(spec, table.inverse_frequency);
      table.magnitude = s.attention_factor;
      break;
    case RopeScalingKind::kDivisors:
      for (std::size_t i = 0; i < table.inverse_frequency.size(); ++i)
        table.inverse_frequency[i] /= s.divisors[i];
      break;
    case RopeScalingKind::kLongRope: {
      const bool is_long = static_cast<double>(context) > s.original_context;
      const auto& factors = is_long ? s.long_factor : s.short_factor;
      for (std::size_t i = 0; i < table.inverse_frequency.size(); ++i)
        table.inverse_frequency[i] /= factors[i];
      table.magnitude = is_long ? s.long_attention_factor : s.attention_factor;
      break;
    }
  }
  std::fill_n(table.inverse_frequency.rbegin(), still, 0.0);
  return table;
}

bool turn_alike(const RopeTable& a, const RopeTable& b, std::uint64_t context, double rounding) {
  constexpr double kStill = 1e-9;  // radians, far below what any type of activation can show
  const double still = kStill / static_cast<double>(std::max<std::uint64_t>(context, 1));
  const auto alike = [&](double x, double y) {
    return std::abs(x - y) <= rounding * std::max(std::abs(x), std::abs(y)) || (x < still && y < still);
  };
  return alike(a.magnitude, b.magnitude) &&
         std::ranges::equal(a.inverse_frequency, b.inverse_frequency, alike);
}

const RopeSpec& rope_with_factors(const ModelSpec& spec) {
  static const RopeSpec none;
  const auto first = [&](auto holds) {
    return std::ranges::find_if(spec.layers, [&](const LayerSpec& l) { return holds(l.attention.rope); });
  };
  const auto scaled = first([](const RopeSpec& rope) {
    const RopeScalingKind kind = rope.scaling.kind;
    return rope.still_pairs > 0 || kind == RopeScalingKind::kLlama3 || kind == RopeScalingKind::kDivisors ||
           kind == RopeScalingKind::kLongRope;
  });
  if (scaled != spec.layers.end()) return scaled->attention.rope;
  const auto turning = first([](const RopeSpec& rope) { return rope.rotary_dim > 0; });
  if (turning != spec.layers.end()) return turning->attention.rope;
  return spec.layers.empty() ? none : spec.layers.front().attention.rope;
}

}  // namespace doppler
