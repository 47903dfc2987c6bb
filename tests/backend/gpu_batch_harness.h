// The kernels for many tokens, one by one, against plain loops in double precision; with every access checked
// and with guard words around what they write.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/gpu/kernel.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/weights.h"
#include "base/float16.h"
#include "random_blocks.h"
#include "stored_as.h"
#include "testing.h"

namespace doppler::gpu::testing {

using doppler::testing::random_blocks;
using doppler::testing::random_floats;
using doppler::testing::vary_rows;

// What a kernel must not touch.
inline constexpr std::uint32_t kGuard = 0x7fc0dead;  // a NaN, too
inline constexpr std::size_t kGuardFloats = 64;      // as far as bindings are aligned

class BatchKernels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = Device::open({.checked = true, .poison = true});
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    device_ = std::move(*opened);
    kernels_ = new KernelCache(*device_);
  }
  static void TearDownTestSuite() {
    delete kernels_;
    kernels_ = nullptr;
    device_.reset();
  }

  template <typename T>
  static Buffer upload(const std::vector<T>& values) {
    auto made = device_->make_filled(
        "test", std::max<std::size_t>(16, values.size() * sizeof(T)),
        [&](std::span<std::byte> out) { std::memcpy(out.data(), values.data(), values.size() * sizeof(T)); });
    EXPECT_TRUE(made.has_value());
    return *made;
  }
  // Room for `floats` between guards.
  static Buffer guarded(std::size_t floats) {
    return upload(std::vector<std::uint32_t>(floats + 2 * kGuardFloats, kGuard));
  }
  // With half of the guard behind: software adapters drop every access outside a binding, but nothing inside.
  static Bound within(std::string_view name, const Buffer& buffer, std::size_t floats) {
    return {name, buffer, kGuardFloats * 4, (floats + kGuardFloats / 2) * 4};
  }
  // The floats between the guards, which must be whole.
  static std::vector<float> read(const Buffer& buffer, std::size_t floats) {
    auto bytes = device_->download(buffer);
    EXPECT_TRUE(bytes.has_value()) << bytes.error().message;
    std::vector<std::uint32_t> words(bytes->size() / 4);
    std::memcpy(words.data(), bytes->data(), words.size() * 4);
    for (std::size_t i = 0; i < kGuardFloats; ++i) {
      EXPECT_EQ(words[i], kGuard) << i << " words of the guard before";
      EXPECT_EQ(words[kGuardFloats + floats + i], kGuard) << i << " words after the end";
    }
    std::vector<float> out(floats);
    std::memcpy(out.data(), words.data() + kGuardFloats, floats * 4);
    return out;
  }

  static void run(std::string_view file, const ShaderValues& values, const std::vector<Bound>& buffers,
                  Workgroups groups) {
    auto kernel = kernels_->get(file, values);
    ASSERT_TRUE(kernel.has_value()) << kernel.error().message;
    auto bound = BoundKernel::create(*device_, *kernel, buffers);
    ASSERT_TRUE(bound.has_value()) << bound.error().message;
    Recorder recorder(*device_);
    recorder.dispatch(*bound, groups);
    auto submission = recorder.submit();
    ASSERT_TRUE(submission.has_value()) << submission.error().message;
    ASSERT_OK(device_->wait(*submission));
    ASSERT_OK(device_->check());
  }

  static inline std::shared_ptr<Device> device_;
  static inline KernelCache* kernels_ = nullptr;
};
// A matrix of random blocks: any codes, sane scales.
struct Matrix {
  std::vector<std::byte> file;
  TensorView view;
  std::vector<float> values;

  Matrix(DType dtype, std::size_t rows, std::size_t cols, unsigned seed = 1) {
    file = random_blocks(dtype, rows * cols, seed);
    vary_rows(dtype, rows, file);
    view = {"w", dtype, {rows, cols}, file};
    values.resize(rows * cols);
    EXPECT_TRUE(decode_f32(view, 0, values).has_value());
  }
};

// Sums of products, and of their magnitudes, which bound a float sum's error.
struct Expected {
  double sum = 0, magnitude = 0;
};
inline std::vector<Expected> multiply(const std::vector<double>& x, const std::vector<float>& w,
                                      std::size_t tokens, std::size_t rows, std::size_t width) {
  std::vector<Expected> out(tokens * rows);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t r = 0; r < rows; ++r) {
      Expected& e = out[t * rows + r];
      for (std::size_t i = 0; i < width; ++i) {
        const double product = x[t * width + i] * w[r * width + i];
        e.sum += product;
        e.magnitude += std::abs(product);
      }
    }
  }
  return out;
}

}  // namespace doppler::gpu::testing
