// Matrix products for many tokens with float activations, and with weights of any kind.
#include "backend/gpu/gemm_shape.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

class FloatProducts : public BatchKernels {};

TEST_F(FloatProducts, OfEveryFormat) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K,
                            DType::kQ2_K, DType::kQ8_0}) {
    SCOPED_TRACE(dtype_info(dtype).name);
    const std::size_t width = dtype_info(dtype).block_values == 256 ? 512 : 96, rows = 70;
    for (const std::size_t tokens : {3, 65}) {
      Matrix w(dtype, rows, width);
      if (dtype == DType::kF16) {
        for (std::size_t i = 0; i < w.values.size(); ++i) {
          w.values[i] = static_cast<float>(i % 97) / 64.0f - 0.7f;
          const std::uint16_t half = f32_to_f16(w.values[i]);
          w.values[i] = f16_to_f32(half);
          std::memcpy(&w.file[2 * i], &half, 2);
        }
      }
      ThreadPool pool(1);
      const TensorView* const views[] = {&w.view};
      ASSERT_OK_AND_ASSIGN(const GpuMatrix matrix,
                           upload_matrix(*device_, pool, views, device_->limits().binding_bytes));
      // Activations in the middle of wider rows, aligned for loads of four or not.
      for (const std::size_t x_offset : {4, 3}) {
        const std::size_t x_stride = width + 8;
        const std::vector<float> x = random_floats(tokens * x_stride, 1);
        std::vector<double> own;
        for (std::size_t t = 0; t < tokens; ++t) {
          for (std::size_t i = 0; i < width; ++i) own.push_back(x[t * x_stride + x_offset + i]);
        }
        const std::size_t floats = tokens * rows + tokens * rows % 2;
        const Buffer out = guarded(floats), x_buffer = upload(x),
                     step = upload(std::vector<std::uint32_t>{static_cast<std::uint32_t>(tokens)});
        const ShaderValues values = {{"TM", kFloatTileTokens},
                                     {"TN", kFloatTileRows},
                                     {"RM", kFloatTokensEach},
                                     {"RN", kFloatRowsEach},
                                     {"KV", kFloatVecs},
                                     {"ROWS", rows},
                                     {"BIAS", 0},
                                     {"COUNT", 0},
                                     {"WIDTH", static_cast<std::int64_t>(width)},
                                     {"X_VEC", x_offset == 4 ? 1 : 0},
                                     {"X_STRIDE", static_cast<std::int64_t>(x_stride)},
                                     {"X_OFFSET", static_cast<std::int64_t>(x_offset)},
                                     {"OUT_STRIDE", rows},
                                     {"OUT_OFFSET", 0},
                                     {"FORM", static_cast<std::int64_t>(matrix.format.codes)},
                                     {"SCALES", static_cast<std::int64_t>(matrix.format.scales)},
                                     {"UNITS_K", matrix.units}};
        std::vector<Bound> buffers = {
            {"step", step}, {"codes", matrix.shards[0].codes}, {"x", x_buffer}, within("out", out, floats)};
        if (matrix.format.quantised()) buffers.push_back({"scales", matrix.shards[0].scales});
        run("gemm_float.wgsl", values, buffers, {2, tokens > 64 ? 2u : 1u, 1});
        const std::vector<float> got = read(out, floats);
        const std::vector<Expected> expected = multiply(own, w.values, tokens, rows, width);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < tokens * rows; ++i)
          wrong += std::abs(got[i] - expected[i].sum) <= 3e-6 * expected[i].magnitude + 1e-6 ? 0 : 1;
        EXPECT_EQ(wrong, 0u) << tokens << " tokens at " << x_offset;
      }
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
