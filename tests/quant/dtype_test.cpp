#include "quant/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "quant/tensor.h"

namespace doppler {
namespace {

TEST(DType, EverySafetensorsTypeIsThereWithItsWidth) {
  struct Known {
    const char* name;
    unsigned bits;
  };
  const Known known[] = {{"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},
                         {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"I16", 16},
                         {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
                         {"I32", 32}, {"U32", 32},    {"F32", 32},    {"C64", 64},        {"F64", 64},
                         {"I64", 64}, {"U64", 64}};
  EXPECT_EQ(
      std::ranges::count_if(all_dtypes(), [](const DTypeInfo& info) { return !is_quantised(info.type); }),
      std::ssize(known));
  for (const Known& type : known) {
    const auto dtype = dtype_from_name(type.name);
    ASSERT_TRUE(dtype.has_value()) << type.name;
    EXPECT_EQ(dtype_name(*dtype), type.name);
    EXPECT_EQ(dtype_info(*dtype).block_bits, type.bits) << type.name;
  }
}

TEST(DType, BlockTypesHaveGgmlsBitsPerValue) {
  struct Known {
    const char* name;
    double bits;
  };
  const Known known[] = {{"Q4_0", 4.5},       {"Q4_1", 5},        {"Q5_0", 5.5},     {"Q5_1", 6},
                         {"Q8_0", 8.5},       {"Q2_K", 2.625},    {"Q3_K", 3.4375},  {"Q4_K", 4.5},
                         {"Q5_K", 5.5},       {"Q6_K", 6.5625},   {"IQ1_S", 1.5625}, {"IQ1_M", 1.75},
                         {"IQ2_XXS", 2.0625}, {"IQ2_XS", 2.3125}, {"IQ2_S", 2.5625}, {"IQ3_XXS", 3.0625},
                         {"IQ3_S", 3.4375},   {"IQ4_NL", 4.5},    {"IQ4_XS", 4.25},  {"TQ1_0", 1.6875},
                         {"TQ2_0", 2.0625},   {"MXFP4", 4.25}};
  EXPECT_EQ(
      std::ranges::count_if(all_dtypes(), [](const DTypeInfo& info) { return is_quantised(info.type); }),
      std::ssize(known));
  for (const Known& type : known) {
    const auto dtype = dtype_from_name(type.name);
    ASSERT_TRUE(dtype.has_value()) << type.name;
    const DTypeInfo& info = dtype_info(*dtype);
    EXPECT_EQ(1.0 * info.block_bits / info.block_values, type.bits) << type.name;
    EXPECT_TRUE(info.computable) << type.name;
  }
}

TEST(DType, NamesAreUniqueAndExact) {
  std::set<std::string_view> names;
  for (const DTypeInfo& info : all_dtypes()) EXPECT_TRUE(names.insert(info.name).second) << info.name;
  for (const char* wrong : {"", "f32", "F32 ", "FP16", "F8", "q4_0", "Q4_K_M"})
    EXPECT_FALSE(dtype_from_name(wrong).has_value()) << wrong;
}

TEST(Tensor, SizesAreCheckedArithmetic) {
  EXPECT_EQ(byte_size(DType::kBF16, {1152, 1024}), 2359296u);
  EXPECT_EQ(byte_size(DType::kF32, {}), 4u) << "a scalar";
  EXPECT_EQ(byte_size(DType::kF32, {3, 0}), 0u);
  EXPECT_EQ(byte_size(DType::kF4E2M1, {3, 4}), 6u);
  EXPECT_EQ(byte_size(DType::kF6E2M3, {4}), 3u);
  EXPECT_EQ(byte_size(DType::kF4E2M1, {3}), std::nullopt) << "ends inside a byte";
  EXPECT_EQ(byte_size(DType::kF6E3M2, {2}), std::nullopt) << "ends inside a byte";
  EXPECT_EQ(byte_size(DType::kF64, {1ull << 61}), std::nullopt) << "overflows";
  EXPECT_EQ(byte_size(DType::kU8, {1ull << 32, 1ull << 32}), std::nullopt) << "overflows";
  EXPECT_EQ(byte_size(DType::kU8, {1ull << 32, 1ull << 32, 0}), 0u) << "empty, whatever the rest says";
  EXPECT_EQ(byte_size(DType::kU8, {UINT64_MAX}), UINT64_MAX);
  EXPECT_EQ(byte_size(DType::kF4E2M1, {UINT64_MAX - 1}), UINT64_MAX / 2);
  EXPECT_EQ(byte_size(DType::kQ4_0, {3, 64}), 108u);
  EXPECT_EQ(byte_size(DType::kQ4_0, {2, 16}), std::nullopt) << "rows end inside a block";
  EXPECT_EQ(byte_size(DType::kQ6_K, {}), std::nullopt) << "a scalar is no block";
  EXPECT_EQ(byte_size(DType::kQ8_0, {UINT64_MAX - 31}), std::nullopt) << "overflows";
  EXPECT_EQ(element_count({1ull << 32, 1ull << 31}), 1ull << 63);
}

TEST(Tensor, ShapesRead) {
  EXPECT_EQ(describe_shape({1152, 1024}), "1152 x 1024");
  EXPECT_EQ(describe_shape({7}), "7");
  EXPECT_EQ(describe_shape({}), "scalar");
}

}  // namespace
}  // namespace doppler
