// Matrix products for many tokens with float activations, and with weights of any kind.
#include "backend/gpu/gemm_shape.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

class FloatProducts : public BatchKernels {
 protected:
  // A product whose activations lie from column `x_offset` on in wider rows, where all else is no number, and
  // whose results lie in the middle of wider rows as well.
  static void check(GemmShape shape, const Matrix& w, const GpuMatrix& matrix, std::size_t tokens,
                    std::size_t x_offset, bool with_bias) {
    shape.unrolled = shape.tile_tokens == 32;  // written out, kernels take a software adapter's compiler long
    const std::size_t rows = w.view.shape[0], width = w.view.shape[1], x_stride = width + 8;
    const std::vector<float> numbers = random_floats(tokens * width, 1), bias = random_floats(rows, 1, 3);
    std::vector<float> x(tokens * x_stride, NAN);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      x[i / width * x_stride + x_offset + i % width] = numbers[i];
    const std::size_t stride = rows + 6, offset = 3, floats = shape.splits * tokens * stride;
    const Buffer out = guarded(floats), x_buffer = upload(x), bias_buffer = upload(bias),
                 step = upload(std::vector<std::uint32_t>{static_cast<std::uint32_t>(tokens)});
    ShaderValues values =
        float_gemm_values(shape, matrix.format, static_cast<std::uint32_t>(rows), matrix.units);
    values["BIAS"] = with_bias ? 1 : 0;
    values["COUNT"] = 0;
    values["WIDTH"] = static_cast<std::int64_t>(width);
    values["X_VEC"] = x_offset % 4 == 0 ? 1 : 0;
    values["X_STRIDE"] = static_cast<std::int64_t>(x_stride);
    values["X_OFFSET"] = static_cast<std::int64_t>(x_offset);
    values["OUT_STRIDE"] = static_cast<std::int64_t>(stride);
    values["OUT_OFFSET"] = static_cast<std::int64_t>(offset);
    if (shape.splits > 1) values["SPLIT_STRIDE"] = static_cast<std::int64_t>(tokens * stride);
    std::vector<Bound> buffers = {
        {"step", step}, {"codes", matrix.shards[0].codes}, {"x", x_buffer}, within("out", out, floats)};
    if (matrix.format.has_scales()) buffers.push_back({"scales", matrix.shards[0].scales});
    if (with_bias) buffers.push_back({"bias", bias_buffer});
    const auto groups = [](std::size_t a, std::size_t b) {
      return static_cast<std::uint32_t>((a + b - 1) / b);
    };
    run("gemm_float.wgsl", values, buffers,
        {groups(rows, shape.tile_rows), groups(tokens, shape.tile_tokens), shape.splits});
    std::vector<float> got = read(out, floats);
    // What gemm_sum.wgsl adds.
    for (std::size_t i = tokens * stride; i < floats; ++i) {
      if ((i % stride) - offset < rows) got[i % (tokens * stride)] += got[i];
    }
    const std::vector<Expected> expected =
        multiply(std::vector<double>(numbers.begin(), numbers.end()), w.values, tokens, rows, width);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < floats; ++i) {
      const std::size_t token = i / stride, row = i % stride - offset;  // wraps around before the first
      if (row >= rows) {
        wrong += std::bit_cast<std::uint32_t>(got[i]) == kGuard ? 0 : 1;
        continue;
      }
      if (token >= tokens) continue;  // a part that was added
      const Expected& e = expected[token * rows + row];
      const double sum = e.sum + (with_bias ? bias[row] : 0);
      wrong += std::abs(got[i] - sum) <= 3e-6 * e.magnitude + 1e-6 ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u) << tokens << " tokens at " << x_offset << ", " << shape.name();
  }
};

// A matrix on the device.
class OnDevice {
 public:
  OnDevice(Device& device, const Matrix& w, std::optional<WeightFormat> format = {}) {
    ThreadPool pool(1);
    const TensorView* const views[] = {&w.view};
    auto made = upload_matrix(device, pool, views, device.limits().binding_bytes, format);
    EXPECT_TRUE(made.has_value());
    matrix = std::move(*made);
  }
  GpuMatrix matrix;
};

TEST_F(FloatProducts, OfEveryFormat) {
  std::size_t next = 0;  // every format with another cut
  constexpr StoredAs kAll[] = {DType::kF32,  DType::kF16,  DType::kBF16, kHeadOfBF16, DType::kQ4_0,
                               DType::kQ4_K, DType::kQ6_K, DType::kQ2_K, DType::kQ8_0};
  for (const StoredAs stored : kAll) {
    SCOPED_TRACE(stored.name());
    const DType dtype = stored.type;
    const GemmShape& shape = float_shapes()[next++ % float_shapes().size()];
    // Activations aligned for loads of four, or not, and then in rows of any width.
    for (const std::size_t x_offset : {4, 3}) {
      const std::size_t block = dtype_info(dtype).block_values;
      Matrix w(dtype, 70, block == 256 ? 512 : block == 32 ? 96 : x_offset == 4 ? 88 : 90);
      if (dtype == DType::kF16) {
        for (std::size_t i = 0; i < w.values.size(); ++i) {
          w.values[i] = static_cast<float>(i % 97) / 64.0f - 0.7f;
          const std::uint16_t half = f32_to_f16(w.values[i]);
          w.values[i] = f16_to_f32(half);
          std::memcpy(&w.file[2 * i], &half, 2);
        }
      }
      const OnDevice on(*device_, w, stored.format());
      for (const std::size_t tokens : {3, 65}) check(shape, w, on.matrix, tokens, x_offset, x_offset == 4);
    }
  }
}

// Every cut, alone and with parts of k that do not come out even, the last of which may be empty.
TEST_F(FloatProducts, OfEveryCut) {
  const Matrix w(DType::kBF16, 150, 320);
  const OnDevice on(*device_, w);
  for (GemmShape shape : float_shapes()) {
    for (shape.splits = 1; shape.splits <= 3; shape.splits += 2) check(shape, w, on.matrix, 67, 4, false);
  }
  const Matrix narrow(DType::kBF16, 64, 64);
  GemmShape shape = float_shapes()[0];
  shape.splits = 3;  // of four steps
  check(shape, narrow, OnDevice(*device_, narrow).matrix, 5, 4, false);
}

}  // namespace
}  // namespace doppler::gpu
