// Panels: quantised weights re-laid for the cpu backend, on every instruction set this machine has.
#include "backend/cpu/panel/panel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/float16.h"
#include "quant/tensor.h"
#include "random_blocks.h"
#include "testing.h"

namespace doppler::cpu {
namespace {

using testing::random_blocks;
using testing::random_floats;
using testing::set_scales;

// A matrix of random blocks: any codes, scales small enough for sums of any of them.
struct Matrix {
  std::vector<std::byte> file;
  std::vector<std::uint8_t> panels;
  TensorView view;
  PanelMatrix matrix;
  std::vector<float> values;

  Matrix(DType dtype, std::size_t rows, std::size_t cols, unsigned seed = 1) {
    file = random_blocks(dtype, rows * cols, seed);
    view = {"w", dtype, {rows, cols}, file};
    values.resize(rows * cols);
    EXPECT_TRUE(decode_f32(view, 0, values).has_value());
    matrix = {panel_format(dtype), nullptr, rows, cols};
    panels.resize(matrix.panels() * matrix.panel_bytes());
    pack_panels(matrix, reinterpret_cast<const std::uint8_t*>(file.data()), 0, matrix.panels(),
                panels.data());
    matrix.data = panels.data();
  }
};

std::vector<ActivationBlock> quantise_with(const PanelKernels& kernels, const std::vector<float>& x,
                                           std::size_t tokens, std::size_t cols) {
  std::vector<ActivationBlock> out(tokens * cols / kSubBlock);
  kernels.quantise(x.data(), tokens, cols, 0, tokens, out.data());
  return out;
}

std::vector<float> multiply_with(const PanelKernels& kernels, const Matrix& m, const std::vector<float>& x,
                                 std::size_t tokens, const float* bias = nullptr) {
  const auto blocks = quantise_with(kernels, x, tokens, m.matrix.cols);
  std::vector<float> out(tokens * m.matrix.rows, -1e30f);
  kernels.rows({.weight = m.matrix,
                .bias = bias,
                .x = blocks.data(),
                .tokens = tokens,
                .panel_begin = 0,
                .panel_end = m.matrix.panels(),
                .out = out.data(),
                .stride = m.matrix.rows});
  return out;
}

class Panels : public ::testing::TestWithParam<std::size_t> {
 protected:
  const PanelKernels& kernels() const { return *all_kernels()[GetParam()].panel; }

  std::vector<ActivationBlock> quantise(const std::vector<float>& x, std::size_t tokens,
                                        std::size_t cols) const {
    return quantise_with(kernels(), x, tokens, cols);
  }
  std::vector<float> multiply(const Matrix& m, const std::vector<float>& x, std::size_t tokens,
                              const float* bias = nullptr) const {
    return multiply_with(kernels(), m, x, tokens, bias);
  }
  // The activations as quantise() rounds them, as floats [tokens, cols].
  std::vector<float> rounded(const std::vector<float>& x, std::size_t tokens, std::size_t cols) const {
    std::vector<float> out;
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = quantise({x.begin() + static_cast<std::ptrdiff_t>(t * cols),
                                 x.begin() + static_cast<std::ptrdiff_t>((t + 1) * cols)},
                                1, cols);
      for (const ActivationBlock& block : row) {
        for (const std::int8_t q : block.q) out.push_back(block.scale * static_cast<float>(q));
      }
    }
    return out;
  }
  void expect_products(const Matrix& m, const std::vector<float>& x, std::size_t tokens,
                       const char* what) const {
    const auto out = multiply(m, x, tokens);
    const std::vector<float> seen = rounded(x, tokens, m.matrix.cols);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t r = 0; r < m.matrix.rows; ++r) {
        double sum = 0, magnitude = 0;
        for (std::size_t c = 0; c < m.matrix.cols; ++c) {
          const double product =
              static_cast<double>(m.values[r * m.matrix.cols + c]) * seen[t * m.matrix.cols + c];
          sum += product, magnitude += std::fabs(product);
        }
        // Integer products are exact; what is left are the float additions, one or two per 16 columns.
        ASSERT_NEAR(out[t * m.matrix.rows + r], sum, 2e-6 * magnitude + 1e-30)
            << what << ", " << dtype_name(m.view.dtype) << ", row " << r << " of " << m.matrix.rows
            << ", token " << t << " of " << tokens;
      }
    }
  }
};

TEST_P(Panels, EveryTypeMultipliesAsItsDecodedValuesDo) {
  for (const PanelFormat& format : all_panel_formats()) {
    const Matrix whole(format.dtype, 48, 2 * format.block_cols);
    expect_products(whole, random_floats(whole.matrix.cols, 1), 1, "decode");
    expect_products(whole, random_floats(19 * whole.matrix.cols, 1), 19, "prefill");
  }
}

TEST_P(Panels, RowsThatAreNoMultipleOfAPanelAndOddBlocksComeOutWhole) {
  for (const PanelFormat& format : all_panel_formats()) {
    for (const std::size_t rows : {1u, 15u, 17u, 33u}) {
      const Matrix m(format.dtype, rows, 3 * format.block_cols, static_cast<unsigned>(rows));
      for (const std::size_t tokens : {1u, 2u, 3u, 7u, 31u})
        expect_products(m, random_floats(tokens * m.matrix.cols, 1), tokens, "tails");
    }
  }
}

TEST_P(Panels, LargeActivationsAndExtremeCodesDoNotSaturate) {
  for (const PanelFormat& format : all_panel_formats()) {
    Matrix m(format.dtype, 16, 2 * format.block_cols);
    for (const std::uint8_t fill : {0xff, 0x00, 0x7f, 0x80}) {
      for (std::byte& byte : m.file) byte = static_cast<std::byte>(fill);
      std::mt19937 random(3);
      const std::size_t block = dtype_info(format.dtype).block_bits / 8;
      for (std::size_t at = 0; at < m.file.size(); at += block) set_scales(format.dtype, &m.file[at], random);
      ASSERT_OK(decode_f32(m.view, 0, m.values));
      pack_panels(m.matrix, reinterpret_cast<const std::uint8_t*>(m.file.data()), 0, 1, m.panels.data());
      for (const float sign : {1.0f, -1.0f}) {
        // All activations at the largest code.
        expect_products(m, std::vector<float>(2 * m.matrix.cols, 15000 * sign), 2, "extreme");
      }
      expect_products(m, random_floats(2 * m.matrix.cols, 15000), 2, "large");
    }
  }
}

TEST_P(Panels, ATokensResultDoesNotDependOnItsCompany) {
  for (const PanelFormat& format : all_panel_formats()) {
    const Matrix m(format.dtype, 32, 2 * format.block_cols);
    const std::size_t tokens = 29, cols = m.matrix.cols;
    const auto x = random_floats(tokens * cols, 1);
    const auto together = multiply(m, x, tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto alone = multiply(m,
                                  {x.begin() + static_cast<std::ptrdiff_t>(t * cols),
                                   x.begin() + static_cast<std::ptrdiff_t>((t + 1) * cols)},
                                  1);
      for (std::size_t r = 0; r < m.matrix.rows; ++r)
        ASSERT_EQ(alone[r], together[t * m.matrix.rows + r]) << dtype_name(format.dtype) << ", token " << t;
    }
  }
}

TEST_P(Panels, PiecesOfAMatrixAreWhatTheWholeIsAndBiasesAreAdded) {
  const Matrix m(DType::kQ4_K, 61, 512);
  const auto x = random_floats(5 * 512, 1);
  const auto bias = random_floats(61, 1, 9);
  const auto plain = multiply(m, x, 5), biased = multiply(m, x, 5, bias.data());
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_FLOAT_EQ(plain[i] + bias[i % 61], biased[i]);
  const auto blocks = quantise(x, 5, 512);
  std::vector<float> part(5 * 29);
  kernels().rows({.weight = m.matrix,
                  .bias = nullptr,
                  .x = blocks.data(),
                  .tokens = 5,
                  .panel_begin = 2,
                  .panel_end = 4,
                  .out = part.data(),
                  .stride = 29});
  for (std::size_t t = 0; t < 5; ++t) {
    for (std::size_t r = 0; r < 29; ++r) ASSERT_EQ(part[t * 29 + r], plain[t * 61 + 32 + r]);
  }
}

TEST_P(Panels, ActivationsRoundToTheNearestOf255Steps) {
  const auto x = random_floats(7 * 96, 3);
  const auto seen = rounded(x, 7, 96);
  for (std::size_t b = 0; b < x.size(); b += kSubBlock) {
    float top = 0;
    for (std::size_t i = b; i < b + kSubBlock; ++i) top = std::max(top, std::fabs(x[i]));
    for (std::size_t i = b; i < b + kSubBlock; ++i)
      ASSERT_LE(std::fabs(seen[i] - x[i]), top / 127 * 0.50001f) << i;
  }
  const auto tiny = rounded(std::vector<float>(32, 1e-38f), 1, 32);
  for (const float value : tiny) EXPECT_EQ(value, 0);
}

TEST_P(Panels, NanAndInfReachTheOutput) {
  const Matrix m(DType::kQ4_0, 16, 64);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto x = random_floats(64, 1);
    x[40] = bad;
    for (const float value : multiply(m, x, 1)) EXPECT_FALSE(std::isfinite(value));
  }
}

// The integer products are exact and the floats are summed in one order, so whatever multiplies them, the
// bits are the same; but the portable kernels have no fused multiply-add.
TEST(PanelSets, AllWithFusedMultiplyAddsGiveTheSameBits) {
  std::vector<const Kernels*> fused;
  for (const Kernels& kernels : all_kernels()) {
    if (kernels.panel != panel_portable()) fused.push_back(&kernels);
  }
  if (fused.size() < 2) GTEST_SKIP() << "this machine has " << fused.size() << " of them";
  for (const PanelFormat& format : all_panel_formats()) {
    const Matrix m(format.dtype, 33, 3 * format.block_cols);
    for (const std::size_t tokens : {1u, 2u, 4u, 8u, 31u}) {  // every tile by itself, then together
      const auto x = random_floats(tokens * m.matrix.cols, 1);
      const auto first = multiply_with(*fused[0]->panel, m, x, tokens);
      for (const Kernels* other : fused) {
        const auto out = multiply_with(*other->panel, m, x, tokens);
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], first[i])
              << dtype_name(format.dtype) << ", " << other->target << " and " << fused[0]->target
              << ", token " << i / m.matrix.rows << " of " << tokens << ", row " << i % m.matrix.rows;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Panels, ::testing::Range<std::size_t>(0, all_kernels().size()),
                         [](const auto& set) { return std::string(all_kernels()[set.param].target); });

}  // namespace
}  // namespace doppler::cpu
