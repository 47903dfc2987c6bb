#include "model/alibi.h"

#include <bit>
#include <cmath>

#include "base/float16.h"

namespace doppler {
namespace {

double as_bf16(double x) {
  return bf16_to_f32(f32_to_bf16(static_cast<float>(x)));
}

}  // namespace

std::vector<double> alibi_slopes(const AlibiSpec& alibi, std::uint32_t heads) {
  const double whole = std::bit_floor(heads);
  std::vector<double> slopes;
  for (std::uint32_t head = 0; head < heads; ++head) {
    const double power = head < whole ? head + 1 : head - whole + 0.5;
    const double slope = std::exp2(-alibi.max_bias * power / whole);
    slopes.push_back(alibi.rounded ? as_bf16(slope) : slope);
  }
  return slopes;
}

double alibi_bias(const AlibiSpec& alibi, double slope, std::uint64_t key, std::uint64_t position) {
  if (alibi.rounded) return alibi.scale * as_bf16(slope * as_bf16(static_cast<double>(key)));
  return alibi.scale * slope * (static_cast<double>(key) - static_cast<double>(position));
}

}  // namespace doppler
