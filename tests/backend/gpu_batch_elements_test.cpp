// What stands between the products of many tokens, each op of it in memory as well as in 8-bit blocks.
#include "backend/gpu/context.h"
#include "gpu_batch_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

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
  // Rows of `width` in wider ones, where all else is no number.
  static std::vector<float> in_rows(const std::vector<float>& x, std::size_t width, std::size_t stride,
                                    std::size_t offset) {
    std::vector<float> out(x.size() / width * stride, NAN);
    for (std::size_t i = 0; i < x.size(); ++i) out[i / width * stride + offset + i % width] = x[i];
    return out;
  }
  // A cache of floats or halves; nothing has been written where `expected` is no number.
  static void expect_cache(const Buffer& buffer, bool half, const std::vector<double>& expected,
                           double allowed) {
    const std::size_t each = half ? 2 : 1;  // values in a word
    const std::vector<float> got = read(buffer, expected.size() / each);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto word = std::bit_cast<std::uint32_t>(got[i / each]);
      if (std::isnan(expected[i])) {
        EXPECT_EQ(word, kGuard) << i;
        continue;
      }
      const float value = half ? f16_to_f32(static_cast<std::uint16_t>(word >> (i % 2 * 16))) : got[i];
      EXPECT_NEAR(value, expected[i], allowed + (half ? 5e-4 * std::abs(expected[i]) : 0)) << i;
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
      {{"THREADS", 24},  // does not divide the row
       {"WIDTH", kWidth},
       {"ADD", 1},
       {"POST", 1},
       {"NORM", 1},
       {"QUANT", 1},
       {"FLOATS", 1},
       {"EMIT", 1},
       {"UNITS_K", 2},
       {"RESIDUAL_STRIDE", 108},
       {"RESIDUAL_OFFSET", 4},
       {"PARTS", 1},
       {"BRANCH_STRIDE", 116},
       {"BRANCH_OFFSET", 12},
       {"H_STRIDE", wide},
       {"H_OFFSET", at},
       {"POST_STRIDE", wide},
       {"POST_OFFSET", at},
       {"X_STRIDE", wide},
       {"X_OFFSET", at},
       {"EPS_BITS", float_bits(1e-5)},
       {"POST_EPS_BITS", float_bits(1e-3)}},
      {{"residual", upload(in_rows(residual, kWidth, 108, 4))},
       {"branch", upload(in_rows(branch, kWidth, 116, 12))},
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

// Rows 1, 4 and 5 of six, in the middle of wider ones.
TEST_F(Elements, WantedRowsMoveToTheFront) {
  constexpr std::size_t kRows = 6, kColumns = 13, kRowStride = 17, kFirst = 3, kFloats = kRows * kRowStride;
  std::vector<std::uint32_t> words(kFloats + 2 * kGuardFloats, kGuard);
  for (std::uint32_t i = 0; i < kFloats; ++i) words[kGuardFloats + i] = i;
  std::vector<std::uint32_t> expected(words.begin() + kGuardFloats, words.end() - kGuardFloats);
  const std::vector<std::uint32_t> wanted = {1, 4, 5};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (std::size_t c = kFirst; c < kFirst + kColumns; ++c)
      expected[i * kRowStride + c] = static_cast<std::uint32_t>(wanted[i] * kRowStride + c);
  }
  const Buffer rows = upload(words);
  run("front_rows.wgsl",
      {{"THREADS", 12},  // does not divide the row
       {"WIDTH", kColumns},
       {"COUNT", 1},
       {"LIST", 2},
       {"ROWS_STRIDE", kRowStride},
       {"ROWS_OFFSET", kFirst}},
      {{"step", upload(std::vector<std::uint32_t>{9, 3, 1, 4, 5})}, within("rows", rows, kFloats)},
      {2, 1, 1});
  const std::vector<float> got = read(rows, kFloats);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), kFloats * 4), 0);
}

TEST_F(Elements, GatesAndBlocksInOne) {
  constexpr std::size_t kStride = 2 * kWidth + 12, kOutStride = kWidth + 12;
  const std::vector<float> both = random_floats(kTokens * 2 * kWidth, 2);
  std::vector<double> act;
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      const double gate = both[t * 2 * kWidth + i];
      act.push_back(gate / (1 + std::exp(-gate)) * both[(t * 2 + 1) * kWidth + i]);
    }
  }
  const Buffer in = upload(in_rows(both, 2 * kWidth, kStride, 4)), out = guarded(kTokens * kOutStride);
  const Buffer x8 = guarded(kTokens * kPadded / 4), xs = guarded(kTokens * kPadded / 16);
  run("batch_quantise.wgsl",
      {{"THREADS", 24},
       {"WIDTH", kWidth},
       {"UNITS_K", 2},
       {"GATED", 1},
       {"EMIT", 1},
       {"ACTIVATION", 0},
       {"A_STRIDE", kStride},
       {"A_OFFSET", 4},
       {"B_STRIDE", kStride},
       {"B_OFFSET", 4 + kWidth},
       {"OUT_STRIDE", kOutStride},
       {"OUT_OFFSET", 8}},
      {{"a", in},
       {"b", in},
       within("out", out, kTokens * kOutStride),
       within("x8", x8, kTokens * kPadded / 4),
       within("xs", xs, kTokens * kPadded / 16)},
      {2, kTokens, 1});
  expect_floats(out, kOutStride, 8, kWidth, act);
  expect_blocks(x8, xs, act);
}

// Norms, turns and the cache's rows, for one head a workgroup and for several.
TEST_F(Elements, HeadsGoIntoTheCacheInOne) {
  constexpr std::size_t kDim = 10, kPairs = 4, kHeads = 4, kKvHeads = 3, kCapacity = 5, kSlots = 2;
  constexpr std::size_t kRow = (kHeads + 2 * kKvHeads) * kDim, kAt = 5;
  // Of what the kernel stores for a tap or for attention: in the middle of wider rows.
  constexpr std::size_t kQ = kHeads * kDim, kK = kKvHeads * kDim, kQStride = kQ + 7, kKStride = kK + 9;
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
      const bool half = normed != interleaved;
      SCOPED_TRACE(fmt::format("{} {} {}", normed, interleaved, half));
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
      const std::size_t q_floats = kTokens * kQStride, k_floats = kTokens * kKStride;
      const std::size_t cache_floats = kSlots * kKvHeads * kCapacity * kDim;
      const Buffer q_out = guarded(q_floats), k_out = guarded(k_floats), qn = guarded(q_floats),
                   kn = guarded(k_floats);
      const std::size_t cache_words = half ? cache_floats / 2 : cache_floats;
      const Buffer keys = guarded(cache_words), values_buffer = guarded(cache_words);
      ShaderValues values = {{"KV_HALF", half ? 1 : 0},
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
                             {"QKV_STRIDE", kRow + 2 * kAt},
                             {"Q_OFFSET", kAt},
                             {"K_OFFSET", kAt + kQ},
                             {"V_OFFSET", kAt + kQ + kK},
                             {"Q_OUT_STRIDE", kQStride},
                             {"Q_OUT_OFFSET", 1},
                             {"K_OUT_STRIDE", kKStride},
                             {"K_OUT_OFFSET", 2}};
      std::vector<Bound> buffers = {
          {"step", upload(words)},           {"qkv", upload(in_rows(qkv, kRow, kRow + 2 * kAt, kAt))},
          {"angles", upload(angles)},        within("q_out", q_out, q_floats),
          within("keys", keys, cache_words), within("values", values_buffer, cache_words),
          within("k_out", k_out, k_floats)};
      if (normed) {
        values.insert({{"EPS_BITS", float_bits(1e-5)},
                       {"QN_STRIDE", kQStride},
                       {"QN_OFFSET", 3},
                       {"KN_STRIDE", kKStride},
                       {"KN_OFFSET", 4}});
        buffers.push_back({"q_weight", upload(q_weight)});
        buffers.push_back({"k_weight", upload(k_weight)});
        buffers.push_back(within("q_normed", qn, q_floats));
        buffers.push_back(within("k_normed", kn, k_floats));
      }
      run("rope_append.wgsl", values, buffers, {normed ? 10u : 3u, kTokens, 1});
      expect_floats(q_out, kQStride, 1, kQ, q_turned);
      expect_floats(k_out, kKStride, 2, kK, k_turned);
      if (normed) {
        expect_floats(qn, kQStride, 3, kQ, q_normed);
        expect_floats(kn, kKStride, 4, kK, k_normed);
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
      expect_cache(keys, half, expected_k, 1e-5);
      expect_cache(values_buffer, half, expected_v, 1e-6);
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
