// Random weights of every stored type for the GPU tests, and what they decode to.
#pragma once

#include <algorithm>

#include "backend/gpu/weights.h"
#include "base/thread_pool.h"
#include "gpu_harness.h"
#include "quant/tensor.h"
#include "random_blocks.h"
#include "stored_as.h"

namespace doppler::gpu::testing {

// A tensor whose blocks are random bytes, redrawn until their values are those a model could have: finite,
// and the largest between 1/100 and 100.
struct RandomTensor {
  std::vector<std::byte> bytes;
  TensorView view;
  std::vector<float> values;  // as decode_f32 gives them

  RandomTensor(DType type, std::size_t rows, std::size_t cols, unsigned seed) {
    Random random(seed);
    const DTypeInfo& info = dtype_info(type);
    const std::size_t block = info.block_bits / 8;
    bytes.resize(rows * cols / info.block_values * block);
    std::vector<float> decoded(info.block_values);
    for (std::size_t at = 0; at < bytes.size(); at += block) {
      for (bool good = false; !good;) {
        for (std::size_t i = 0; i < block; ++i) bytes[at + i] = static_cast<std::byte>(random.below(256));
        const TensorView one{"block", type, {info.block_values}, std::span(bytes).subspan(at, block)};
        if (!decode_f32(one, 0, decoded)) break;
        float most = 0;
        for (const float v : decoded) most = std::isfinite(v) ? std::max(most, std::abs(v)) : HUGE_VALF;
        good = most > 0.01f && most < 100;
      }
    }
    doppler::testing::vary_rows(type, rows, bytes);
    view = {fmt::format("random {}", dtype_name(type)), type, {rows, cols}, bytes};
    values.resize(rows * cols);
    EXPECT_TRUE(decode_f32(view, 0, values).has_value());
  }
};

inline ThreadPool& test_pool() {
  static ThreadPool pool(2);
  return pool;
}

inline GpuMatrix upload(Mode mode, const std::vector<const TensorView*>& tensors,
                        std::uint64_t most_bytes = UINT64_MAX, std::optional<WeightFormat> format = {}) {
  auto matrix = upload_matrix(*device(mode), test_pool(), tensors, most_bytes, format);
  EXPECT_TRUE(matrix.has_value()) << (matrix ? "" : matrix.error().message);
  return matrix ? std::move(*matrix) : GpuMatrix{};
}

// The template values that say how a matrix is stored.
inline ShaderValues format_values(const GpuMatrix& matrix) {
  return {{"FORM", static_cast<std::int64_t>(matrix.format.codes)},
          {"SCALES", static_cast<std::int64_t>(matrix.format.scales)},
          {"UNITS_K", matrix.units}};
}

// Every type that a model's weights may have, and those that lie otherwise in a head.
inline std::vector<StoredAs> stored_types() {
  std::vector<StoredAs> types = {kHeadOfBF16};
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.computable) types.emplace_back(info.type);
  }
  return types;
}

}  // namespace doppler::gpu::testing
