// encode(): the table of encoders, and the checks that all of them rely on.
#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "quant/block_encoders.h"

namespace doppler {
namespace {

void encode_f32(const float* x, std::byte* out, EncodeSearch) {
  std::memcpy(out, x, sizeof(float));
}
void encode_f16(const float* x, std::byte* out, EncodeSearch) {
  const std::uint16_t half = f32_to_f16(*x);
  std::memcpy(out, &half, sizeof(half));
}
void encode_bf16(const float* x, std::byte* out, EncodeSearch) {
  const std::uint16_t bits = f32_to_bf16(*x);
  std::memcpy(out, &bits, sizeof(bits));
}

struct Encoder {
  DType dtype;
  BlockEncoder encode;
  float limit;  // the largest magnitude that every block of the type can hold, whatever else is in it
};

constexpr float kHalf = 65504.0f;  // the largest
// The limits of the block types: the largest half times the smaller of what it may be multiplied with on
// either side of zero (levels and integer scales). An offset or minimum limits the others. MXFP4 ends at 6 *
// 2^125.
constexpr std::array kEncoders = {
    Encoder{DType::kF32, encode_f32, 0x1.fffffep127f},
    Encoder{DType::kF16, encode_f16, kHalf},
    Encoder{DType::kBF16, encode_bf16, 0x1.fep127f},
    Encoder{DType::kQ4_0, encode_q4_0, kHalf * 7},
    Encoder{DType::kQ4_1, encode_q4_1, kHalf},
    Encoder{DType::kQ5_0, encode_q5_0, kHalf * 15},
    Encoder{DType::kQ5_1, encode_q5_1, kHalf},
    Encoder{DType::kQ8_0, encode_q8_0, kHalf * 127},
    Encoder{DType::kQ2_K, encode_q2_k, kHalf * 15},
    Encoder{DType::kQ3_K, encode_q3_k, kHalf * 31 * 3},
    Encoder{DType::kQ4_K, encode_q4_k, kHalf * 63},
    Encoder{DType::kQ5_K, encode_q5_k, kHalf * 63},
    Encoder{DType::kQ6_K, encode_q6_k, kHalf * 127 * 31},
    Encoder{DType::kIQ4_NL, encode_iq4_nl, kHalf * 113},
    Encoder{DType::kIQ4_XS, encode_iq4_xs, kHalf * 31 * 113},
    Encoder{DType::kMXFP4, encode_mxfp4, 0x1.8p127f},
};

const Encoder* find_encoder(DType type) {
  const auto found = std::ranges::find(kEncoders, type, &Encoder::dtype);
  return found == kEncoders.end() ? nullptr : &*found;
}

}  // namespace

bool can_encode(DType type) {
  return find_encoder(type) != nullptr;
}

Status encode(DType type, std::span<const float> values, std::span<std::byte> out, EncodeSearch search) {
  const Encoder* encoder = find_encoder(type);
  const DTypeInfo& info = dtype_info(type);
  if (encoder == nullptr) {
    return fail(ErrorCode::kUnsupported, "Doppler does not write the type {}. Choose Q8_0, Q4_K or another.",
                info.name);
  }
  const std::size_t bytes = info.block_bits / 8;
  if (values.size() % info.block_values != 0 || out.size() % bytes != 0 ||
      values.size() / info.block_values != out.size() / bytes) {
    return fail(ErrorCode::kMismatch,
                "{} values are not {} bytes of {}, which stores {} values in {} bytes. Give whole blocks.",
                values.size(), out.size(), info.name, info.block_values, bytes);
  }
  const auto bad =
      std::ranges::find_if(values, [&](float value) { return !(std::fabs(value) <= encoder->limit); });
  if (bad != values.end()) {
    return fail(ErrorCode::kCorrupt, "The value {} is {} for the type {}. {}", *bad,
                std::isfinite(*bad) ? "too large" : "no number", info.name,
                std::isfinite(*bad) ? "Store the tensor as BF16 or F32." : "Check the model's weights.");
  }
  for (std::size_t block = 0; block * bytes < out.size(); ++block)
    encoder->encode(values.data() + block * info.block_values, out.data() + block * bytes, search);
  return {};
}

}  // namespace doppler
