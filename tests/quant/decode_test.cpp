#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "quant/small_float.h"
#include "quant/tensor.h"
#include "testing.h"

namespace doppler {
namespace {

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorView view_of(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {"weights", dtype, std::move(shape), bytes};
}

template <typename T>
std::vector<float> decoded_values(DType dtype, const std::vector<T>& values) {
  // One byte in, so that no load is aligned.
  std::vector<std::byte> bytes = bytes_of(values);
  bytes.insert(bytes.begin(), std::byte{0x5a});
  const auto data = std::span<const std::byte>(bytes).subspan(1);
  std::vector<float> out(data.size() * 8 / dtype_info(dtype).block_bits);
  const Status status = decode_f32(view_of(dtype, {out.size()}, data), 0, out);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return out;
}

std::vector<std::uint16_t> all_16_bit_codes() {
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  return codes;
}

std::vector<std::uint8_t> all_8_bit_codes() {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  return codes;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(DecodeF32, EveryHalfAndBfloatLikeTheScalarFunctions) {
  const auto codes = all_16_bit_codes();
  const auto halves = decoded_values(DType::kF16, codes), bfloats = decoded_values(DType::kBF16, codes);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_TRUE(same_bits(halves[i], f16_to_f32(codes[i]))) << i;
    EXPECT_TRUE(same_bits(bfloats[i], bf16_to_f32(codes[i]))) << i;
  }
}

// Values from the tables of the OCP specifications.
TEST(DecodeF32, EightBitFloatsAtTheirLandmarks) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto codes = all_8_bit_codes();
  const auto e4m3 = decoded_values(DType::kF8E4M3, codes), e5m2 = decoded_values(DType::kF8E5M2, codes);
  EXPECT_EQ(e4m3[0x01], 0x1p-9f);
  EXPECT_EQ(e4m3[0x07], 0x1.cp-7f);
  EXPECT_EQ(e4m3[0x08], 0x1p-6f);
  EXPECT_EQ(e4m3[0x38], 1.0f);
  EXPECT_EQ(e4m3[0x7e], 448.0f);
  EXPECT_EQ(e4m3[0xfe], -448.0f);
  EXPECT_TRUE(std::isnan(e4m3[0x7f]) && std::isnan(e4m3[0xff]));
  EXPECT_TRUE(same_bits(e4m3[0x80], -0.0f));
  EXPECT_EQ(e5m2[0x01], 0x1p-16f);
  EXPECT_EQ(e5m2[0x04], 0x1p-14f);
  EXPECT_EQ(e5m2[0x3c], 1.0f);
  EXPECT_EQ(e5m2[0x7b], 57344.0f);
  EXPECT_EQ(e5m2[0x7c], inf);
  EXPECT_EQ(e5m2[0xfc], -inf);
  EXPECT_TRUE(std::isnan(e5m2[0x7d]) && std::isnan(e5m2[0xff]));
}

TEST(DecodeF32, E5M2IsTheUpperHalfOfAHalf) {
  const auto e5m2 = decoded_values(DType::kF8E5M2, all_8_bit_codes());
  for (unsigned code = 0; code < 256; ++code) {
    const float half = f16_to_f32(static_cast<std::uint16_t>(code << 8));
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(e5m2[code])) << code;
    } else {
      EXPECT_TRUE(same_bits(e5m2[code], half)) << code;
    }
  }
}

TEST(DecodeF32, FnuzFloatsHaveOneNaNAndHalfTheValue) {
  const auto codes = all_8_bit_codes();
  const auto e4m3 = decoded_values(DType::kF8E4M3, codes),
             e4m3fnuz = decoded_values(DType::kF8E4M3Fnuz, codes);
  const auto e5m2 = decoded_values(DType::kF8E5M2, codes),
             e5m2fnuz = decoded_values(DType::kF8E5M2Fnuz, codes);
  EXPECT_EQ(e4m3fnuz[0x7f], 240.0f);
  EXPECT_EQ(e5m2fnuz[0x7f], 57344.0f);
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(std::isnan(e4m3fnuz[code]), code == 0x80) << code;
    EXPECT_EQ(std::isnan(e5m2fnuz[code]), code == 0x80) << code;
    if (code != 0x80 && !std::isnan(e4m3[code])) {
      EXPECT_EQ(e4m3fnuz[code], e4m3[code] / 2) << code;
    }
    if (code != 0x80 && std::isfinite(e5m2[code])) {
      EXPECT_EQ(e5m2fnuz[code], e5m2[code] / 2) << code;
    }
  }
}

TEST(DecodeF32, ScalesArePowersOfTwo) {
  const auto scales = decoded_values(DType::kF8E8M0, all_8_bit_codes());
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(scales[static_cast<std::size_t>(code)], std::ldexp(1.0f, code - 127)) << code;
  EXPECT_TRUE(std::isnan(scales[255]));
}

TEST(DecodeF32, FourBitFloatsAreTwoAByteLowHalfFirst) {
  const float values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
  const std::vector<std::uint8_t> bytes = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
  const auto all = decoded_values(DType::kF4E2M1, bytes);
  ASSERT_EQ(all.size(), 16u);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_TRUE(same_bits(all[i], values[i])) << i;
  std::vector<float> middle(3);
  ASSERT_OK(decode_f32(view_of(DType::kF4E2M1, {16}, std::as_bytes(std::span(bytes))), 3, middle));
  EXPECT_EQ(middle, (std::vector<float>{1.5, 2, 3}));
}

TEST(DecodeF32, IntegersAndDoublesRoundToTheNearestFloat) {
  EXPECT_EQ(decoded_values<std::int8_t>(DType::kI8, {-128, -1, 127}), (std::vector<float>{-128, -1, 127}));
  EXPECT_EQ(decoded_values<std::uint8_t>(DType::kU8, {0, 255}), (std::vector<float>{0, 255}));
  EXPECT_EQ(decoded_values<std::int16_t>(DType::kI16, {-32768, 32767}), (std::vector<float>{-32768, 32767}));
  EXPECT_EQ(decoded_values<std::uint16_t>(DType::kU16, {65535}), (std::vector<float>{65535}));
  EXPECT_EQ(decoded_values<std::int32_t>(DType::kI32, {-7, 16777217}), (std::vector<float>{-7, 16777216}));
  EXPECT_EQ(decoded_values<std::uint32_t>(DType::kU32, {4294967295u}), (std::vector<float>{4294967296.0f}));
  EXPECT_EQ(decoded_values<double>(DType::kF64, {0.1, -1e300}),
            (std::vector<float>{0.1f, -std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(decoded_values<float>(DType::kF32, {0.1f, -3e38f}), (std::vector<float>{0.1f, -3e38f}));
}

TEST(DecodeF32, DecodesAPartAndNothingBeyondTheEnd) {
  const auto bytes = bytes_of<float>({0, 1, 2, 3, 4, 5});
  const TensorView tensor = view_of(DType::kF32, {2, 3}, bytes);
  std::vector<float> out(2);
  ASSERT_OK(decode_f32(tensor, 3, out));
  EXPECT_EQ(out, (std::vector<float>{3, 4}));
  EXPECT_ERROR(decode_f32(tensor, 5, out), "weights (2 x 3)", "5 to 7");
  EXPECT_ERROR(decode_f32(tensor, UINT64_MAX, out), "weights");
  ASSERT_OK(decode_f32(tensor, 6, {}));
  const TensorView lying = view_of(DType::kF32, {2, 3}, std::span(bytes).first(20));
  EXPECT_ERROR(decode_f32(lying, 4, out), "no elements 4 to 6");
}

TEST(DecodeF32, WhatIsNoModelsNumberIsRefused) {
  const std::vector<std::byte> bytes(24);
  for (const DType dtype :
       {DType::kBool, DType::kC64, DType::kI64, DType::kU64, DType::kF6E2M3, DType::kF6E3M2}) {
    std::vector<float> out(1);
    const Status status =
        decode_f32(view_of(dtype, {bytes.size() * 8 / dtype_info(dtype).block_bits}, bytes), 0, out);
    EXPECT_ERROR(status, "weights", std::string(dtype_name(dtype)).c_str(), "BF16");
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  }
}

TEST(SliceRows, SharesTheBytesOfTheRows) {
  const auto bytes = bytes_of<float>({0, 1, 2, 3, 4, 5});
  const TensorView matrix = view_of(DType::kF32, {3, 2}, bytes);
  ASSERT_OK_AND_ASSIGN(const TensorView rows, slice_rows(matrix, 1, 2, "rows"));
  EXPECT_EQ(rows.name, "rows");
  EXPECT_EQ(rows.shape, (Shape{2, 2}));
  EXPECT_EQ(rows.data.data(), bytes.data() + 8);
  EXPECT_EQ(rows.data.size(), 16u);
  ASSERT_OK_AND_ASSIGN(const TensorView part, slice_rows(view_of(DType::kF32, {6}, bytes), 2, 3, "part"));
  EXPECT_EQ(part.shape, (Shape{3}));
  EXPECT_EQ(part.data.size(), 12u);
  ASSERT_OK_AND_ASSIGN(const TensorView none, slice_rows(matrix, 3, 0, "none"));
  EXPECT_TRUE(none.data.empty());
}

TEST(SliceRows, RowsThatDoNotExistAreAMismatch) {
  const auto bytes = bytes_of<float>({0, 1, 2, 3, 4, 5});
  const TensorView matrix = view_of(DType::kF32, {3, 2}, bytes);
  EXPECT_ERROR(slice_rows(matrix, 2, 2, "x"), "weights (3 x 2)", "2 to 4");
  EXPECT_ERROR(slice_rows(matrix, UINT64_MAX, 2, "x"), "weights");
  EXPECT_ERROR(slice_rows(view_of(DType::kF32, {}, std::span(bytes).first(4)), 0, 1, "x"),
               "weights (scalar)");
  EXPECT_ERROR(slice_rows(view_of(DType::kF32, {}, std::span(bytes).first(4)), 0, 0, "x"),
               "weights (scalar)");
  EXPECT_ERROR(slice_rows(matrix, UINT64_MAX - 1, 3, "x"), "has no rows");
  const std::vector<std::byte> packed(6);
  EXPECT_ERROR(slice_rows(view_of(DType::kF4E2M1, {4, 3}, packed), 1, 2, "x"), "whole bytes", "F4");
  EXPECT_EQ(slice_rows(matrix, 2, 2, "x").error().code, ErrorCode::kMismatch);
}

TEST(Aligned, LooksAtTheAddress) {
  alignas(8) std::byte bytes[16] = {};
  EXPECT_TRUE(aligned(view_of(DType::kF32, {2}, std::span(bytes).subspan(4, 8))));
  EXPECT_FALSE(aligned(view_of(DType::kF64, {1}, std::span(bytes).subspan(4, 8))));
  EXPECT_FALSE(aligned(view_of(DType::kBF16, {1}, std::span(bytes).subspan(1, 2))));
  EXPECT_TRUE(aligned(view_of(DType::kU8, {1}, std::span(bytes).subspan(1, 1))));
  EXPECT_TRUE(aligned(view_of(DType::kF32, {0}, {})));
}

}  // namespace
}  // namespace doppler
