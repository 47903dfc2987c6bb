#include "diagnosis/doctor/scale_off.h"

#include <algorithm>
#include <cmath>

#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis {

std::optional<double> scale_off(const OpCase& c) {
  if (c.op().kind != OpKind::kMatmul || weight_noise(c.setup(), c.context().rounding) == 0)
    return std::nullopt;
  const WeightProbe probe(c);
  double ours = 0, theirs = 0, products = 0;
  for (std::size_t t = 0; t < c.tokens(); ++t) {
    for (std::size_t r = 0; r < c.width(); ++r) {
      const double a = probe.output(t, r), b = probe.target(t, r);
      ours += a * a, theirs += b * b, products += a * b;
    }
  }
  if (!(ours > 0) || !(theirs > 0)) return std::nullopt;
  // Errors that follow the original or the encoded weights make the first or the second longer, each by half
  // of this.
  const double noise = std::max(2 - 2 * products / std::sqrt(ours * theirs), 0.0);
  const double scale = std::sqrt(ours / theirs);
  // The errors of a row are alike for all tokens, so that rows are what averages them out.
  const double chance = 6 * std::sqrt(noise / static_cast<double>(c.width()));
  constexpr double kSmallest = 0.01;  // less is nobody's mistake
  if (!(std::abs(scale - 1) > kSmallest + noise + chance)) return std::nullopt;
  return scale;
}

}  // namespace doppler::diagnosis
