// Every kernel, on every instruction set of this machine and the portable one, against plain loops in double
// precision: whole vectors, tails, single rows, large activations, weights at odd addresses, NaN and Inf.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/kernels.h"
#include "base/float16.h"
#include "harness.h"
#include "model/activation.h"

namespace doppler::cpu {
namespace {

using doppler::testing::relative_error;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
// Below, at and above the vector widths of every target, odd and even, and the widths of real models.
constexpr std::size_t kWidths[] = {1, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 96, 288, 511, 512, 513, 1152, 2050};

class Kernel : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Kernels& kernels() const { return all_kernels()[GetParam()]; }

  std::vector<float> random(std::size_t count, float scale = 1) {
    std::vector<float> values(count);
    std::normal_distribution<float> normal(0, scale);
    for (float& v : values) v = normal(generator_);
    return values;
  }

  std::mt19937 generator_{7};
};

// A weight matrix with its bytes at an odd address.
struct StoredMatrix {
  std::vector<std::uint8_t> bytes;
  WeightMatrix view;
  std::vector<float> values;  // exactly what is stored

  StoredMatrix(DType dtype, std::size_t rows, std::size_t cols, const std::vector<float>& from)
      : values(from) {
    const std::size_t size = dtype == DType::kF32 ? 4 : 2;
    bytes.resize(from.size() * size + 1);
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::uint8_t* to = bytes.data() + 1 + i * size;
      const std::uint16_t half = dtype == DType::kF16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
      if (dtype == DType::kF32) {
        std::memcpy(to, &from[i], 4);
      } else {
        std::memcpy(to, &half, 2);
        values[i] = dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
      }
    }
    view = {bytes.data() + 1, dtype, rows, cols};
  }
};

struct MatmulCase {
  std::size_t rows, cols, tokens;
  float scale = 1;
};

std::vector<float> run_matmul(const MatmulKernels& kernels, const StoredMatrix& weight,
                              const std::vector<float>& x, std::size_t tokens, const float* bias,
                              std::size_t row_begin, std::size_t row_end) {
  const std::size_t cols = weight.view.cols, count = row_end - row_begin;
  std::vector<float> packed(kernels.packed_floats(tokens, cols)), scratch(kernels.scratch_floats(tokens));
  kernels.pack(x.data(), tokens, cols, 0, (tokens + kernels.tile_tokens - 1) / kernels.tile_tokens,
               packed.data());
  if (kernels.is_packed(tokens, cols)) {
    EXPECT_TRUE(packed == x);
  }
  std::vector<float> out(tokens * count, kNan);
  kernels.rows({.weight = weight.view,
                .bias = bias,
                .packed = packed.data(),
                .tokens = tokens,
                .row_begin = row_begin,
                .row_end = row_end,
                .out = out.data(),
                .stride = count,
                .scratch = scratch.data()});
  return out;
}

TEST_P(Kernel, MatmulAgreesWithSumsInDouble) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::size_t cols : kWidths) {
      // Fewer and more tokens than a tile holds, and rows that leave tiles and blocks unfinished.
      for (const auto& [rows, tokens] :
           std::vector<std::pair<std::size_t, std::size_t>>{{1, 1}, {7, 2}, {37, 7}, {6, 13}}) {
        const StoredMatrix weight(dtype, rows, cols, random(rows * cols));
        const std::vector<float> x = random(tokens * cols, 15000), bias = random(rows, 1000);
        std::vector<float> expected(tokens * rows);
        for (std::size_t t = 0; t < tokens; ++t) {
          for (std::size_t r = 0; r < rows; ++r) {
            double sum = bias[r];
            for (std::size_t c = 0; c < cols; ++c)
              sum += static_cast<double>(weight.values[r * cols + c]) * x[t * cols + c];
            expected[t * rows + r] = static_cast<float>(sum);
          }
        }
        const std::vector<float> got = run_matmul(*kernels().matmul, weight, x, tokens, bias.data(), 0, rows);
        EXPECT_LT(relative_error(got, expected), 3e-6)
            << fmt::format("{} {}x{} tokens {}", dtype_name(dtype), rows, cols, tokens);
      }
    }
  }
}

TEST_P(Kernel, MatmulGivesARowAndTokenTheSameBitsInAnyCompany) {
  for (const std::size_t cols : {17, 288, 512, 1300}) {
    const std::size_t rows = 41, tokens = 20;
    const StoredMatrix weight(DType::kBF16, rows, cols, random(rows * cols));
    const std::vector<float> x = random(tokens * cols);
    const std::vector<float> together = run_matmul(*kernels().matmul, weight, x, tokens, nullptr, 0, rows);
    for (std::size_t size = 1; size < tokens; ++size) {
      // `size` tokens from the t-th on, and only some of the rows.
      const std::size_t first = tokens - size, row_begin = size % 7, row_end = rows - size % 5;
      const std::vector<float> part(x.begin() + static_cast<std::ptrdiff_t>(first * cols), x.end());
      const std::vector<float> alone =
          run_matmul(*kernels().matmul, weight, part, size, nullptr, row_begin, row_end);
      for (std::size_t t = 0; t < size; ++t) {
        for (std::size_t r = row_begin; r < row_end; ++r) {
          ASSERT_EQ(alone[t * (row_end - row_begin) + r - row_begin], together[(first + t) * rows + r])
              << size << " tokens, row " << r;
        }
      }
    }
  }
}

TEST_P(Kernel, MatmulReaches70000Rows) {
  const std::size_t rows = 70000, cols = 5;
  const StoredMatrix weight(DType::kF16, rows, cols, random(rows * cols));
  const std::vector<float> x(cols, 1.0f);
  const std::vector<float> got = run_matmul(*kernels().matmul, weight, x, 1, nullptr, 0, rows);
  for (const std::size_t r : {std::size_t{0}, std::size_t{65535}, std::size_t{65536}, rows - 1}) {
    double sum = 0;
    for (std::size_t c = 0; c < cols; ++c) sum += weight.values[r * cols + c];
    EXPECT_NEAR(got[r], sum, 1e-5) << r;
  }
}

TEST_P(Kernel, EveryHalfIsDecodedExactly) {
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  std::vector<float> got(codes.size());
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const WeightMatrix view{reinterpret_cast<const std::uint8_t*>(codes.data()), dtype, 1, codes.size()};
    kernels().element->decode_row(view, 0, 1.0f, got.data());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float expected = dtype == DType::kF16 ? f16_to_f32(codes[i]) : bf16_to_f32(codes[i]);
      ASSERT_TRUE(got[i] == expected || (std::isnan(got[i]) && std::isnan(expected))) << i;
    }
  }
}

TEST_P(Kernel, NormsAgree) {
  for (const std::size_t width : kWidths) {
    for (const float scale : {1e-3f, 1.0f, 15000.0f}) {
      const std::vector<float> x = random(width, scale), weight = random(width);
      std::vector<float> expected(width), got(width), in_place = x;
      double squares = 0;
      for (const float v : x) squares += static_cast<double>(v) * v;
      for (std::size_t i = 0; i < width; ++i) {
        expected[i] =
            static_cast<float>(x[i] / std::sqrt(squares / static_cast<double>(width) + 1e-6) * weight[i]);
      }
      kernels().element->rms_norm(x.data(), weight.data(), width, 1e-6, got.data());
      kernels().element->rms_norm(x.data(), weight.data(), width, 1e-6, in_place.data());
      EXPECT_LT(relative_error(got, expected), 1e-6) << width;
      EXPECT_TRUE(got == in_place);
    }
  }
}

TEST_P(Kernel, RotationTurnsPairsAndPassesTheRestThrough) {
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    for (const auto& [pairs, dim] :
         std::vector<std::pair<std::size_t, std::size_t>>{{1, 2}, {12, 24}, {16, 32}, {24, 96}, {128, 256}}) {
      const std::vector<float> x = random(dim, 100), cos = random(pairs), sin = random(pairs);
      std::vector<float> expected = x, got(dim), in_place = x;
      for (std::size_t i = 0; i < pairs; ++i) {
        const std::size_t a = layout == RopeLayout::kHalf ? i : 2 * i,
                          b = layout == RopeLayout::kHalf ? i + pairs : 2 * i + 1;
        expected[a] =
            static_cast<float>(static_cast<double>(x[a]) * cos[i] - static_cast<double>(x[b]) * sin[i]);
        expected[b] =
            static_cast<float>(static_cast<double>(x[b]) * cos[i] + static_cast<double>(x[a]) * sin[i]);
      }
      kernels().element->rope(x.data(), cos.data(), sin.data(), pairs, dim, layout, got.data());
      kernels().element->rope(in_place.data(), cos.data(), sin.data(), pairs, dim, layout, in_place.data());
      EXPECT_LT(relative_error(got, expected), 1e-6) << pairs << " of " << dim;
      EXPECT_TRUE(got == in_place);
    }
  }
}

// The worst error relative to each value, over a sweep of a function's arguments.
template <typename Function, typename Expected>
double worst_error(const std::vector<float>& x, Function function, Expected expected) {
  std::vector<float> got(x.size());
  function(x, got);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = expected(static_cast<double>(x[i]));
    if (std::abs(want) < 1e-35) continue;  // there e^-x overflows, and the result is 0
    worst = std::max(worst, std::abs(got[i] - want) / std::abs(want));
  }
  return worst;
}

TEST_P(Kernel, ActivationsAndSoftcapsAreAccurateEverywhere) {
  std::vector<float> x;
  for (float v = 1e-6f; v < 20000; v *= 1.01f) x.push_back(v), x.push_back(-v);
  const std::vector<float> ones(x.size(), 1.0f);
  const auto gated = [&](Activation activation) {
    return [&, activation](const std::vector<float>& in, std::vector<float>& out) {
      kernels().element->gated(activation, in.data(), ones.data(), in.size(), out.data());
    };
  };
  EXPECT_LT(worst_error(x, gated(Activation::kSilu), [](double v) { return v / (1 + std::exp(-v)); }), 2e-6);
  // Far on the negative side 1 + tanh cancels in double too; the exact form there is x / (1 + e^-2u).
  EXPECT_LT(worst_error(x, gated(Activation::kGeluTanh),
                        [](double v) {
                          return v / (1 + std::exp(-2 * 0.7978845608028654 * (v + 0.044715 * v * v * v)));
                        }),
            2e-5);
  EXPECT_LT(worst_error(x, gated(Activation::kGeluErf),
                        [](double v) { return 0.5 * v * (1 + std::erf(v * 0.7071067811865476)); }),
            1e-6);
  // Relative to what is added: near 0 the two parts cancel.
  const Xielu numbers{.alpha_p = 0.8, .alpha_n = 1.25, .beta = 0.5, .eps = -1e-6};
  std::vector<float> bent(x.size());
  kernels().element->xielu(numbers, x.data(), x.size(), bent.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], want = activate(Activation::kXielu, v, numbers);
    EXPECT_NEAR(bent[i], want, 1e-6 * (0.8 * v * v + 1.75 * std::abs(v))) << v;
    float one = 0;
    kernels().element->xielu(numbers, &x[i], 1, &one);
    EXPECT_EQ(one, bent[i]) << v;
  }
  for (const float cap : {30.0f, 50.0f}) {
    EXPECT_LT(worst_error(
                  x,
                  [&](const auto& in, auto& out) {
                    kernels().element->softcap(in.data(), cap, in.size(), out.data());
                  },
                  [cap](double v) { return cap * std::tanh(v / cap); }),
              1e-6);
  }
}

TEST_P(Kernel, ElementwiseResultsDoNotDependOnThePlaceInARow) {
  const std::vector<float> gate = random(100, 3), up = random(100);
  std::vector<float> whole(100), sum(100), capped(100);
  kernels().element->gated(Activation::kGeluTanh, gate.data(), up.data(), 100, whole.data());
  kernels().element->add(gate.data(), up.data(), 1, 100, sum.data());
  std::vector<float> scaled(100), squares(100);
  kernels().element->add(gate.data(), up.data(), 0.3f, 100, scaled.data());
  kernels().element->gated(Activation::kReluSquared, gate.data(), nullptr, 100, squares.data());
  kernels().element->softcap(gate.data(), 2, 100, capped.data());
  for (std::size_t i = 0; i < 100; ++i) {
    float one = 0;
    kernels().element->gated(Activation::kGeluTanh, &gate[i], &up[i], 1, &one);
    EXPECT_EQ(one, whole[i]);
    kernels().element->softcap(&gate[i], 2, 1, &one);
    EXPECT_EQ(one, capped[i]);
    EXPECT_EQ(gate[i] + up[i], sum[i]);
    kernels().element->add(&gate[i], &up[i], 0.3f, 1, &one);
    EXPECT_EQ(one, scaled[i]);
    EXPECT_NEAR(one, gate[i] + 0.3f * up[i], 1e-6);
    EXPECT_EQ(gate[i] > 0 ? gate[i] * gate[i] : 0, squares[i]);
  }
}

TEST_P(Kernel, CentersARowOfAnyWidth) {
  for (const std::size_t width : {1, 3, 16, 37, 300}) {
    std::vector<float> row = random(width, 3);
    for (float& x : row) x += 5;
    double mean = 0;
    for (const float x : row) mean += x / static_cast<double>(width);
    std::vector<float> centered(width);
    kernels().element->center(row.data(), width, centered.data());
    for (std::size_t i = 0; i < width; ++i) EXPECT_NEAR(centered[i], row[i] - mean, 4e-6) << width;
  }
}

TEST_P(Kernel, NanAndInfinityPassThrough) {
  const float x[] = {kNan, kInf, -kInf, 1, 2, 3};
  const float ones[] = {1, 1, 1, 1, 1, 1};
  float out[6];
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    kernels().element->gated(activation, x, ones, 6, out);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[1], kInf);
    EXPECT_TRUE(std::isnan(out[2]));  // -inf times 0, as the formula says
    EXPECT_FALSE(std::isnan(out[3]));
  }
  kernels().element->softcap(x, 30, 6, out);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 30);
  EXPECT_EQ(out[2], -30);
  kernels().element->rms_norm(x, ones, 6, 1e-6, out);
  for (const float v : out) EXPECT_TRUE(std::isnan(v));
  const StoredMatrix weight(DType::kF16, 2, 3, {1, kInf, 1, 1, 2, kNan});
  const std::vector<float> got = run_matmul(*kernels().matmul, weight, {1, 1, 1}, 1, nullptr, 0, 2);
  EXPECT_EQ(got[0], kInf);
  EXPECT_TRUE(std::isnan(got[1]));
}

struct AttentionData {
  std::size_t group, head_dim, capacity, first, count;
  float softcap = 0;
};

// Rows of a cache as a type stores them, and the values that a reader of the format sees there.
struct Stored {
  std::vector<std::uint8_t> rows;
  std::vector<float> read;
};

float read_value(KvType type, const std::uint8_t* row, std::size_t dim, std::size_t i) {
  const auto half_at = [&](std::size_t byte) {
    std::uint16_t half;
    std::memcpy(&half, row + byte, 2);
    return f16_to_f32(half);
  };
  if (type == KvType::kF16) return half_at(2 * i);
  if (type == KvType::kQ8_0) return static_cast<std::int8_t>(row[i]) * half_at(dim + i / 32 * 2);
  float value;
  std::memcpy(&value, row + 4 * i, 4);
  return value;
}

// What a cache of each type keeps of a value, relative to the largest of its block: half a unit in the last
// place.
double worst_rounding(KvType type) {
  return type == KvType::kF32 ? 0 : type == KvType::kF16 ? 0x1p-11 : 0.5 / 127 + 0x1p-11;
}

// scores and values of a chunk, and what they should be, for the values that the cache holds.
class AttentionOf : public Kernel {
 protected:
  Stored store(KvType type, const std::vector<float>& values, std::size_t dim) const {
    const std::size_t row_bytes = kv_row_bytes(type, dim);
    Stored out{std::vector<std::uint8_t>(values.size() / dim * row_bytes), {}};
    for (std::size_t r = 0; r < values.size() / dim; ++r) {
      kernels().attention->store(type, &values[r * dim], dim, &out.rows[r * row_bytes]);
      for (std::size_t i = 0; i < dim; ++i) {
        out.read.push_back(read_value(type, &out.rows[r * row_bytes], dim, i));
        const std::size_t block = r * dim + i / 32 * 32, end = std::min(block + 32, (r + 1) * dim);
        float top = 0;
        for (std::size_t j = block; j < end; ++j) top = std::max(top, std::fabs(values[j]));
        EXPECT_LE(std::fabs(out.read.back() - values[r * dim + i]), top * worst_rounding(type) * 1.001);
      }
    }
    return out;
  }
  void agrees_with_softmax(KvType type);
};

TEST_P(AttentionOf, F32CachesAgreesWithSoftmaxInDouble) {
  agrees_with_softmax(KvType::kF32);
}
TEST_P(AttentionOf, F16CachesAgreesWithSoftmaxInDouble) {
  agrees_with_softmax(KvType::kF16);
}
TEST_P(AttentionOf, Q8CachesAgreesWithSoftmaxInDouble) {
  agrees_with_softmax(KvType::kQ8_0);
}
INSTANTIATE_TEST_SUITE_P(Targets, AttentionOf, ::testing::Range<std::size_t>(0, all_kernels().size()),
                         [](const auto& target) { return std::string(all_kernels()[target.param].target); });

void AttentionOf::agrees_with_softmax(KvType type) {
  const std::vector<AttentionData> cases = {{1, 16, 300, 0, 1},
                                            {1, 24, 300, 7, 2, 50},
                                            {2, 32, 300, 290, 17},
                                            {3, 96, 40, 39, 40},
                                            {4, 256, 200, 100, kAttentionChunk},
                                            {7, 80, 257, 1, kAttentionChunk - 1, 5},
                                            {8, 64, 1000, 920, 110},
                                            {6, 5, 30, 20, 30}};
  for (const AttentionData& c : cases) {
    SCOPED_TRACE(fmt::format("group {} head_dim {} count {}", c.group, c.head_dim, c.count));
    const std::vector<float> q = random(c.group * c.head_dim);
    const Stored keys = store(type, random(c.capacity * c.head_dim), c.head_dim);
    const Stored stored_values = store(type, random(c.capacity * c.head_dim), c.head_dim);
    const std::vector<float>&k = keys.read, &v = stored_values.read;
    std::vector<float> scores(c.group * kAttentionChunk, kNan), largest(c.group), total(c.group),
        sum(c.group * c.head_dim);
    // From `first` to the ring's end, in runs of as many as a page or fewer, then from its start.
    std::vector<KvRun> runs;
    const std::size_t row_bytes = kv_row_bytes(type, c.head_dim);
    for (std::size_t p = 0; p < c.count;) {
      const std::size_t place = (c.first + p) % c.capacity,
                        count = std::min({c.count - p, c.capacity - place, 32 - place % 32});
      runs.push_back({&keys.rows[place * row_bytes], &stored_values.rows[place * row_bytes], count});
      p += count;
    }
    const AttentionCall call{.queries = q.data(),
                             .type = type,
                             .runs = runs,
                             .count = c.count,
                             .group = c.group,
                             .head_dim = c.head_dim,
                             .value_dim = c.head_dim,
                             .scale = 0.3f,
                             .softcap = c.softcap,
                             .scores = scores.data(),
                             .largest = largest.data(),
                             .total = total.data(),
                             .sum = sum.data()};
    kernels().attention->scores(call);
    const std::vector<float> raw = scores;
    kernels().attention->values(call);
    for (std::size_t h = 0; h < c.group; ++h) {
      std::vector<float> expected(c.count), result(c.head_dim), got(c.head_dim);
      for (std::size_t p = 0; p < c.count; ++p) {
        double score = 0;
        for (std::size_t i = 0; i < c.head_dim; ++i) {
          score +=
              static_cast<double>(q[h * c.head_dim + i]) * k[(c.first + p) % c.capacity * c.head_dim + i];
        }
        score *= 0.3f;
        expected[p] = static_cast<float>(c.softcap > 0 ? c.softcap * std::tanh(score / c.softcap) : score);
      }
      EXPECT_LT(relative_error(std::span(raw).subspan(h * kAttentionChunk, c.count), expected), 3e-6);
      EXPECT_EQ(largest[h],
                *std::max_element(&raw[h * kAttentionChunk], &raw[h * kAttentionChunk] + c.count));
      double weights = 0;
      for (const float score : expected) weights += std::exp(static_cast<double>(score) - largest[h]);
      EXPECT_NEAR(total[h] / weights, 1, 1e-5);  // scores of 15 with an error of 1e-6 of themselves
      for (std::size_t i = 0; i < c.head_dim; ++i) {
        double value = 0;
        for (std::size_t p = 0; p < c.count; ++p) {
          value += std::exp(static_cast<double>(expected[p]) - largest[h]) *
                   v[(c.first + p) % c.capacity * c.head_dim + i];
        }
        result[i] = static_cast<float>(value / weights);
        got[i] = sum[h * c.head_dim + i] / total[h];
      }
      EXPECT_LT(relative_error(got, result), 1e-5);
    }
  }
}

TEST_P(Kernel, AttentionPassesNanOnAndIgnoresChunksOfMinusInfinity) {
  float scores[kAttentionChunk], largest = 0, total = 0, sum[4];
  const float query[4] = {1, 0, 0, 0};
  const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  KvRun run{.keys = nullptr, .values = reinterpret_cast<const std::uint8_t*>(values), .count = 2};
  AttentionCall call{.queries = query,
                     .runs = std::span(&run, 1),
                     .count = 2,
                     .group = 1,
                     .head_dim = 4,
                     .value_dim = 4,
                     .scores = scores,
                     .largest = &largest,
                     .total = &total,
                     .sum = sum};
  const float with_nan[8] = {kNan, 0, 0, 0, 1, 0, 0, 0};
  run.keys = reinterpret_cast<const std::uint8_t*>(with_nan);
  kernels().attention->scores(call);
  kernels().attention->values(call);
  EXPECT_TRUE(std::isnan(total));
  const float hopeless[8] = {-kInf, 1, 1, 1, -kInf, 1, 1, 1};
  const float only_first[4] = {1, 1e-30f, 1e-30f, 1e-30f};
  run.keys = reinterpret_cast<const std::uint8_t*>(hopeless), call.queries = only_first;
  kernels().attention->scores(call);
  kernels().attention->values(call);
  EXPECT_EQ(largest, -kInf);
  EXPECT_EQ(total, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, Kernel, ::testing::Range<std::size_t>(0, all_kernels().size()),
                         [](const auto& target) { return std::string(all_kernels()[target.param].target); });

}  // namespace
}  // namespace doppler::cpu
