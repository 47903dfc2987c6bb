// Matrix products for tensor cores: weights and activations as halves, sums as floats. Where the device has
// none, plain loops stand for their five operations, and all the rest of the kernel is the same text.
#include "backend/gpu/half_shape.h"
#include "gpu_batch_harness.h"
#include "gpu_harness.h"
#include "harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

// Activations as halves.wgsl leaves them, and what they stand for.
struct Halves {
  std::vector<std::uint16_t> words;
  std::vector<double> values;  // [token][width]

  Halves(const std::vector<float>& x, std::size_t tokens, std::size_t width, std::size_t room) {
    const std::size_t padded = (width + 63) / 64 * 64;
    words.assign(padded * room, 0x7e00);  // NaN where no token has filled it
    values.resize(tokens * width);
    constexpr std::size_t kPlace[] = {0, 2, 1, 3};
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t k = 0; k < padded; ++k) {
        const std::uint16_t half = k < width ? f32_to_f16(x[t * width + k] / 32) : 0;
        words[(k / 32 * room + t) * 32 + k % 32 / 4 * 4 + kPlace[k % 4]] = half;
        if (k < width) values[t * width + k] = double{f16_to_f32(half)} * 32;
      }
    }
  }
};

class HalfProducts : public BatchKernels {
 protected:
  void SetUp() override {
    if (!device_->features().f16) GTEST_SKIP() << "the adapter has no f16";
  }
  static void check(StoredAs stored, const HalfShape& shape, std::size_t tokens, std::size_t rows,
                    std::size_t width, bool with_bias = false, std::size_t stride = 0) {
    SCOPED_TRACE(fmt::format("{} tokens, {} rows, {} values of {} in {}", tokens, rows, width, stored.name(),
                             shape.name()));
    const Matrix w(stored.type, rows, width);
    ThreadPool pool(1);
    const TensorView* const views[] = {&w.view};
    ASSERT_OK_AND_ASSIGN(
        const GpuMatrix matrix,
        upload_matrix(*device_, pool, views, device_->limits().binding_bytes, stored.format()));
    const std::vector<float> x = random_floats(tokens * width, 1), bias = random_floats(rows, 1);
    const std::size_t room = (tokens + kHalfTileTokens - 1) / kHalfTileTokens * kHalfTileTokens;
    const Halves halves(x, tokens, width, room);
    if (stride == 0) stride = rows + 5;
    const std::size_t offset = stride % 4 == 0 ? 4 : 3, floats = (tokens * stride + 3) / 4 * 4;
    const bool split = shape.splits > 1;
    const std::size_t split_stride = tokens * rows, parts_floats = shape.splits * split_stride;
    const Buffer out = guarded(floats), parts = guarded(parts_floats);
    const Buffer step = upload(std::vector<std::uint32_t>{static_cast<std::uint32_t>(tokens)});
    const Buffer x16 = upload(halves.words), bias_buffer = upload(bias);
    ShaderValues values = half_values(*device_, shape, matrix.format, static_cast<std::uint32_t>(rows),
                                      matrix.units, static_cast<std::uint32_t>(room));
    values["BIAS"] = with_bias && !split ? 1 : 0;
    values["COUNT"] = 0;
    values["OUT_STRIDE"] = i64(split ? rows : stride);
    values["OUT_OFFSET"] = i64(split ? 0 : offset);
    if (split) values["SPLIT_STRIDE"] = i64(split_stride);
    std::vector<Bound> buffers = {{"step", step},
                                  {"codes", matrix.shards[0].codes},
                                  {"x16", x16},
                                  split ? within("out", parts, parts_floats) : within("out", out, floats)};
    if (matrix.format.has_scales()) buffers.push_back({"scales", matrix.shards[0].scales});
    if (with_bias && !split) buffers.push_back({"bias", bias_buffer});
    const auto groups = [](std::size_t a, std::size_t b) {
      return static_cast<std::uint32_t>((a + b - 1) / b);
    };
    run("gemm_half.wgsl", values, buffers,
        {groups(rows, shape.tile_rows), groups(tokens, shape.tile_tokens), shape.splits});
    const std::vector<float> got = read(split ? parts : out, split ? parts_floats : floats);
    const std::vector<Expected> expected = multiply(halves.values, w.values, tokens, rows, width);
    const float largest = std::ranges::max(w.values, {}, [](float v) { return std::abs(v); });
    std::size_t wrong = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      double squares = 0;
      for (std::size_t k = 0; k < width; ++k) squares += std::pow(halves.values[t * width + k], 2);
      // Eight deviations of a sum whose products are each off by a share of 2^-11, or exact: BF16's weights
      // are halves.
      const double share = stored.type == DType::kBF16 ? 0x1p-18 : 0x1p-11;
      const double allowed = 8 * std::abs(largest) * std::sqrt(squares) * share;
      for (std::size_t r = 0; r < rows; ++r) {
        double sum = with_bias && !split ? -double{bias[r]} : 0;
        for (std::size_t z = 0; z < shape.splits; ++z)
          sum += got[split ? z * split_stride + t * rows + r : t * stride + offset + r];
        wrong += std::abs(sum - expected[t * rows + r].sum) <= allowed ? 0 : 1;
      }
      for (std::size_t c = 0; !split && c < stride; ++c) {
        if (c >= offset && c < offset + rows) continue;
        wrong += std::bit_cast<std::uint32_t>(got[t * stride + c]) == kGuard ? 0 : 1;
      }
    }
    EXPECT_EQ(wrong, 0u);
  }
};

// One type for each form of codes and of scales, and for both halves of a unit: those whose codes or scales
// lie differently in them also where a step has one block.
constexpr StoredAs kTypes[] = {DType::kQ4_0,  DType::kQ4_1, DType::kQ5_0, DType::kQ8_0,
                               DType::kQ2_K,  DType::kQ3_K, DType::kQ4_K, DType::kQ6_K,
                               DType::kMXFP4, DType::kF16,  DType::kBF16, kHeadOfBF16};
constexpr StoredAs kTypesByHalves[] = {DType::kQ4_0,  DType::kQ5_0, DType::kQ4_K, DType::kQ6_K,
                                       DType::kMXFP4, DType::kBF16, kHeadOfBF16};

TEST_F(HalfProducts, OfEveryFormat) {
  const auto width = [](DType dtype) { return dtype_info(dtype).block_values == 256 ? 768u : 352u; };
  for (const StoredAs stored : kTypes) check(stored, {64, 64, 2, 2, 2, 1}, 33, 40, width(stored.type));
  for (const StoredAs stored : kTypesByHalves)
    check(stored, {64, 128, 1, 2, 2, 1}, 33, 40, width(stored.type), true);
}

TEST_F(HalfProducts, InEveryTileAndInParts) {
  for (HalfShape shape : half_shapes()) {
    if (!half_fits(device_->limits(), shape)) continue;  // one needs more than a software adapter has
    // One whole tile, which goes straight to its place, and the edges of others.
    check(DType::kQ4_0, shape, shape.tile_tokens + 3, shape.tile_rows + 8, 320, false, shape.tile_rows + 16);
    shape.splits = 3;
    check(DType::kQ4_0, shape, 35, 72, 704);
  }
}

TEST_F(HalfProducts, OfAnyShape) {
  const HalfShape shape{64, 64, 2, 2, 2, 1};
  for (const std::size_t tokens : {1, 64, 130}) check(DType::kQ4_0, shape, tokens, 130, 96);
  check(DType::kQ8_0, shape, 33, 1, 32);
}

}  // namespace
}  // namespace doppler::gpu
