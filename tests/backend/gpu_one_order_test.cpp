// One order of sums: a product in tiles of many tokens leaves the bits that columns of a few leave, which are
// those of single tokens (gpu_tune_test.cpp), whatever the cut.
#include <utility>

#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/shader_values.h"
#include "changed_shaders.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

class OneOrder : public BatchKernels {
 protected:
  static constexpr std::uint32_t kTokens = 7, kRoom = 64, kRows = 70;

  // `width` values of a row: activations in 8-bit blocks, or floats.
  void make(StoredAs stored, std::uint32_t width, bool eight_bits) {
    const Matrix w(stored.type, kRows, width);
    ThreadPool pool(1);
    const TensorView* const views[] = {&w.view};
    auto made = upload_matrix(*device_, pool, views, device_->limits().binding_bytes, stored.format());
    ASSERT_TRUE(made.has_value());
    matrix_ = std::move(*made);
    eight_bits_ = eight_bits;
    buffers_ = {{"step", upload(std::vector<std::uint32_t>{kTokens})}, {"codes", matrix_.shards[0].codes}};
    if (matrix_.format.has_scales()) buffers_.push_back({"scales", matrix_.shards[0].scales});
    values_ = {{"COUNT", 0}, {"BIAS", 0}, {"OUT_STRIDE", kRows}, {"OUT_OFFSET", 0}};
    const std::size_t padded = std::size_t{matrix_.units} * kUnitValues;
    if (!eight_bits) {
      values_.merge(ShaderValues{{"X_VEC", 1}, {"WIDTH", width}, {"X_STRIDE", width}, {"X_OFFSET", 0}});
      buffers_.push_back({"x", upload(random_floats(std::size_t{kRoom} * width, 1, 9))});
      return;
    }
    std::vector<std::uint32_t> codes;
    std::vector<float> scales;
    const std::vector<float> numbers = random_floats(kRoom * padded / 32, 1, 5);
    for (std::size_t block = 0; block < numbers.size(); ++block) {
      int sum = 0;
      for (std::size_t word = 0; word < 8; ++word) {
        codes.push_back(0);
        for (std::size_t b = 0; b < 4; ++b) {
          const int code = static_cast<int>(((block * 32 + word * 4 + b) * 2654435761u >> 8) % 255) - 127;
          codes.back() |= static_cast<std::uint32_t>(code & 255) << (8 * b);
          sum += code;
        }
      }
      scales.push_back(std::abs(numbers[block]) / 127);
      scales.push_back(scales.back() * static_cast<float>(sum));
    }
    buffers_.push_back({"x8", upload(codes)});
    buffers_.push_back({"xs", upload(scales)});
  }

  std::vector<float> columns() {
    const auto shape = choose_columns_shape(device_->limits(), matrix_.format, kRows, matrix_.units, false,
                                            device_->adapter().software());
    EXPECT_TRUE(shape.has_value());
    ShaderValues values = values_;
    values.merge(ShaderValues{{"R", shape->rows},
                              {"LANES", shape->lanes},
                              {"UNITS", shape->units},
                              {"SETS", shape->sets},
                              {"COLUMNS", 4},
                              {"ROWS", kRows},
                              {"EPI", 0},
                              {"EMIT_ACT", 0},
                              {"ACT", eight_bits_ ? 1 : 0}});
    add_format(values, matrix_);
    const Buffer out = guarded(kTokens * kRows);
    std::vector<Bound> buffers = buffers_;
    buffers.push_back(within("out", out, kTokens * kRows));
    run("gemv_columns.wgsl", values, buffers,
        {ceil_div(kRows, shape->rows * shape->sets), ceil_div(kTokens, 4), 1});
    return read(out, kTokens * kRows);
  }

  std::vector<float> tiles(const GemmShape& shape) {
    constexpr std::uint32_t kFloats = kTokens * kRows;
    ShaderValues values = eight_bits_ ? gemm_values(shape, matrix_.format, kRows, matrix_.units)
                                      : float_gemm_values(shape, matrix_.format, kRows, matrix_.units);
    values.merge(ShaderValues(values_));
    if (shape.splits > 1) values["SPLIT_STRIDE"] = kFloats;
    const Buffer parts = guarded(shape.splits * kFloats);
    std::vector<Bound> buffers = buffers_;
    buffers.push_back(within("out", parts, shape.splits * kFloats));
    run(eight_bits_ ? "gemm.wgsl" : "gemm_float.wgsl", values, buffers,
        {ceil_div(kRows, shape.tile_rows), ceil_div(kTokens, shape.tile_tokens), shape.splits});
    if (shape.splits == 1) return read(parts, kFloats);
    const Buffer out = guarded(kFloats);
    run("gemm_sum.wgsl",
        {{"THREADS", 128},
         {"ROWS", kRows},
         {"SPLITS", shape.splits},
         {"SPLIT_STRIDE", kFloats},
         {"BIAS", 0},
         {"OUT_STRIDE", kRows},
         {"OUT_OFFSET", 0}},
        {within("parts", parts, shape.splits * kFloats), within("out", out, kFloats)},
        {ceil_div(kRows, 128), kTokens, 1});
    return read(out, kFloats);
  }

  void expect_one_order(GemmShape shape) {
    const std::vector<float> expected = columns();
    shape.tree = true;
    shape.unrolled = unrolled_;
    std::size_t cuts = 0;
    for (shape.splits = 1; shape.splits <= 5 && cuts < 2; ++shape.splits) {  // each is a kernel to compile
      if (!sums_fit(shape, matrix_.units)) continue;
      ++cuts;
      const std::vector<float> got = tiles(shape);
      std::size_t others = 0;
      for (std::size_t i = 0; i < got.size(); ++i) others += got[i] != expected[i] ? 1 : 0;
      EXPECT_EQ(others, 0u) << shape.name() << " of " << matrix_.units << " units";
    }
    EXPECT_GE(cuts, 1u) << shape.name();
  }

  GpuMatrix matrix_;
  bool eight_bits_ = true, unrolled_ = false;
  std::vector<Bound> buffers_;
  ShaderValues values_;
};

TEST_F(OneOrder, OfBlocks) {
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
        DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
    SCOPED_TRACE(dtype_info(dtype).name);
    make(dtype, dtype_info(dtype).block_values == 256 ? 768 : 352, true);
    expect_one_order({32, 32, 4, 4, 2, 1});
  }
}

// Where fma() rounds once, a block's scale takes away the bits that its sum of dots began at; elsewhere the
// sum becomes a float before it is scaled (weights.wgsl: BITS_IN_SCALE). A model says the same on both.
TEST_F(OneOrder, WhereFmaRoundsOnceAndWhereItDoesNot) {
  if (!device_->features().fma_rounds_once) GTEST_SKIP() << "this adapter's fma() rounds twice";
  for (const DType dtype : {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0, DType::kIQ4_NL}) {
    SCOPED_TRACE(dtype_info(dtype).name);
    make(dtype, 352, true);
    GemmShape shape{32, 32, 4, 4, 1, 1};
    const std::vector<float> column = columns(), tile = tiles(shape);
    const Broken elsewhere("weights.wgsl", "#define BITS_IN_SCALE (FMA_ROUNDS_ONCE) && SCALES == 1",
                           "#define BITS_IN_SCALE 0");
    KernelCache changed(*device_);
    KernelCache* const usual = std::exchange(kernels_, &changed);
    EXPECT_EQ(columns(), column);
    EXPECT_EQ(tiles(shape), tile);
    kernels_ = usual;
  }
}

TEST_F(OneOrder, OfFloats) {
  for (const StoredAs stored :
       {StoredAs(DType::kF32), StoredAs(DType::kF16), StoredAs(DType::kBF16), kHeadOfBF16}) {
    SCOPED_TRACE(stored.name());
    for (const std::uint32_t width : {64u, 352u}) {
      make(stored, width, false);
      for (const GemmShape& shape : float_shapes(true)) expect_one_order(shape);
    }
  }
}

// A row's factor is a power of two, and all else is the same.
TEST_F(OneOrder, OfBF16InAnyForm) {
  make(DType::kBF16, 352, false);
  const std::vector<float> expected = columns();
  make(kHeadOfBF16, 352, false);
  EXPECT_EQ(columns(), expected);
}

TEST_F(OneOrder, OfStepsWrittenOut) {
  unrolled_ = true;
  for (const DType dtype : {DType::kQ4_0, DType::kMXFP4}) {
    make(dtype, 320, true);
    expect_one_order({16, 32, 2, 2, 2, 1});
  }
}

TEST_F(OneOrder, OfRowsOfAnyLength) {
  for (const std::uint32_t width : {64u, 192u, 448u, 1152u}) {
    make(DType::kQ4_0, width, true);
    expect_one_order({32, 32, 2, 2, 1, 1});
    expect_one_order({32, 32, 2, 2, 2, 1});
  }
}

}  // namespace
}  // namespace doppler::gpu
