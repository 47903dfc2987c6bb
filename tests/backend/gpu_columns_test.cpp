// Matrix products of a few rows of activations, as columns: every kind of weight, any number of rows, and
// gate and up in one.
#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/self_check.h"
#include "backend/gpu/shader_values.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

constexpr StoredAs kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16, kHeadOfBF16};
constexpr DType kBlockTypes[] = {DType::kQ4_0,   DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                 DType::kQ2_K,   DType::kQ3_K,   DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                 DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

class ColumnProducts : public BatchKernels {
 protected:
  struct Asked {
    std::size_t tokens = 5, rows = 40, width = 352;
    std::uint32_t columns = 8;
    bool bias = false, eight_bits = true;
  };

  // What the kernel's text takes of a cut and a product, whatever it does with the sums.
  static ShaderValues values_of(const ColumnsShape& shape, const Asked& asked) {
    return {{"R", shape.rows},
            {"LANES", shape.lanes},
            {"UNITS", shape.units},
            {"SETS", shape.sets},
            {"COLUMNS", asked.columns},
            {"ROWS", static_cast<std::int64_t>(asked.rows)},
            {"ACT", asked.eight_bits ? 1 : 0},
            {"COUNT", 0},
            {"BIAS", asked.bias ? 1 : 0}};
  }

  // Activations in blocks of 32 as quantise.wgsl leaves them, random, for as many tokens as are there.
  static std::vector<double> blocks(std::size_t tokens, std::size_t padded, std::vector<std::uint32_t>& codes,
                                    std::vector<float>& scales) {
    std::vector<double> x(tokens * padded);
    const std::vector<float> numbers = random_floats(tokens * padded / 32, 1, 5);
    codes.assign(tokens * padded / 4, 0);
    for (std::size_t block = 0; block < tokens * padded / 32; ++block) {
      const float scale = std::abs(numbers[block]) / 127;
      int sum = 0;
      for (std::size_t k = block * 32; k < block * 32 + 32; ++k) {
        const int code = static_cast<int>((k * 2654435761u >> 8) % 255) - 127;
        codes[k / 4] |= static_cast<std::uint32_t>(code & 255) << (8 * (k % 4));
        sum += code;
        x[k] = static_cast<double>(scale) * code;
      }
      scales.push_back(scale);
      scales.push_back(scale * static_cast<float>(sum));
    }
    return x;
  }

  static std::vector<float> check(StoredAs stored, const ColumnsShape& shape, const Asked& asked) {
    const auto [tokens, rows, width, columns, with_bias, eight_bits] = asked;
    SCOPED_TRACE(fmt::format("{} {} tokens, {} rows, {} values, {} columns, {} x {} x {} x {}", stored.name(),
                             tokens, rows, width, columns, shape.rows, shape.lanes, shape.units, shape.sets));
    const Matrix w(stored.type, rows, width);
    ThreadPool pool(1);
    const TensorView* const views[] = {&w.view};
    auto matrix = upload_matrix(*device_, pool, views, device_->limits().binding_bytes, stored.format());
    EXPECT_TRUE(matrix.has_value());
    if (!matrix) return {};
    const std::size_t padded = std::size_t{matrix->units} * 64, stride = rows + 5, offset = 3;
    const std::size_t floats = (tokens * stride + 3) / 4 * 4;
    const std::vector<float> bias = random_floats(rows, 1, 3);
    const Buffer out = guarded(floats), bias_buffer = upload(bias),
                 step = upload(std::vector<std::uint32_t>{static_cast<std::uint32_t>(tokens)});
    ShaderValues values = values_of(shape, asked);
    values.merge(ShaderValues{{"EPI", 0},
                              {"EMIT_ACT", 0},
                              {"OUT_STRIDE", static_cast<std::int64_t>(stride)},
                              {"OUT_OFFSET", static_cast<std::int64_t>(offset)}});
    add_format(values, *matrix);
    std::vector<Bound> buffers = {
        {"step", step}, {"codes", matrix->shards[0].codes}, within("out", out, floats)};
    if (matrix->format.has_scales()) buffers.push_back({"scales", matrix->shards[0].scales});
    if (with_bias) buffers.push_back({"bias", bias_buffer});
    std::vector<double> x(tokens * width);
    if (eight_bits) {
      std::vector<std::uint32_t> codes;
      std::vector<float> scales;
      const std::vector<double> all = blocks(tokens, padded, codes, scales);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = all[i / width * padded + i % width];
      buffers.push_back({"x8", upload(codes)});
      buffers.push_back({"xs", upload(scales)});
    } else {
      const std::vector<float> numbers = random_floats(tokens * width, 1, 9);
      x.assign(numbers.begin(), numbers.end());
      values["X_VEC"] = 1;
      values["WIDTH"] = static_cast<std::int64_t>(width);
      values["X_STRIDE"] = static_cast<std::int64_t>(width);
      values["X_OFFSET"] = 0;
      buffers.push_back({"x", upload(numbers)});
    }
    const std::size_t here = shape.results(false);
    run("gemv_columns.wgsl", values, buffers,
        {static_cast<std::uint32_t>((rows + here - 1) / here),
         static_cast<std::uint32_t>((tokens + columns - 1) / columns), 1});
    const std::vector<float> got = read(out, floats);
    const std::vector<Expected> expected = multiply(x, w.values, tokens, rows, width);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < floats; ++i) {
      const std::size_t token = i / stride, row = i % stride - offset;  // wraps around before the first
      if (token >= tokens || row >= rows) {
        wrong += std::bit_cast<std::uint32_t>(got[i]) == kGuard ? 0 : 1;
        continue;
      }
      const Expected& e = expected[token * rows + row];
      const double sum = e.sum + (with_bias ? bias[row] : 0);
      wrong += std::abs(got[i] - sum) <= 3e-6 * e.magnitude + 1e-6 ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u);
    return got;
  }

  static void check_gated(DType dtype, const ColumnsShape& shape, const Asked& asked);
};

TEST_F(ColumnProducts, OfEveryFormat) {
  for (const DType dtype : kBlockTypes) {
    const std::size_t width = dtype_info(dtype).block_values == 256 ? 768 : 352;
    check(dtype, {8, 6, width == 768 ? 2u : 1u, 1}, {.width = width, .columns = 2, .bias = true});
  }
}

TEST_F(ColumnProducts, OfFloatActivations) {
  for (const StoredAs stored : kFloatTypes)
    check(stored, {8, 2, 3, 1}, {.width = 352, .columns = 2, .eight_bits = false});
  // The second of two threads has units behind the row.
  for (const StoredAs stored : {StoredAs(DType::kBF16), kHeadOfBF16})
    check(stored, {8, 2, 4, 1}, {.width = 352, .columns = 2, .eight_bits = false});
  check(DType::kQ4_0, {8, 2, 3, 1}, {.width = 352, .columns = 2, .eight_bits = false});
}

TEST_F(ColumnProducts, OfAnyNumberOfTokensAndRows) {
  // A thread with two rows; the last workgroup is not full, nor is the last thread's share.
  for (const std::size_t tokens : {1, 2, 3, 4, 5, 9})
    check(DType::kQ4_0, {8, 2, 3, 2}, {.tokens = tokens, .rows = 77, .columns = 4});
  for (const std::size_t rows : {1, 16, 17, 64})
    check(DType::kQ4_0, {8, 2, 3, 2}, {.rows = rows, .columns = 4});
  check(DType::kQ4_0, {8, 6, 1, 4}, {.rows = 77, .columns = 2});
  check(DType::kQ4_K, {8, 3, 4, 1}, {.width = 768, .columns = 2});
}

TEST_F(ColumnProducts, OfARowDoNotDependOnTheOthers) {
  const std::vector<float> all = check(DType::kQ4_0, {8, 6, 1, 1}, {.tokens = 8, .columns = 8}),
                           two = check(DType::kQ4_0, {8, 6, 1, 1}, {.tokens = 2, .columns = 2});
  ASSERT_FALSE(two.empty());
  EXPECT_EQ(std::memcmp(all.data() + 3, two.data() + 3, 40 * 4), 0);
}

// Of any cut, written out or unit by unit in a loop: 6 units a row, of which a thread has 1 to 8.
TEST_F(ColumnProducts, AddInOneOrder) {
  for (const bool eight_bits : {true, false}) {
    const DType dtype = eight_bits ? DType::kQ4_0 : DType::kBF16;
    std::vector<ColumnsShape> shapes = {{8, 6, 1, 1}, {8, 3, 2, 2}};
    if (eight_bits) shapes.insert(shapes.end(), {{8, 2, 4, 4}, {8, 1, 8, 1}});
    std::vector<float> first;
    for (const ColumnsShape& shape : shapes) {
      const std::vector<float> sums =
          check(dtype, shape, {.tokens = 4, .columns = 4, .eight_bits = eight_bits});
      if (first.empty()) first = sums;
      ASSERT_EQ(sums.size(), first.size());
      EXPECT_EQ(std::memcmp(sums.data(), first.data(), first.size() * 4), 0);
    }
  }
}

// Gate, up and activation in one, in blocks of 8 bits: against the self-check's plain loops.
TEST_F(ColumnProducts, OfGateAndUpLeaveBlocks) {
  const auto difference = [](DType dtype, std::int64_t rows, std::int64_t units, const ColumnsShape& shape,
                             std::uint32_t columns, bool bias, std::int64_t activation) {
    const WeightFormat format = format_of(dtype);
    ShaderValues values =
        values_of(shape, {.rows = static_cast<std::size_t>(rows), .columns = columns, .bias = bias});
    values.merge(ShaderValues{{"EPI", 1},
                              {"EMIT_ACT", 0},
                              {"OUT_UNITS", (rows + 63) / 64},
                              {"ACTIVATION", activation},
                              {"FORM", static_cast<std::int64_t>(format.codes)},
                              {"SCALES", static_cast<std::int64_t>(format.scales)},
                              {"UNITS_K", units}});
    EXPECT_TRUE(can_check("gemv_columns.wgsl", values));
    auto kernel = Kernel::create(*device_, "gemv_columns.wgsl", values);
    EXPECT_TRUE(kernel.has_value()) << (kernel ? "" : kernel.error().message);
    const auto found = difference_from_cpu(*device_, *kernel, values);
    EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
    return found ? *found : "";
  };
  EXPECT_EQ(difference(DType::kQ4_0, 64, 5, {32, 2, 3, 2}, 4, true, 0), "");
  EXPECT_EQ(difference(DType::kQ4_0, 96, 1, {32, 1, 1, 2}, 8, false, 1), "");  // fewer threads than words
  EXPECT_EQ(difference(DType::kQ4_K, 32, 4, {32, 4, 1, 2}, 2, false, 2), "");
  EXPECT_EQ(difference(DType::kQ4_0, 96, 3, {16, 3, 1, 4}, 4, true, 0), "");  // two rows of each
}

// The same in every workgroup, with rows that end in the middle of a block, columns that no token has, and
// results as floats besides; nothing else is written. The activation is x itself.
void ColumnProducts::check_gated(DType dtype, const ColumnsShape& shape, const Asked& asked) {
  const auto [tokens, rows, width, columns, with_bias, eight_bits] = asked;
  SCOPED_TRACE(fmt::format("{} {} tokens, {} rows, {} columns, {} x {} x {} x {}", dtype_info(dtype).name,
                           tokens, rows, columns, shape.rows, shape.lanes, shape.units, shape.sets));
  const Matrix w(dtype, 2 * rows, width);
  ThreadPool pool(1);
  const TensorView* const views[] = {&w.view};
  ASSERT_OK_AND_ASSIGN(const GpuMatrix matrix,
                       upload_matrix(*device_, pool, views, device_->limits().binding_bytes));
  std::vector<std::uint32_t> x_codes;
  std::vector<float> x_scales;
  const std::size_t padded = std::size_t{matrix.units} * 64;
  const std::vector<double> x = blocks(tokens, padded, x_codes, x_scales);
  ASSERT_EQ(padded, width);
  const std::vector<float> bias = random_floats(2 * rows, 1, 3);
  const std::size_t stride = (rows + 9) / 4 * 4, offset = 3, floats = tokens * stride,
                    out_units = (rows + 63) / 64 + 1, words = tokens * out_units * 16,
                    scales = tokens * out_units * 4;
  const Buffer out = guarded(floats), out8 = guarded(words), outs = guarded(scales);
  ShaderValues values = values_of(shape, asked);
  values.merge(ShaderValues{{"EPI", 1},
                            {"EMIT_ACT", 1},
                            {"ACTIVATION", 7},
                            {"OUT_UNITS", static_cast<std::int64_t>(out_units)},
                            {"OUT_STRIDE", static_cast<std::int64_t>(stride)},
                            {"OUT_OFFSET", static_cast<std::int64_t>(offset)}});
  add_format(values, matrix);
  std::vector<Bound> buffers = {
      {"step", upload(std::vector<std::uint32_t>{static_cast<std::uint32_t>(tokens)})},
      {"codes", matrix.shards[0].codes},
      {"scales", matrix.shards[0].scales},
      {"x8", upload(x_codes)},
      {"xs", upload(x_scales)},
      within("out", out, floats),
      within("out8", out8, words),
      within("outs", outs, scales)};
  if (with_bias) buffers.push_back({"bias", upload(bias)});
  const std::size_t here = shape.results(true), groups = (rows + here - 1) / here;
  run("gemv_columns.wgsl", values, buffers,
      {static_cast<std::uint32_t>(groups), static_cast<std::uint32_t>((tokens + columns - 1) / columns), 1});
  const std::vector<float> got = read(out, floats), got8 = read(out8, words), got_scales = read(outs, scales);
  const auto is_guard = [](float value) { return std::bit_cast<std::uint32_t>(value) == kGuard; };

  const std::vector<Expected> sums = multiply(x, w.values, tokens, 2 * rows, width);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < floats; ++i) {
    const std::size_t token = i / stride, row = i % stride - offset;  // wraps around before the first
    if (row >= rows) {
      wrong += is_guard(got[i]) ? 0 : 1;
      continue;
    }
    const Expected &gate = sums[token * 2 * rows + row], &up = sums[token * 2 * rows + rows + row];
    const double g = gate.sum + (with_bias ? bias[row] : 0), u = up.sum + (with_bias ? bias[rows + row] : 0);
    const double g_error = 3e-6 * gate.magnitude + 1e-6, u_error = 3e-6 * up.magnitude + 1e-6;
    wrong += std::abs(got[i] - g * u) <= std::abs(g) * u_error + std::abs(u) * g_error + g_error * u_error +
                                             1e-6 * std::abs(g * u)
                 ? 0
                 : 1;
  }
  EXPECT_EQ(wrong, 0u) << "of the results";

  // Blocks of what was stored as floats, with zeros behind the last row.
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t block = 0; block < out_units * 2; ++block) {
      const std::size_t word = token * out_units * 16 + block * 8,
                        scale = (token * out_units * 2 + block) * 2;
      if (block >= groups * here / 32) {
        for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(is_guard(got8[word + i])) << "word " << word + i;
        EXPECT_TRUE(is_guard(got_scales[scale]) && is_guard(got_scales[scale + 1])) << "scale " << scale;
        continue;
      }
      const auto result = [&](std::size_t i) {
        const std::size_t row = block * 32 + i;
        return row < rows ? got[token * stride + offset + row] : 0.0f;
      };
      float most = 0;
      for (std::size_t i = 0; i < 32; ++i) most = std::max(most, std::abs(result(i)));
      int sum = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        const auto four = std::bit_cast<std::uint32_t>(got8[word + i / 4]);
        const int code = static_cast<std::int8_t>(four >> (8 * (i % 4)) & 255);
        sum += code;
        EXPECT_NEAR(code, result(i) * 127 / most, 0.5001) << "token " << token << ", row " << block * 32 + i;
      }
      EXPECT_NEAR(got_scales[scale], most / 127, 1e-6 * most);
      EXPECT_NEAR(got_scales[scale + 1], most / 127 * static_cast<float>(sum), 1e-5 * most * 32);
    }
  }
}

TEST_F(ColumnProducts, OfGateAndUpInEveryWorkgroup) {
  check_gated(DType::kQ4_0, {32, 2, 3, 2}, {.rows = 96, .width = 384, .columns = 4, .bias = true});
  check_gated(DType::kQ4_0, {16, 3, 2, 4}, {.tokens = 7, .rows = 80, .width = 384, .columns = 4});
  check_gated(DType::kQ4_K, {32, 3, 2, 2}, {.tokens = 3, .rows = 80, .width = 256, .columns = 2});
  check_gated(DType::kQ8_0, {32, 1, 5, 2}, {.tokens = 2, .rows = 64, .width = 320, .columns = 8});
}

// Every shape that is chosen for the published models' matrices can be run, and covers its row.
TEST_F(ColumnProducts, HaveAShapeForEveryMatrix) {
  const Limits& limits = device_->limits();
  for (const DType dtype : {DType::kQ4_0, DType::kQ6_K, DType::kQ8_0, DType::kBF16, DType::kF32}) {
    for (const std::uint32_t rows : {1u, 100u, 1152u, 1536u, 14336u, 262144u}) {
      for (const std::uint32_t units : {1u, 5u, 16u, 18u, 108u, 448u}) {
        const auto shape = choose_columns_shape(limits, format_of(dtype), rows, units, false);
        ASSERT_TRUE(shape.has_value()) << rows << " x " << units;
        EXPECT_GE(shape->lanes * shape->units, units);
        EXPECT_LE(shape->rows * shape->sets, 64u);
        EXPECT_LE(shape->threads(), limits.workgroup_invocations);
      }
    }
  }
}

TEST(FewRowsShape, FillsALargeGpu) {
  Limits limits;
  limits.workgroup_bytes = 49152;
  limits.workgroup_invocations = 1024;
  limits.workgroups_per_dimension = 65535;
  const WeightFormat format = format_of(DType::kQ4_0);
  for (const std::uint32_t tile : {16u, 32u, 64u}) {
    // The narrow products of a small model are split until most processors have a part.
    for (const auto& [rows, units] :
         {std::pair{1152u, 108u}, std::pair{1536u, 18u}, std::pair{2048u, 128u}}) {
      const auto shape = choose_few_rows_shape(limits, format, tile, rows, units);
      ASSERT_TRUE(shape.has_value());
      EXPECT_EQ(shape->tile_tokens, tile);
      const std::uint32_t groups = ceil_div(rows, shape->tile_rows) * shape->splits;
      EXPECT_GE(groups, 64u) << shape->name();
      EXPECT_LE(groups, 1056u) << shape->name();
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
