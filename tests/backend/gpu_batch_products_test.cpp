// Matrix products for many tokens: activations in 8-bit blocks, in every tile and in parts.
#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/gemm_shape.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

// Activations in blocks of 32, rounded as quantise.wgsl does, for `room` tokens; with `wide` eight blocks
// share a scale, as quantise_vec.wgsl has it.
struct Blocks {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;   // (scale, scale * sum) of each block
  std::vector<double> values;  // what they stand for, [token][width]

  Blocks(const std::vector<float>& x, std::size_t tokens, std::size_t width, std::size_t room,
         bool wide = false) {
    const std::size_t padded = (width + 63) / 64 * 64;
    // What no token has filled may be anything.
    codes.assign(room * padded, 77);
    scales.assign(room * padded / 16, std::bit_cast<float>(kGuard));
    values.resize(tokens * width);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t b = 0; b < padded; b += 32) {
        float most = wide ? 127 * 0x1p-63f : 0;
        const std::size_t first = wide ? b / 256 * 256 : b, end = first + (wide ? 256 : 32);
        for (std::size_t i = first; i < end && i < width; ++i)
          most = std::max(most, std::abs(x[t * width + i]));
        const float scale = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0;
        int sum = 0;
        for (std::size_t i = b; i < b + 32; ++i) {
          const float code = i < width ? std::nearbyint(x[t * width + i] * inverse) : 0;
          codes[t * padded + i] = static_cast<std::int8_t>(code);
          sum += static_cast<int>(code);
          if (i < width) values[t * width + i] = static_cast<double>(scale) * code;
        }
        scales[(t * padded + b) / 16] = scale;
        scales[(t * padded + b) / 16 + 1] = scale * static_cast<float>(sum);
      }
    }
  }
};

class Products : public BatchKernels {
 protected:
  bool wide_ = false;  // activations whose blocks share scales: of different sizes, and of zeros
  // A product of shape tokens x rows x width; returns its results for comparing runs.
  std::vector<float> check(DType dtype, const GemmShape& shape, std::size_t tokens, std::size_t rows,
                           std::size_t width, float scale = 1, bool with_bias = false) {
    SCOPED_TRACE(fmt::format("{} tokens, {} rows, {} values in {}", tokens, rows, width, shape.name()));
    const Matrix w(dtype, rows, width);
    ThreadPool pool(1);
    const TensorView* const views[] = {&w.view};
    auto matrix = upload_matrix(*device_, pool, views, device_->limits().binding_bytes);
    EXPECT_TRUE(matrix.has_value());
    if (!matrix) return {};
    std::vector<float> x = random_floats(tokens * width, scale);
    constexpr float kSizes[] = {1, 1e3, 0, 1e-3};
    for (std::size_t i = 0; wide_ && i < x.size(); ++i) x[i] *= kSizes[i % width / 256 % 4];
    const std::size_t room = (tokens + 63) / 64 * 64;
    const Blocks blocks(x, tokens, width, room, wide_);
    const std::vector<float> bias = random_floats(rows, 1);
    // Results lie in the middle of wider rows.
    const std::size_t stride = rows + 5, offset = 3, floats = (tokens * stride + 3) / 4 * 4;
    const Buffer out = guarded(floats),
                 step = upload(std::vector<std::uint32_t>{static_cast<std::uint32_t>(tokens)});
    const Buffer x8 = upload(blocks.codes), xs = upload(blocks.scales), bias_buffer = upload(bias);
    const bool split = shape.splits > 1;
    const std::size_t split_stride = room * rows;
    const Buffer parts = guarded(split ? shape.splits * split_stride : 64);
    ShaderValues values = gemm_values(shape, matrix->format, static_cast<std::uint32_t>(rows), matrix->units);
    values["BIAS"] = with_bias && !split ? 1 : 0;
    values["COUNT"] = 0;
    if (wide_) values["WIDE"] = 1;
    values["OUT_STRIDE"] = static_cast<std::int64_t>(split ? rows : stride);
    values["OUT_OFFSET"] = static_cast<std::int64_t>(split ? 0 : offset);
    if (split) values["SPLIT_STRIDE"] = static_cast<std::int64_t>(split_stride);
    std::vector<Bound> buffers = {
        {"step", step},
        {"codes", matrix->shards[0].codes},
        {"scales", matrix->shards[0].scales},
        {"x8", x8},
        {"xs", xs},
        split ? within("out", parts, shape.splits * split_stride) : within("out", out, floats)};
    if (with_bias && !split) buffers.push_back({"bias", bias_buffer});
    const auto groups = [](std::size_t a, std::size_t b) {
      return static_cast<std::uint32_t>((a + b - 1) / b);
    };
    run("gemm.wgsl", values, buffers,
        {groups(rows, shape.tile_rows), groups(tokens, shape.tile_tokens), shape.splits});
    if (split) {
      values = {{"THREADS", 128},
                {"ROWS", static_cast<std::int64_t>(rows)},
                {"SPLITS", shape.splits},
                {"SPLIT_STRIDE", static_cast<std::int64_t>(split_stride)},
                {"BIAS", with_bias ? 1 : 0},
                {"OUT_STRIDE", static_cast<std::int64_t>(stride)},
                {"OUT_OFFSET", static_cast<std::int64_t>(offset)}};
      buffers = {within("parts", parts, shape.splits * split_stride), within("out", out, floats)};
      if (with_bias) buffers.push_back({"bias", bias_buffer});
      run("gemm_sum.wgsl", values, buffers, {groups(rows, 128), static_cast<std::uint32_t>(tokens), 1});
      read(parts, shape.splits * split_stride);
    }
    const std::vector<float> got = read(out, floats);
    const std::vector<Expected> expected = multiply(blocks.values, w.values, tokens, rows, width);
    // Where sums are kept beside large numbers they are rounded to a code, of a scale that is a tenth of the
    // largest weight, times the scale of the activations, in each block.
    const bool biased = wide_ && matrix->format.scales == ScaleForm::kSuper32Min;
    const auto size = [](double a, double b) { return std::abs(a) < std::abs(b); };
    const double rounding = biased ? std::sqrt(static_cast<double>(width) / 32) *
                                         std::abs(*std::ranges::max_element(w.values, size)) / 4
                                   : 0;
    std::size_t wrong = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = std::span(x).subspan(t * width, width);
      const double of_scales = rounding * std::abs(*std::ranges::max_element(row, size)) / 127;
      for (std::size_t c = 0; c < stride; ++c) {
        const float value = got[t * stride + c];
        if (c < offset || c >= offset + rows) {
          wrong += std::bit_cast<std::uint32_t>(value) == kGuard ? 0 : 1;
          continue;
        }
        const Expected& e = expected[t * rows + c - offset];
        const double sum = e.sum + (with_bias ? bias[c - offset] : 0);
        wrong += std::abs(value - sum) <= 2e-6 * e.magnitude + 1e-6 + of_scales ? 0 : 1;
      }
    }
    EXPECT_EQ(wrong, 0u);
    return got;
  }
};

constexpr DType kQuantised[] = {DType::kQ4_0,   DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                DType::kQ2_K,   DType::kQ3_K,   DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

TEST_F(Products, OfEveryFormat) {
  for (const DType dtype : kQuantised) {
    SCOPED_TRACE(dtype_info(dtype).name);
    const bool wide = dtype_info(dtype).block_values == 256;
    const GemmShape shape{32, 32, 4, 4, 2, 1, false};
    ASSERT_TRUE(gemm_fits(device_->limits(), shape, format_of(dtype)));
    check(dtype, shape, 33, 40, wide ? 768 : 352, 1, true);
  }
}

// Of weights with scales for 256 values, too: in both tiles of prompts, and in parts that begin within a
// scale.
TEST_F(Products, OfBlocksThatShareScales) {
  wide_ = true;
  for (const DType dtype : {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    SCOPED_TRACE(dtype_info(dtype).name);
    ASSERT_TRUE(format_of(dtype).super_blocks());
    check(dtype, {32, 32, 4, 4, 2, 1, false}, 33, 40, 1280, 1, true);
  }
  for (const DType dtype : {DType::kQ4_K, DType::kQ6_K}) {
    check(dtype, {64, 128, 16, 4, 1, 1, false}, 70, 130, 1280);
    check(dtype, {64, 128, 16, 4, 1, 3, false}, 70, 130, 1280);
  }
  // More parts than steps, and the tile of the few rows that are left behind the last attention.
  check(DType::kQ4_K, {32, 32, 4, 4, 2, 4, false}, 33, 40, 256);
  check(DType::kQ4_K, {16, 64, 4, 4, 1, 1, false}, 3, 70, 1280);
}

// Kernels are compiled for a matrix; software adapters take long for that, so these tests share few.
constexpr GemmShape kWidest{64, 128, 16, 4, 1, 1, false}, kNarrowest{32, 32, 4, 4, 2, 1, false};

TEST_F(Products, OfAnyShapeInTheWidestTile) {
  for (const std::size_t tokens : {1, 63, 64, 65, 130}) check(DType::kQ4_0, kWidest, tokens, 130, 96);
  check(DType::kQ4_0, kWidest, 7, 64, 288);
  check(DType::kQ4_0, kWidest, 17, 1152, 1152);
}

TEST_F(Products, OfAnyShapeInTheNarrowestTile) {
  for (const std::size_t rows : {1, 31, 64}) check(DType::kQ4_0, kNarrowest, 33, rows, 32);
  check(DType::kQ4_0, kNarrowest, 7, 96, 6912);
}

TEST_F(Products, InEveryTile) {
  for (GemmShape shape : gemm_shapes()) {
    if (!shape.unrolled) continue;
    // Written out, the wide ones are too much; one stands for the others.
    shape.unrolled = shape.tile_tokens == 32 && shape.tile_rows == 32;
    check(DType::kQ4_0, shape, 70, 140, 160);
  }
}

TEST_F(Products, OfFewRowsInTheirTiles) {
  for (GemmShape shape : few_rows_shapes()) {
    shape.unrolled = false;
    check(DType::kQ4_0, shape, shape.tile_tokens - 3, 140, 160);
  }
}

TEST_F(Products, InPartsAddUp) {
  check(DType::kQ4_0, {32, 128, 8, 4, 1, 2, false}, 65, 130, 864);
  check(DType::kQ4_0, {32, 32, 4, 4, 2, 3, false}, 65, 70, 832, 1, true);
  // Fewer steps than parts: some have nothing to do.
  check(DType::kQ4_0, {32, 32, 4, 4, 2, 4, false}, 33, 40, 320);
}

TEST_F(Products, OfLargeActivationsStayExact) {
  check(DType::kQ4_0, kWidest, 9, 1152, 1152, 1e4f);
  check(DType::kQ8_0, kNarrowest, 9, 40, 352, 1e4f, true);
  check(DType::kQ6_K, kNarrowest, 9, 40, 768, 1e4f, true);
}

TEST_F(Products, AreTheSameBitsEachTime) {
  const std::vector<float> once = check(DType::kQ4_0, kWidest, 40, 130, 96);
  const std::vector<float> again = check(DType::kQ4_0, kWidest, 40, 130, 96);
  ASSERT_EQ(once.size(), again.size());
  EXPECT_EQ(std::memcmp(once.data(), again.data(), once.size() * 4), 0);
}

}  // namespace
}  // namespace doppler::gpu
