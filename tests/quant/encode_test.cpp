#include "quant/encode.h"

#include <cmath>
#include <limits>
#include <random>

#include "quant/blocks.h"
#include "quant/error.h"
#include "quant/tensor.h"
#include "testing.h"

namespace doppler {
namespace {

constexpr EncodeSearch kSearches[] = {EncodeSearch::kBest, EncodeSearch::kNearest};

Result<std::vector<float>> round_trip(DType dtype, std::span<const float> values, EncodeSearch search) {
  std::vector<std::byte> bytes(*byte_size(dtype, {values.size()}));
  DOPPLER_TRY(encode(dtype, values, bytes, search));
  std::vector<float> decoded(values.size());
  DOPPLER_TRY(decode_f32({"row", dtype, {values.size()}, bytes}, 0, decoded));
  return decoded;
}

// Gaussian numbers, the same on every machine.
std::vector<float> gaussian(std::size_t count, float deviation, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = -6;  // of twelve uniform numbers: variance 1
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    value = static_cast<float>(sum) * deviation;
  }
  return values;
}

double relative_rms(std::span<const float> values, std::span<const float> decoded) {
  EncodingErrorSum sum;
  sum.add_row(0, values, decoded);
  return sum.get().relative_rms;
}

std::vector<DType> encodable() {
  std::vector<DType> types;
  for (const DTypeInfo& info : all_dtypes()) {
    if (can_encode(info.type)) types.push_back(info.type);
  }
  return types;
}

constexpr float kHalf = 65504;  // the largest half
struct Bound {
  const char* name;
  double best, nearest;  // relative error of Gaussian rows; measured, and a hundredth more
  // The largest magnitude that a block holds whatever else is in it: its scale, mostly a half, times its
  // codes.
  float largest;
};
class Encode : public ::testing::TestWithParam<Bound> {
 protected:
  DType dtype() const { return *dtype_from_name(GetParam().name); }
};

TEST_P(Encode, GaussianRowsStayWithinTheTypesError) {
  const auto values = gaussian(64 * 256, 0.02f);
  ASSERT_OK_AND_ASSIGN(const auto best, round_trip(dtype(), values, EncodeSearch::kBest));
  ASSERT_OK_AND_ASSIGN(const auto nearest, round_trip(dtype(), values, EncodeSearch::kNearest));
  EXPECT_LE(relative_rms(values, best), GetParam().best);
  EXPECT_LE(relative_rms(values, nearest), GetParam().nearest);
  EXPECT_GT(relative_rms(values, nearest), GetParam().nearest * 0.9) << "the bound has become loose";
  EXPECT_GT(relative_rms(values, best), GetParam().best * 0.9) << "the bound has become loose";
}

TEST_P(Encode, TheErrorDoesNotDependOnTheMagnitude) {
  for (const float deviation : {1e-3f, 1.0f, 3e3f}) {
    const auto values = gaussian(16 * 256, deviation);
    ASSERT_OK_AND_ASSIGN(const auto best, round_trip(dtype(), values, EncodeSearch::kBest));
    // Halves for the scales of Q6_K lose bits below 1e-3.
    EXPECT_LE(relative_rms(values, best), GetParam().best * 1.05) << deviation;
  }
}

TEST_P(Encode, ZerosStayZeros) {
  const std::vector<float> zeros(512);
  for (const EncodeSearch search : kSearches) {
    ASSERT_OK_AND_ASSIGN(const auto decoded, round_trip(dtype(), zeros, search));
    EXPECT_EQ(decoded, zeros);
  }
}

TEST_P(Encode, AZeroBlockBesideOthersStaysZero) {
  auto values = gaussian(1024, 1.0f);
  std::fill(values.begin() + 256, values.begin() + 512, 0.0f);
  for (const EncodeSearch search : kSearches) {
    ASSERT_OK_AND_ASSIGN(const auto decoded, round_trip(dtype(), values, search));
    EXPECT_EQ(std::count(decoded.begin() + 256, decoded.begin() + 512, 0.0f), 256);
  }
}

TEST_P(Encode, EqualValuesKeepTheirValue) {
  for (const float value : {0.75f, -0.3f, 1000.0f}) {
    const std::vector<float> values(256, value);
    ASSERT_OK_AND_ASSIGN(const auto decoded, round_trip(dtype(), values, EncodeSearch::kBest));
    // MXFP4 has no scale but powers of two, so only two bits for the value itself.
    const float tolerance = dtype() == DType::kMXFP4 ? 0.2f : 0.01f;
    for (const float got : decoded) ASSERT_NEAR(got, value, std::fabs(value) * tolerance);
  }
}

TEST_P(Encode, AnOutlierIsKeptAndItsNeighboursSurvive) {
  auto values = gaussian(256, 1.0f);
  values[77] = 1000.0f;
  for (const EncodeSearch search : kSearches) {
    ASSERT_OK_AND_ASSIGN(const auto decoded, round_trip(dtype(), values, search));
    EXPECT_NEAR(decoded[77], 1000.0f, 260.0f);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_LT(std::fabs(decoded[i] - values[i]), 260.0f) << i;
  }
}

TEST_P(Encode, TheLargestValuesNeverBecomeInfinite) {
  const float limit = GetParam().largest;
  std::vector<float> values = gaussian(512, limit / 10);
  values[3] = limit;
  values[40] = -limit;
  std::fill(values.begin() + 256, values.end(), -limit);
  for (const EncodeSearch search : kSearches) {
    ASSERT_OK_AND_ASSIGN(const auto decoded, round_trip(dtype(), values, search));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << i;
      EXPECT_LE(std::fabs(decoded[i] - values[i]), 0.4f * limit)
          << i << ": " << values[i] << ", " << decoded[i];
    }
    values[300] = std::nextafter(limit, HUGE_VALF);
    const auto refused = round_trip(dtype(), values, search);
    EXPECT_ERROR(refused, GetParam().name, std::isfinite(values[300]) ? "too large" : "no number");
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
    values[300] = -limit;
  }
}

TEST_P(Encode, TinyValuesShrinkOrVanishButNeverGrow) {
  for (const float size : {1e-45f, 1e-38f, 1e-20f, 1e-9f, 2e-8f, 6e-8f, 1e-7f, 1e-6f}) {
    const auto values = gaussian(512, size);
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    for (const EncodeSearch search : kSearches) {
      ASSERT_OK_AND_ASSIGN(const auto decoded, round_trip(dtype(), values, search));
      for (const float got : decoded) ASSERT_LE(std::fabs(got), 2 * largest) << size;
      if (search == EncodeSearch::kNearest) continue;
      // No worse than zeros; a little for the IQ4 types, whose weighting prefers large values.
      EXPECT_LE(relative_rms(values, decoded), 1.05) << size;
    }
  }
}

TEST_P(Encode, WhatIsNoNumberIsAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -HUGE_VALF}) {
    auto values = gaussian(512, 1.0f);
    values[511] = bad;
    for (const EncodeSearch search : kSearches) {
      const auto refused = round_trip(dtype(), values, search);
      EXPECT_ERROR(refused, "no number", "Check the model's weights");
      EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
    }
  }
}

TEST_P(Encode, SizesMustBeWholeBlocks) {
  const DTypeInfo& info = dtype_info(dtype());
  const std::vector<float> values(2 * info.block_values + 1);
  std::vector<std::byte> out(2 * info.block_bits / 8 + 1);
  const auto try_sizes = [&](std::size_t count, std::size_t bytes) {
    return encode(dtype(), std::span(values).first(count), std::span(out).first(bytes));
  };
  ASSERT_OK(try_sizes(2 * info.block_values, 2 * info.block_bits / 8));
  ASSERT_OK(try_sizes(0, 0));
  EXPECT_ERROR(try_sizes(2 * info.block_values, info.block_bits / 8), GetParam().name, "whole blocks");
  EXPECT_ERROR(try_sizes(info.block_values, 2 * info.block_bits / 8), GetParam().name, "whole blocks");
  EXPECT_ERROR(try_sizes(2 * info.block_values, 2 * info.block_bits / 8 + 1), GetParam().name,
               "whole blocks");
  if (info.block_values > 1) {
    EXPECT_ERROR(try_sizes(2 * info.block_values + 1, 2 * info.block_bits / 8), GetParam().name,
                 "whole blocks");
  }
}

TEST_P(Encode, EncodingTwiceGivesTheSameBytes) {
  const auto values = gaussian(1024, 0.1f);
  std::vector<std::byte> first(*byte_size(dtype(), {1024})), second(first.size());
  ASSERT_OK(encode(dtype(), values, first));
  ASSERT_OK(encode(dtype(), values, second));
  EXPECT_EQ(first, second);
}

INSTANTIATE_TEST_SUITE_P(
    Types, Encode,
    ::testing::Values(Bound{"Q4_0", 0.0816, 0.0867, kHalf * 7}, Bound{"Q4_1", 0.0698, 0.0789, kHalf},
                      Bound{"Q5_0", 0.0403, 0.0431, kHalf * 15}, Bound{"Q5_1", 0.0339, 0.0382, kHalf},
                      Bound{"Q8_0", 0.00472, 0.00539, kHalf * 127}, Bound{"Q2_K", 0.283, 0.332, kHalf * 15},
                      Bound{"Q3_K", 0.148, 0.1564, kHalf * 31 * 3}, Bound{"Q4_K", 0.0705, 0.0791, kHalf * 63},
                      Bound{"Q5_K", 0.0347, 0.0385, kHalf * 63},
                      Bound{"Q6_K", 0.0168, 0.0190, kHalf * 127 * 31},
                      Bound{"IQ4_NL", 0.0754, 0.0807, kHalf * 113},
                      Bound{"IQ4_XS", 0.0754, 0.0809, kHalf * 31 * 113},
                      Bound{"MXFP4", 0.1126, 0.1152, 0x1.8p127f}),
    [](const auto& type) { return std::string(type.param.name); });

TEST(EncodePlain, EveryTypeOfTheTableIsTestedAbove) {
  EXPECT_EQ(encodable().size(), 13u + 3u) << "thirteen block types, F32, F16 and BF16";
  EXPECT_FALSE(can_encode(DType::kIQ2_XS));
  std::byte out[50];
  const std::vector<float> values(256);
  EXPECT_ERROR(encode(DType::kIQ1_S, values, out), "IQ1_S", "Choose Q8_0");
  EXPECT_EQ(encode(DType::kIQ1_S, values, out).error().code, ErrorCode::kUnsupported);
}

TEST(EncodePlain, FloatsRoundToNearestEven) {
  const std::vector<float> values = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1.01p-8f, -0.0f, 0x1p-149f};
  ASSERT_OK_AND_ASSIGN(const auto bf16, round_trip(DType::kBF16, values, EncodeSearch::kBest));
  EXPECT_EQ(bf16, (std::vector<float>{1.0f, 1.0f + 0x1p-6f, 1.0f + 0x1p-7f, -0.0f, 0.0f}));
  const std::vector<float> finer = {1.0f + 0x1p-11f, 1.0f + 0x3p-11f, 65504.0f, 0x1p-25f, 0x1.8p-24f};
  ASSERT_OK_AND_ASSIGN(const auto f16, round_trip(DType::kF16, finer, EncodeSearch::kBest));
  EXPECT_EQ(f16, (std::vector<float>{1.0f, 1.0f + 0x1p-9f, 65504.0f, 0.0f, 0x1p-23f}));
  EXPECT_ERROR(round_trip(DType::kF16, std::vector<float>{65536.0f}, EncodeSearch::kBest), "too large",
               "F16");
  const auto any = gaussian(100, 1.0f);
  ASSERT_OK_AND_ASSIGN(const auto f32, round_trip(DType::kF32, any, EncodeSearch::kBest));
  EXPECT_EQ(f32, any);
}

// What a block holds already is encoded without loss, so that converting twice costs nothing.
TEST(EncodeAgain, DecodedBlocksKeepTheirValues) {
  const auto values = gaussian(64 * 256, 0.02f);
  for (const char* name : {"Q4_0", "Q5_0", "Q8_0", "MXFP4", "F16", "BF16", "F32"}) {
    const DType dtype = *dtype_from_name(name);
    for (const EncodeSearch search : kSearches) {
      ASSERT_OK_AND_ASSIGN(const auto once, round_trip(dtype, values, search));
      ASSERT_OK_AND_ASSIGN(const auto twice, round_trip(dtype, once, search));
      EXPECT_EQ(once, twice) << name << (search == EncodeSearch::kBest ? ", best" : ", nearest");
    }
  }
}

// The others lose at most a small part of what the first encoding lost.
TEST(EncodeAgain, TheSearchFindsMostBlocksOfTheOtherTypesAgain) {
  const auto values = gaussian(64 * 256, 0.02f);
  for (const char* name : {"Q4_1", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    const DType dtype = *dtype_from_name(name);
    ASSERT_OK_AND_ASSIGN(const auto once, round_trip(dtype, values, EncodeSearch::kBest));
    ASSERT_OK_AND_ASSIGN(const auto twice, round_trip(dtype, once, EncodeSearch::kBest));
    EXPECT_LE(relative_rms(once, twice), 0.1 * relative_rms(values, once)) << name;
  }
}

TEST(EncodePlain, Q8_0NeverUsesTheCodeThatHasNoNegative) {
  auto values = gaussian(64 * 32, 1.0f);
  std::vector<BlockQ8_0> blocks(64);
  for (const EncodeSearch search : kSearches) {
    ASSERT_OK(encode(DType::kQ8_0, values, std::as_writable_bytes(std::span(blocks)), search));
    for (const BlockQ8_0& block : blocks) {
      for (const std::int8_t code : block.qs) ASSERT_NE(code, -128);
    }
  }
}

TEST(EncodingErrorSum, NamesTheWorstRowAndTheLargestError) {
  const std::vector<float> values = {3, 4}, exact = {3, 4}, near = {3, 5}, far = {0, 4};
  EncodingErrorSum sum;
  EXPECT_EQ(sum.get().relative_rms, 0.0);
  sum.add_row(7, values, exact);
  sum.add_row(8, values, far);
  sum.add_row(9, values, near);
  sum.add_row(10, values, far);
  const EncodingError error = sum.get();
  EXPECT_DOUBLE_EQ(error.relative_rms, std::sqrt(19.0 / 100.0));
  EXPECT_EQ(error.max_abs, 3.0);
  EXPECT_EQ(error.worst_row, 8u) << "the first of two equals";
}

TEST(EncodingErrorSum, PartsMergeInAnyOrder) {
  const std::vector<float> values = {3, 4}, near = {3, 5}, far = {0, 4};
  EncodingErrorSum first, second, forward, backward, empty;
  first.add_row(0, values, near);
  first.add_row(1, values, far);
  second.add_row(2, values, far);
  for (const auto* part : {&first, &empty, &second}) forward.merge(*part);
  for (const auto* part : {&second, &first, &empty}) backward.merge(*part);
  EXPECT_EQ(forward.get().worst_row, 1u);
  EXPECT_EQ(backward.get().worst_row, 1u);
  EXPECT_DOUBLE_EQ(forward.get().relative_rms, backward.get().relative_rms);
  EXPECT_EQ(forward.get().max_abs, 3.0);
}

TEST(EncodingErrorSum, ErrorOnARowOfZerosIsInfinite) {
  EncodingErrorSum sum;
  const std::vector<float> zeros(2), wrong = {0, 1};
  sum.add_row(0, zeros, zeros);
  EXPECT_EQ(sum.get().relative_rms, 0.0);
  sum.add_row(1, zeros, wrong);
  EXPECT_TRUE(std::isinf(sum.get().relative_rms));
  EXPECT_EQ(sum.get().worst_row, 1u);
}

}  // namespace
}  // namespace doppler
