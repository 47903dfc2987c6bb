// Decoding of the ternary types.
#include "base/float16.h"
#include "quant/block_decoders.h"

namespace doppler {
namespace {

// A byte holds the fraction 0.t0 t1 t2 t3 t4 in base 3, of 256ths and rounded up: times 3^n, its whole part
// falls off the byte, and times 3 once more the trit n is the whole part. TQ1_0 files may hold any byte.
float trit(std::uint8_t byte, int n) {
  static constexpr std::uint8_t kPowers[] = {1, 3, 9, 27, 81};
  const auto fraction = static_cast<std::uint8_t>(byte * kPowers[n]);
  return static_cast<float>((fraction * 3 >> 8) - 1);
}

void expand_tq1_0(const BlockTQ1_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int n = 0; n < 5; ++n) {
    for (int i = 0; i < 32; ++i) *out++ = d * trit(block.qs[i], n);
  }
  for (int n = 0; n < 5; ++n) {
    for (int i = 32; i < 48; ++i) *out++ = d * trit(block.qs[i], n);
  }
  for (int n = 0; n < 4; ++n) {
    for (int i = 0; i < 4; ++i) *out++ = d * trit(block.qh[i], n);
  }
}

void expand_tq2_0(const BlockTQ2_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int l = 0; l < 32; ++l)
        *out++ = d * static_cast<float>((block.qs[32 * half + l] >> shift & 3) - 1);
    }
  }
}

}  // namespace

void decode_tq1_0(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockTQ1_0, 256, expand_tq1_0>(data, begin, out);
}
void decode_tq2_0(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_blocks<BlockTQ2_0, 256, expand_tq2_0>(data, begin, out);
}

}  // namespace doppler
