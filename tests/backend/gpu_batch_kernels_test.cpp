// The kernels for many tokens, one by one, against plain loops in double precision; with every access checked
// and with guard words around what they write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/gpu/attention_shape.h"
#include "backend/gpu/context.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/weights.h"
#include "base/float16.h"
#include "testing.h"

namespace doppler::gpu {
namespace {

// What a kernel must not touch.
constexpr std::uint32_t kGuard = 0x7fc0dead;  // a NaN, too
constexpr std::size_t kGuardFloats = 64;      // as far as bindings are aligned

std::vector<float> random_floats(std::size_t count, float scale, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

class BatchKernels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = Device::open({.adapter = {}, .software = true, .checked = true, .poison = true});
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
  static Bound within(std::string_view name, const Buffer& buffer, std::size_t floats) {
    return {name, buffer, kGuardFloats * 4, floats * 4};
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

  static std::shared_ptr<Device> device_;
  static KernelCache* kernels_;
};
std::shared_ptr<Device> BatchKernels::device_;
KernelCache* BatchKernels::kernels_ = nullptr;

// A matrix of random blocks: any codes, sane scales.
struct Matrix {
  std::vector<std::byte> file;
  TensorView view;
  std::vector<float> values;

  Matrix(DType dtype, std::size_t rows, std::size_t cols, unsigned seed = 1) {
    const DTypeInfo& info = dtype_info(dtype);
    const std::size_t block_bytes = info.block_bits / 8, blocks = rows * cols / info.block_values;
    file.resize(blocks * block_bytes);
    std::mt19937 random(seed);
    for (std::byte& byte : file) byte = static_cast<std::byte>(random());
    for (std::size_t b = 0; b < blocks; ++b) set_scales(dtype, &file[b * block_bytes], random);
    view = {"w", dtype, {rows, cols}, file};
    values.resize(rows * cols);
    EXPECT_TRUE(decode_f32(view, 0, values).has_value());
  }

  // Where ggml's block structs have their halves.
  static void set_scales(DType dtype, std::byte* block, std::mt19937& random) {
    std::vector<std::size_t> halves;
    switch (dtype) {
      case DType::kF32: {
        const float value = (static_cast<float>(random() % 2000) - 1000.0f) / 1e4f;
        std::memcpy(block, &value, 4);
        break;
      }
      case DType::kBF16:
        block[1] = static_cast<std::byte>((std::to_integer<unsigned>(block[1]) & 0x80) | 0x3d);
        break;
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4_K:
      case DType::kQ5_K:
        halves = {0, 2};
        break;
      case DType::kQ2_K:
        halves = {80, 82};
        break;
      case DType::kQ3_K:
        halves = {108};
        break;
      case DType::kQ6_K:
        halves = {208};
        break;
      case DType::kMXFP4:
        block[0] = static_cast<std::byte>(120 + random() % 8);
        break;
      default:
        halves = {0};
    }
    for (const std::size_t at : halves) {
      const float scale = (static_cast<float>(random() % 2000) - 1000.0f) / 5e4f;
      const std::uint16_t half = f32_to_f16(scale);
      std::memcpy(block + at, &half, 2);
    }
  }
};

// Activations in blocks of 32, rounded as quantise.wgsl does, for `room` tokens.
struct Blocks {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;   // (scale, scale * sum) of each block
  std::vector<double> values;  // what they stand for, [token][width]

  Blocks(const std::vector<float>& x, std::size_t tokens, std::size_t width, std::size_t room) {
    const std::size_t padded = (width + 63) / 64 * 64;
    // What no token has filled may be anything.
    codes.assign(room * padded, 77);
    scales.assign(room * padded / 16, std::bit_cast<float>(kGuard));
    values.resize(tokens * width);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t b = 0; b < padded; b += 32) {
        float most = 0;
        for (std::size_t i = b; i < b + 32 && i < width; ++i)
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

// Sums of products, and of their magnitudes, which bound a float sum's error.
struct Expected {
  double sum = 0, magnitude = 0;
};
std::vector<Expected> multiply(const std::vector<double>& x, const std::vector<float>& w, std::size_t tokens,
                               std::size_t rows, std::size_t width) {
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

class Products : public BatchKernels {
 protected:
  // A product of shape tokens x rows x width; returns its results for comparing runs.
  static std::vector<float> check(DType dtype, const GemmShape& shape, std::size_t tokens, std::size_t rows,
                                  std::size_t width, float scale = 1, bool with_bias = false) {
    SCOPED_TRACE(fmt::format("{} tokens, {} rows, {} values in {}", tokens, rows, width, shape.name()));
    const Matrix w(dtype, rows, width);
    ThreadPool pool(1);
    const TensorView* const views[] = {&w.view};
    auto matrix = upload_matrix(*device_, pool, views, device_->limits().binding_bytes);
    EXPECT_TRUE(matrix.has_value());
    if (!matrix) return {};
    const std::vector<float> x = random_floats(tokens * width, scale);
    const std::size_t room = (tokens + 63) / 64 * 64;
    const Blocks blocks(x, tokens, width, room);
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
    std::size_t wrong = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t c = 0; c < stride; ++c) {
        const float value = got[t * stride + c];
        if (c < offset || c >= offset + rows) {
          wrong += std::bit_cast<std::uint32_t>(value) == kGuard ? 0 : 1;
          continue;
        }
        const Expected& e = expected[t * rows + c - offset];
        const double sum = e.sum + (with_bias ? bias[c - offset] : 0);
        wrong += std::abs(value - sum) <= 2e-6 * e.magnitude + 1e-6 ? 0 : 1;
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

// Float activations, with weights of any kind.
TEST_F(Products, OfFloats) {
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

// Attention over a cache that holds the step's tokens already.
struct AttentionCase {
  std::uint32_t dim, heads, kv_heads, window, capacity;
  bool half, softcap;
  std::vector<std::uint32_t> slots, positions;  // by token
};

class AttentionTiles : public BatchKernels {
 protected:
  static void check(const AttentionCase& c, AttentionShape shape) {
    shape.unrolled = c.dim == 34;  // written out, kernels take a software adapter's compiler long
    SCOPED_TRACE(fmt::format("head size {}, {} tokens, window {}, {}, {}", c.dim, c.slots.size(), c.window,
                             c.half ? "f16" : "f32", shape.name()));
    const auto cut = cut_attention(device_->limits(), shape, c.dim);
    if (!cut) return;
    const std::size_t tokens = c.slots.size(), slots = 1 + *std::max_element(c.slots.begin(), c.slots.end());
    const std::uint32_t longest = 1 + *std::max_element(c.positions.begin(), c.positions.end());
    const double scale = 1 / std::sqrt(c.dim), cap = 3;
    const std::size_t q_stride = c.heads * c.dim + 6, q_offset = 2, out_stride = c.heads * c.dim + 3,
                      out_offset = 1;
    const std::vector<float> q = random_floats(tokens * q_stride, 2, 1);
    const std::size_t cached = slots * c.kv_heads * c.capacity * c.dim;
    std::vector<float> k = random_floats(cached, 1, 2), v = random_floats(cached, 1, 3);
    // What no token has filled is no number.
    std::vector<bool> filled(slots * c.capacity, false);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint32_t last = c.positions[t];
      for (std::uint32_t p = last + 1 > c.capacity ? last + 1 - c.capacity : 0; p <= last; ++p)
        filled[c.slots[t] * c.capacity + p % c.capacity] = true;
    }
    const auto row = [&](std::size_t slot, std::size_t head, std::size_t position) {
      return ((slot * c.kv_heads + head) * c.capacity + position % c.capacity) * c.dim;
    };
    for (std::size_t slot = 0; slot < slots; ++slot) {
      for (std::size_t p = 0; p < c.capacity; ++p) {
        for (std::size_t h = 0; h < c.kv_heads && !filled[slot * c.capacity + p]; ++h) {
          std::fill_n(&k[row(slot, h, p)], c.dim, NAN);
          std::fill_n(&v[row(slot, h, p)], c.dim, NAN);
        }
      }
    }
    const auto cache = [&](std::vector<float>& floats) {
      if (!c.half) return upload(floats);
      std::vector<std::uint16_t> halves;
      for (float& value : floats) {
        halves.push_back(f32_to_f16(value));
        value = f16_to_f32(halves.back());
      }
      return upload(halves);
    };
    const Buffer keys = cache(k), values_buffer = cache(v), q_buffer = upload(q);
    std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(tokens), 0, longest, 0};
    words.insert(words.end(), c.slots.begin(), c.slots.end());
    words.insert(words.end(), c.positions.begin(), c.positions.end());
    const Buffer step = upload(words);
    const std::size_t floats = tokens * out_stride, score_floats = tokens * c.heads * longest;
    const Buffer out = guarded(floats), scores = guarded(score_floats);
    ShaderValues values = {{"KV_HALF", c.half ? 1 : 0},
                           {"DIM", c.dim},
                           {"HEADS", c.heads},
                           {"KV_HEADS", c.kv_heads},
                           {"CAPACITY", c.capacity},
                           {"WINDOW", c.window},
                           {"SCALE_BITS", float_bits(scale)},
                           {"SOFTCAP", c.softcap ? 1 : 0},
                           {"EMIT_SCORES", 1},
                           {"Q_STRIDE", static_cast<std::int64_t>(q_stride)},
                           {"Q_OFFSET", static_cast<std::int64_t>(q_offset)},
                           {"OUT_STRIDE", static_cast<std::int64_t>(out_stride)},
                           {"OUT_OFFSET", static_cast<std::int64_t>(out_offset)},
                           {"COUNT", 0},
                           {"SLOTS", 4},
                           {"POSITIONS", static_cast<std::int64_t>(4 + tokens)}};
    if (c.softcap) values["SOFTCAP_BITS"] = float_bits(cap);
    add_attention_cut(values, shape, *cut);
    const auto tiles = static_cast<std::uint32_t>((tokens + shape.tokens - 1) / shape.tokens);
    run("attention_tiled.wgsl", values,
        {{"step", step},
         {"q", q_buffer},
         {"keys", keys},
         {"values", values_buffer},
         within("out", out, floats),
         within("scores", scores, score_floats)},
        {c.heads, tiles, 1});
    const std::vector<float> got = read(out, floats), got_scores = read(scores, score_floats);
    double worst = 0, worst_score = 0;
    std::size_t strays = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint32_t last = c.positions[t],
                          first = c.window != 0 && last + 1 > c.window ? last + 1 - c.window : 0;
      for (std::size_t h = 0; h < c.heads; ++h) {
        const std::size_t kv_head = h / (c.heads / c.kv_heads);
        std::vector<double> shares;
        double total = 0;
        for (std::uint32_t p = first; p <= last; ++p) {
          double score = 0;
          for (std::size_t d = 0; d < c.dim; ++d)
            score += static_cast<double>(q[t * q_stride + q_offset + h * c.dim + d]) *
                     k[row(c.slots[t], kv_head, p) + d];
          score *= scale;
          if (c.softcap) score = cap * std::tanh(score / cap);
          worst_score = std::max(worst_score, std::abs(got_scores[(t * c.heads + h) * longest + p] - score));
          shares.push_back(std::exp(score));
          total += shares.back();
        }
        for (std::uint32_t p = 0; p < longest; ++p) {
          const bool seen = p >= first && p <= last;
          strays +=
              !seen && std::bit_cast<std::uint32_t>(got_scores[(t * c.heads + h) * longest + p]) != kGuard;
        }
        for (std::size_t d = 0; d < c.dim; ++d) {
          double sum = 0;
          for (std::uint32_t p = first; p <= last; ++p)
            sum += shares[p - first] * v[row(c.slots[t], kv_head, p) + d];
          const double error = std::abs(got[t * out_stride + out_offset + h * c.dim + d] - sum / total);
          worst = std::isfinite(error) ? std::max(worst, error) : HUGE_VAL;
        }
      }
      for (std::size_t i = 0; i < out_stride; ++i) {
        const bool outside = i < out_offset || i >= out_offset + c.heads * c.dim;
        strays += outside && std::bit_cast<std::uint32_t>(got[t * out_stride + i]) != kGuard;
      }
    }
    EXPECT_LT(worst, 1e-5);
    EXPECT_LT(worst_score, 2e-5);
    EXPECT_EQ(strays, 0u);
  }

  // A prompt of `count` tokens after `before` others.
  static void add(AttentionCase& c, std::uint32_t slot, std::uint32_t before, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      c.slots.push_back(slot);
      c.positions.push_back(before + i);
    }
  }
};

TEST_F(AttentionTiles, OfAnyHeadSize) {
  for (const std::uint32_t dim : {16u, 34u, 80u, 256u}) {
    const auto shape = choose_attention_shape(device_->limits(), dim);
    ASSERT_TRUE(shape.has_value());
    AttentionCase c{dim, 2, 1, 0, 64, dim % 3 != 0, false, {}, {}};
    add(c, 0, 0, 37);
    check(c, *shape);
  }
}

TEST_F(AttentionTiles, OfAnyCut) {
  for (const AttentionShape& shape : attention_shapes()) {
    AttentionCase c{64, 4, 2, 0, 160, true, false, {}, {}};
    add(c, 0, 80, 70);
    check(c, shape);
  }
}

TEST_F(AttentionTiles, OfSeveralSequencesInAStep) {
  for (const bool half : {false, true}) {
    AttentionCase c{32, 2, 2, 0, 96, half, true, {}, {}};
    add(c, 2, 50, 3);
    add(c, 0, 0, 40);
    add(c, 1, 95, 1);
    add(c, 2, 53, 20);
    add(c, 0, 40, 2);
    check(c, {32, 16, 4});
    check(c, {8, 16, 2});
  }
}

TEST_F(AttentionTiles, OfWindowsInARing) {
  AttentionCase c{32, 4, 1, 20, 20 + 40 - 1, true, false, {}, {}};
  add(c, 0, 111, 40);
  check(c, {16, 16, 2});
  AttentionCase begin{32, 4, 1, 20, 20 + 50 - 1, false, false, {}, {}};
  add(begin, 1, 0, 50);
  check(begin, {32, 16, 4});
}

// What stands between the products, each op of it in memory as well as in 8-bit blocks.
class Elements : public BatchKernels {
 protected:
  static constexpr std::size_t kTokens = 3, kWidth = 100, kPadded = 128;

  // Blocks stand for `x` [kTokens][kWidth], to half a code, and say the sums of their codes.
  static void expect_blocks(const Buffer& x8, const Buffer& xs, const std::vector<double>& x) {
    const std::vector<float> words = read(x8, kTokens * kPadded / 4),
                             scales = read(xs, kTokens * kPadded / 16);
    std::vector<std::int8_t> codes(kTokens * kPadded);
    std::memcpy(codes.data(), words.data(), codes.size());
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t block = 0; block < kPadded / 32; ++block) {
        const float scale = scales[(t * kPadded / 32 + block) * 2],
                    sum = scales[(t * kPadded / 32 + block) * 2 + 1];
        int total = 0;
        double most = 0;
        for (std::size_t i = block * 32; i < block * 32 + 32; ++i) {
          const double value = i < kWidth ? x[t * kWidth + i] : 0;
          most = std::max(most, std::abs(value));
          EXPECT_NEAR(codes[t * kPadded + i] * scale, value, 0.501 * scale) << t << " " << i;
          total += codes[t * kPadded + i];
        }
        EXPECT_NEAR(scale, most / 127, 1e-5 * most);
        EXPECT_FLOAT_EQ(sum, scale * static_cast<float>(total));
      }
    }
  }
  static void expect_floats(const Buffer& buffer, std::size_t stride, std::size_t offset, std::size_t width,
                            const std::vector<double>& expected) {
    const std::vector<float> got = read(buffer, kTokens * stride);
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t i = 0; i < stride; ++i) {
        if (i < offset || i >= offset + width) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got[t * stride + i]), kGuard);
        } else {
          EXPECT_NEAR(got[t * stride + i], expected[t * width + i - offset], 1e-5) << t << " " << i;
        }
      }
    }
  }
  static std::vector<double> norm(const std::vector<double>& x, std::size_t width,
                                  const std::vector<float>& weight, double eps) {
    std::vector<double> out;
    for (std::size_t row = 0; row < x.size(); row += width) {
      double sum = 0;
      for (std::size_t i = 0; i < width; ++i) sum += x[row + i] * x[row + i];
      for (std::size_t i = 0; i < width; ++i)
        out.push_back(x[row + i] / std::sqrt(sum / static_cast<double>(width) + eps) * weight[i]);
    }
    return out;
  }
};

TEST_F(Elements, SumsNormsAndBlocksInOne) {
  const std::size_t stride = 112, offset = 8;
  const std::vector<float> residual = random_floats(kTokens * kWidth, 1, 1),
                           branch = random_floats(kTokens * kWidth, 2, 2);
  const std::vector<float> weight = random_floats(kWidth, 1, 3), post_weight = random_floats(kWidth, 1, 4);
  std::vector<double> h(branch.begin(), branch.end());
  const std::vector<double> post = norm(h, kWidth, post_weight, 1e-3);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = residual[i] + post[i];
  const std::vector<double> x = norm(h, kWidth, weight, 1e-5);
  const std::size_t floats = kTokens * stride;
  const Buffer h_out = guarded(floats), post_out = guarded(floats), x_out = guarded(floats);
  const Buffer x8 = guarded(kTokens * kPadded / 4), xs = guarded(kTokens * kPadded / 16);
  const std::int64_t wide = stride, at = offset;
  run("batch_norm.wgsl",
      {{"THREADS", 16},
       {"WIDTH", kWidth},
       {"ADD", 1},
       {"POST", 1},
       {"NORM", 1},
       {"QUANT", 1},
       {"FLOATS", 1},
       {"EMIT", 1},
       {"UNITS_K", 2},
       {"RESIDUAL_STRIDE", kWidth},
       {"RESIDUAL_OFFSET", 0},
       {"BRANCH_STRIDE", kWidth},
       {"BRANCH_OFFSET", 0},
       {"H_STRIDE", wide},
       {"H_OFFSET", at},
       {"POST_STRIDE", wide},
       {"POST_OFFSET", at},
       {"X_STRIDE", wide},
       {"X_OFFSET", at},
       {"EPS_BITS", float_bits(1e-5)},
       {"POST_EPS_BITS", float_bits(1e-3)}},
      {{"residual", upload(residual)},
       {"branch", upload(branch)},
       within("h_out", h_out, floats),
       {"post_weight", upload(post_weight)},
       within("post_out", post_out, floats),
       {"weight", upload(weight)},
       within("x_out", x_out, floats),
       within("x8", x8, kTokens * kPadded / 4),
       within("xs", xs, kTokens * kPadded / 16)},
      {1, kTokens, 1});
  expect_floats(h_out, stride, offset, kWidth, h);
  expect_floats(post_out, stride, offset, kWidth, post);
  expect_floats(x_out, stride, offset, kWidth, x);
  expect_blocks(x8, xs, x);
}

TEST_F(Elements, GatesAndBlocksInOne) {
  const std::vector<float> both = random_floats(kTokens * 2 * kWidth, 2);
  std::vector<double> act;
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      const double gate = both[t * 2 * kWidth + i];
      act.push_back(gate / (1 + std::exp(-gate)) * both[(t * 2 + 1) * kWidth + i]);
    }
  }
  const Buffer in = upload(both), out = guarded(kTokens * kWidth);
  const Buffer x8 = guarded(kTokens * kPadded / 4), xs = guarded(kTokens * kPadded / 16);
  run("batch_quantise.wgsl",
      {{"THREADS", 16},
       {"WIDTH", kWidth},
       {"UNITS_K", 2},
       {"GATED", 1},
       {"EMIT", 1},
       {"ACTIVATION", 0},
       {"A_STRIDE", 2 * kWidth},
       {"A_OFFSET", 0},
       {"B_STRIDE", 2 * kWidth},
       {"B_OFFSET", kWidth},
       {"OUT_STRIDE", kWidth},
       {"OUT_OFFSET", 0}},
      {{"a", in},
       {"b", in},
       within("out", out, kTokens * kWidth),
       within("x8", x8, kTokens * kPadded / 4),
       within("xs", xs, kTokens * kPadded / 16)},
      {2, kTokens, 1});
  expect_floats(out, kWidth, 0, kWidth, act);
  expect_blocks(x8, xs, act);
}

// Norms, turns and the cache's rows, for one head a workgroup and for several.
TEST_F(Elements, HeadsGoIntoTheCacheInOne) {
  constexpr std::size_t kDim = 10, kPairs = 4, kHeads = 3, kKvHeads = 2, kCapacity = 5, kSlots = 2;
  constexpr std::size_t kRow = (kHeads + 2 * kKvHeads) * kDim;
  const std::vector<float> qkv = random_floats(kTokens * kRow, 1);
  const std::vector<float> q_weight = random_floats(kDim, 1, 3), k_weight = random_floats(kDim, 1, 4);
  const std::vector<std::uint32_t> slots = {1, 1, 0}, positions = {6, 7, 300};
  std::vector<float> angles;  // of multiples of 256, then of the rest
  const auto angle = [](double position, std::size_t pair) {
    return position / std::pow(10, 0.5 * static_cast<double>(pair));
  };
  for (std::size_t row = 0; row < 2 + 256; ++row) {
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
      const double a = angle(static_cast<double>(row < 2 ? 256 * row : row - 2), pair);
      angles.push_back(static_cast<float>(std::cos(a)));
      angles.push_back(static_cast<float>(std::sin(a)));
    }
  }
  for (const bool normed : {false, true}) {
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", normed, interleaved));
      std::vector<double> q_normed, k_normed, q_turned, k_turned, v;
      for (std::size_t t = 0; t < kTokens; ++t) {
        for (std::size_t head = 0; head < kHeads + 2 * kKvHeads; ++head) {
          std::vector<double> x(&qkv[t * kRow + head * kDim], &qkv[t * kRow + head * kDim] + kDim);
          const bool is_q = head < kHeads, is_v = head >= kHeads + kKvHeads;
          if (is_v) {
            v.insert(v.end(), x.begin(), x.end());
            continue;
          }
          if (normed) x = norm(x, kDim, is_q ? q_weight : k_weight, 1e-5);
          (is_q ? q_normed : k_normed).insert((is_q ? q_normed : k_normed).end(), x.begin(), x.end());
          std::vector<double> turned = x;
          for (std::size_t pair = 0; pair < kPairs; ++pair) {
            const std::size_t a = interleaved ? 2 * pair : pair, b = interleaved ? a + 1 : pair + kPairs;
            const double phi = angle(positions[t], pair);
            turned[a] = x[a] * std::cos(phi) - x[b] * std::sin(phi);
            turned[b] = x[b] * std::cos(phi) + x[a] * std::sin(phi);
          }
          std::vector<double>& to = is_q ? q_turned : k_turned;
          to.insert(to.end(), turned.begin(), turned.end());
        }
      }
      std::vector<std::uint32_t> words(4);
      words.insert(words.end(), slots.begin(), slots.end());
      words.insert(words.end(), positions.begin(), positions.end());
      const std::size_t q_floats = kTokens * kHeads * kDim, k_floats = kTokens * kKvHeads * kDim + 0;
      const std::size_t cache_floats = kSlots * kKvHeads * kCapacity * kDim;
      const Buffer q_out = guarded(q_floats), k_out = guarded(k_floats), qn = guarded(q_floats),
                   kn = guarded(k_floats);
      const Buffer keys = guarded(cache_floats), values_buffer = guarded(cache_floats);
      ShaderValues values = {{"KV_HALF", 0},
                             {"DIM", kDim},
                             {"HEADS", kHeads},
                             {"KV_HEADS", kKvHeads},
                             {"CAPACITY", kCapacity},
                             {"TPH", normed ? 8 : 4},
                             {"HPW", normed ? 1 : 4},
                             {"NORM", normed ? 1 : 0},
                             {"EMIT", 1},
                             {"PAIRS", kPairs},
                             {"HIGH_ROWS", 2},
                             {"INTERLEAVED", interleaved ? 1 : 0},
                             {"SLOTS", 4},
                             {"POSITIONS", 4 + kTokens},
                             {"QKV_STRIDE", kRow},
                             {"Q_OFFSET", 0},
                             {"K_OFFSET", kHeads * kDim},
                             {"V_OFFSET", (kHeads + kKvHeads) * kDim},
                             {"Q_OUT_STRIDE", kHeads * kDim},
                             {"Q_OUT_OFFSET", 0},
                             {"K_OUT_STRIDE", kKvHeads * kDim},
                             {"K_OUT_OFFSET", 0}};
      std::vector<Bound> buffers = {{"step", upload(words)},
                                    {"qkv", upload(qkv)},
                                    {"angles", upload(angles)},
                                    within("q_out", q_out, q_floats),
                                    within("keys", keys, cache_floats),
                                    within("values", values_buffer, cache_floats),
                                    within("k_out", k_out, k_floats)};
      if (normed) {
        values.insert({{"EPS_BITS", float_bits(1e-5)},
                       {"QN_STRIDE", kHeads * kDim},
                       {"QN_OFFSET", 0},
                       {"KN_STRIDE", kKvHeads * kDim},
                       {"KN_OFFSET", 0}});
        buffers.push_back({"q_weight", upload(q_weight)});
        buffers.push_back({"k_weight", upload(k_weight)});
        buffers.push_back(within("q_normed", qn, q_floats));
        buffers.push_back(within("k_normed", kn, k_floats));
      }
      run("rope_append.wgsl", values, buffers, {normed ? 7u : 2u, kTokens, 1});
      expect_floats(q_out, kHeads * kDim, 0, kHeads * kDim, q_turned);
      expect_floats(k_out, kKvHeads * kDim, 0, kKvHeads * kDim, k_turned);
      if (normed) {
        expect_floats(qn, kHeads * kDim, 0, kHeads * kDim, q_normed);
        expect_floats(kn, kKvHeads * kDim, 0, kKvHeads * kDim, k_normed);
      }
      std::vector<double> expected_k(cache_floats, NAN), expected_v(cache_floats, NAN);
      for (std::size_t t = 0; t < kTokens; ++t) {
        for (std::size_t head = 0; head < kKvHeads; ++head) {
          const std::size_t to = ((slots[t] * kKvHeads + head) * kCapacity + positions[t] % kCapacity) * kDim;
          const std::size_t from = (t * kKvHeads + head) * kDim;
          std::copy_n(&k_turned[from], kDim, &expected_k[to]);
          std::copy_n(&v[from], kDim, &expected_v[to]);
        }
      }
      const std::vector<float> got_k = read(keys, cache_floats), got_v = read(values_buffer, cache_floats);
      for (std::size_t i = 0; i < cache_floats; ++i) {
        if (std::isnan(expected_k[i])) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got_k[i]), kGuard);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got_v[i]), kGuard);
        } else {
          EXPECT_NEAR(got_k[i], expected_k[i], 1e-5);
          EXPECT_NEAR(got_v[i], expected_v[i], 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
