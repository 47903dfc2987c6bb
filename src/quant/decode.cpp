// Decoding stored elements to float32 and to integers, a plain loop per type that compilers turn into vector
// code.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "base/float16.h"
#include "quant/block_decoders.h"
#include "quant/small_float.h"
#include "quant/tensor.h"

namespace doppler {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian and read in place");

// memcpy per value: the data may lie at any address, and compilers reduce it to one load.
template <typename Stored, typename Convert>
void decode_values(const std::byte* data, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, data + i * sizeof(Stored), sizeof(Stored));
    out[i] = convert(value);
  }
}

template <typename Stored>
void decode_cast(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_values<Stored>(data + begin * sizeof(Stored), out,
                        [](Stored value) { return static_cast<float>(value); });
}

void decode_f32_copy(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  if (!out.empty()) std::memcpy(out.data(), data + begin * sizeof(float), out.size_bytes());
}

void decode_f16(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_values<std::uint16_t>(data + begin * 2, out, [](std::uint16_t half) {
    // f16_to_f32 without branches, so that the loop vectorises: the half's bits, moved to float32's places,
    // are the value times 2^-112; the product with 2^112 is exact, subnormals included. Inf and NaN need
    // their exponent back.
    const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const std::uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  });
}

void decode_bf16(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_values<std::uint16_t>(data + begin * 2, out, bf16_to_f32);
}

template <SmallFloat kFormat>
void decode_byte_float(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  static constexpr std::array<float, 256> kValues = kFormat.table();
  decode_values<std::uint8_t>(data + begin, out, [](std::uint8_t code) { return kValues[code]; });
}

void decode_scales(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  decode_values<std::uint8_t>(data + begin, out, [](std::uint8_t code) { return decode_e8m0(code); });
}

// Two values a byte, the first in the low half, as PyTorch's float4_e2m1fn_x2 packs them.
void decode_f4(const std::byte* data, std::uint64_t begin, std::span<float> out) {
  static constexpr std::array<float, 256> kValues = kE2M1.table();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto pair = static_cast<unsigned>(data[(begin + i) / 2]);
    out[i] = kValues[(begin + i) % 2 == 0 ? pair & 0xfu : pair >> 4];
  }
}

struct DecoderEntry {
  DType dtype;
  Decoder decode;
};

constexpr std::array kDecoders = {
    DecoderEntry{DType::kF32, decode_f32_copy},
    DecoderEntry{DType::kF16, decode_f16},
    DecoderEntry{DType::kBF16, decode_bf16},
    DecoderEntry{DType::kF64, decode_cast<double>},
    DecoderEntry{DType::kF8E4M3, decode_byte_float<kE4M3>},
    DecoderEntry{DType::kF8E5M2, decode_byte_float<kE5M2>},
    DecoderEntry{DType::kF8E8M0, decode_scales},
    DecoderEntry{DType::kF4E2M1, decode_f4},
    DecoderEntry{DType::kI8, decode_cast<std::int8_t>},
    DecoderEntry{DType::kI16, decode_cast<std::int16_t>},
    DecoderEntry{DType::kI32, decode_cast<std::int32_t>},
    DecoderEntry{DType::kU8, decode_cast<std::uint8_t>},
    DecoderEntry{DType::kU16, decode_cast<std::uint16_t>},
    DecoderEntry{DType::kU32, decode_cast<std::uint32_t>},
    DecoderEntry{DType::kF8E4M3Fnuz, decode_byte_float<kE4M3Fnuz>},
    DecoderEntry{DType::kF8E5M2Fnuz, decode_byte_float<kE5M2Fnuz>},
    DecoderEntry{DType::kQ4_0, decode_q4_0},
    DecoderEntry{DType::kQ4_1, decode_q4_1},
    DecoderEntry{DType::kQ5_0, decode_q5_0},
    DecoderEntry{DType::kQ5_1, decode_q5_1},
    DecoderEntry{DType::kQ8_0, decode_q8_0},
    DecoderEntry{DType::kQ2_K, decode_q2_k},
    DecoderEntry{DType::kQ3_K, decode_q3_k},
    DecoderEntry{DType::kQ4_K, decode_q4_k},
    DecoderEntry{DType::kQ5_K, decode_q5_k},
    DecoderEntry{DType::kQ6_K, decode_q6_k},
    DecoderEntry{DType::kIQ1_S, decode_iq1_s},
    DecoderEntry{DType::kIQ1_M, decode_iq1_m},
    DecoderEntry{DType::kIQ2_XXS, decode_iq2_xxs},
    DecoderEntry{DType::kIQ2_XS, decode_iq2_xs},
    DecoderEntry{DType::kIQ2_S, decode_iq2_s},
    DecoderEntry{DType::kIQ3_XXS, decode_iq3_xxs},
    DecoderEntry{DType::kIQ3_S, decode_iq3_s},
    DecoderEntry{DType::kIQ4_NL, decode_iq4_nl},
    DecoderEntry{DType::kIQ4_XS, decode_iq4_xs},
    DecoderEntry{DType::kTQ1_0, decode_tq1_0},
    DecoderEntry{DType::kTQ2_0, decode_tq2_0},
    DecoderEntry{DType::kMXFP4, decode_mxfp4},
};

// The elements that the view really holds, so that a view made by hand cannot be read past its end.
std::uint64_t held_elements(const TensorView& tensor) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const std::uint64_t blocks = tensor.bytes() * 8 / info.block_bits;
  return std::min(element_count(tensor.shape).value_or(0), blocks * info.block_values);
}

// Blocks are read in pieces of about so many bytes.
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

Status decode_from_source(const TensorView& tensor, Decoder decode, std::uint64_t begin,
                          std::span<float> out) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  // The fewest blocks that are whole bytes.
  const std::uint64_t blocks = info.block_bits % 8 == 0 ? 1 : 8;
  const std::uint64_t values = blocks * info.block_values, bytes = blocks * info.block_bits / 8;
  const std::uint64_t most = std::max<std::uint64_t>(kPieceBytes / bytes, 1) * values;
  std::vector<std::byte> piece;
  while (!out.empty()) {
    const std::uint64_t from = begin / values * bytes, skipped = begin % values;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), most - skipped));
    const std::uint64_t to = (skipped + count + values - 1) / values * bytes;
    piece.resize(static_cast<std::size_t>(std::min(to, tensor.bytes() - from)));
    DOPPLER_TRY(read_bytes(tensor, from, piece));
    decode(piece.data(), skipped, out.first(count));
    out = out.subspan(count);
    begin += count;
  }
  return {};
}

}  // namespace

Status decode_f32(const TensorView& tensor, std::uint64_t begin, std::span<float> out) {
  const auto entry = std::ranges::find(kDecoders, tensor.dtype, &DecoderEntry::dtype);
  if (entry == kDecoders.end()) {
    return fail(
        ErrorCode::kUnsupported,
        "The tensor {} has the type {}, which Doppler does not read as numbers. Convert it to BF16 or F32.",
        tensor.name, dtype_name(tensor.dtype));
  }
  if (!(Checked(begin) + Checked(out.size())).at_most(held_elements(tensor))) {
    return fail(ErrorCode::kMismatch, "The tensor {} ({}) has no elements {} to {}. Ask for elements it has.",
                tensor.name, describe_shape(tensor.shape), begin, begin + out.size());
  }
  if (tensor.source != nullptr) return decode_from_source(tensor, entry->decode, begin, out);
  entry->decode(tensor.data.data(), begin, out);
  return {};
}

}  // namespace doppler
