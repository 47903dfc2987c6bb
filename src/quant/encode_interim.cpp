// Until every encoder is there: nearest rounding for the types that measuring needs first.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "quant/encode.h"

namespace doppler {
namespace {

void put_half(std::byte* out, float value) {
  const std::uint16_t half = f32_to_f16(value);
  std::memcpy(out, &half, 2);
}

float extreme(const float* v, std::size_t n) {
  float best = 0;
  for (std::size_t i = 0; i < n; ++i) best = std::fabs(v[i]) > std::fabs(best) ? v[i] : best;
  return best;
}

int quantum(float value, float inverse, int low, int high) {
  return std::clamp(static_cast<int>(std::lround(value * inverse)), low, high);
}

void q4_0(const float* v, std::byte* out) {
  const float d = extreme(v, 32) / -8, inverse = d == 0 ? 0 : 1 / d;
  put_half(out, d);
  for (int i = 0; i < 16; ++i) {
    const int lo = quantum(v[i], inverse, -8, 7) + 8, hi = quantum(v[i + 16], inverse, -8, 7) + 8;
    out[2 + i] = static_cast<std::byte>(lo | hi << 4);
  }
}

void q8_0(const float* v, std::byte* out) {
  const float d = std::fabs(extreme(v, 32)) / 127, inverse = d == 0 ? 0 : 1 / d;
  put_half(out, d);
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<std::byte>(quantum(v[i], inverse, -127, 127));
}

void q6_k(const float* v, std::byte* out) {
  float scales[16], most = 0;
  for (int s = 0; s < 16; ++s) {
    scales[s] = std::fabs(extreme(v + 16 * s, 16)) / 31;
    most = std::max(most, scales[s]);
  }
  const float d = most / 127;
  int quanta[256];
  std::fill(out, out + 208, std::byte{0});
  for (int s = 0; s < 16; ++s) {
    const int step = d == 0 ? 0 : quantum(scales[s], 1 / d, 0, 127);
    out[192 + s] = static_cast<std::byte>(step);
    const float scale = d * static_cast<float>(step), inverse = scale == 0 ? 0 : 1 / scale;
    for (int i = 16 * s; i < 16 * s + 16; ++i) quanta[i] = quantum(v[i], inverse, -32, 31) + 32;
  }
  put_half(out + 208, d);
  for (int h = 0; h < 2; ++h) {
    for (int l = 0; l < 32; ++l) {
      const int* q = quanta + 128 * h + l;
      out[64 * h + l] = static_cast<std::byte>((q[0] & 15) | (q[64] & 15) << 4);
      out[64 * h + l + 32] = static_cast<std::byte>((q[32] & 15) | (q[96] & 15) << 4);
      out[128 + 32 * h + l] =
          static_cast<std::byte>(q[0] >> 4 | (q[32] >> 4) << 2 | (q[64] >> 4) << 4 | (q[96] >> 4) << 6);
    }
  }
}

}  // namespace

bool can_encode(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || type == DType::kQ4_0 ||
         type == DType::kQ8_0 || type == DType::kQ6_K;
}

Status encode(DType type, std::span<const float> values, std::span<std::byte> out, EncodeSearch) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kF32) std::memcpy(out.data() + 4 * i, &values[i], 4);
    if (type == DType::kF16) put_half(out.data() + 2 * i, values[i]);
    if (type == DType::kBF16) {
      const std::uint16_t bits = f32_to_bf16(values[i]);
      std::memcpy(out.data() + 2 * i, &bits, 2);
    }
    if (type == DType::kQ4_0 && i % 32 == 0) q4_0(&values[i], out.data() + i / 32 * 18);
    if (type == DType::kQ8_0 && i % 32 == 0) q8_0(&values[i], out.data() + i / 32 * 34);
    if (type == DType::kQ6_K && i % 256 == 0) q6_k(&values[i], out.data() + i / 256 * 210);
  }
  return {};
}

}  // namespace doppler
