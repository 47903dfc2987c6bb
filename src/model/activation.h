// The activation on the gate of a feed-forward block, in double: the formula that every kernel is compared
// with. Sources: Elfwing et al. 2017 (SiLU), Hendrycks and Gimpel 2016 (GELU and its approximation by tanh),
// So et al. 2021 (squared ReLU), Huang and Schlag 2024 (xIELU). The quick GELU is that of Hendrycks and
// Gimpel, too.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/spec.h"

namespace doppler {

// Of the quick GELU, x * sigmoid(alpha x): the logistic function that comes nearest to the normal
// distribution.
inline constexpr double kQuickGeluAlpha = 1.702;

// `alpha` is silu's: x * sigmoid(alpha * x), 1 for the plain one.
inline double activate(Activation activation, double x, const Xielu& xielu = {}, double alpha = 1) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-alpha * x));
    case Activation::kQuickGelu:
      return x / (1 + std::exp(-kQuickGeluAlpha * x));
    case Activation::kGeluTanh: {
      constexpr double kRoot = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
      return 0.5 * x * (1 + std::tanh(kRoot * (x + 0.044715 * x * x * x)));
    }
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kIdentity:
      break;
    case Activation::kXielu:
      if (x > 0) return xielu.alpha_p * x * x + xielu.beta * x;
      return xielu.alpha_n * (std::expm1(std::min(x, xielu.eps)) - x) + xielu.beta * x;
  }
  return x;
}

}  // namespace doppler
