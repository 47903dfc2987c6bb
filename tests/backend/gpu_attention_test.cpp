// The cache and the attention over it, against plain loops in double precision: windows, rings that have gone
// round, softcaps, grouped heads, any head size, both types of cache, several sequences in a step.
#include "base/float16.h"
#include "gpu_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

struct CacheShape {
  std::size_t heads, kv_heads, dim;
  std::size_t window = 0;
  double softcap = 0;
  bool half = false;
};

// Keys and values of one layer on the host: [slot][kv_head][position % capacity][dim], NaN where nothing is.
struct Cache {
  const CacheShape shape;
  const std::size_t slots, capacity;
  std::vector<float> rows;

  Cache(const CacheShape& s, std::size_t slot_count, std::size_t positions)
      : shape(s),
        slots(slot_count),
        capacity(positions),
        rows(slots * s.kv_heads * capacity * s.dim, std::numeric_limits<float>::quiet_NaN()) {}
  float* row(std::size_t slot, std::size_t kv_head, std::size_t position) {
    return &rows[((slot * shape.kv_heads + kv_head) * capacity + position % capacity) * shape.dim];
  }
  // As the device stores them.
  std::vector<std::uint32_t> words() const {
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < rows.size(); i += shape.half ? 2 : 1) {
      out.push_back(shape.half ? f32_to_f16(rows[i]) | std::uint32_t{f32_to_f16(rows[i + 1])} << 16
                               : std::bit_cast<std::uint32_t>(rows[i]));
    }
    return out;
  }
};

struct Token {
  std::uint32_t slot, position;
};

// The lists that kernels read, each behind some other words.
std::vector<std::uint32_t> step_words(const std::vector<Token>& tokens, std::uint32_t longest) {
  std::vector<std::uint32_t> step = {9, 9, longest};
  for (const Token& token : tokens) step.push_back(token.slot);
  for (const Token& token : tokens) step.push_back(token.position);
  return step;
}

float stored(float value, bool half) {
  return half ? f16_to_f32(f32_to_f16(value)) : value;
}

ShaderValues cache_values(const Cache& cache, std::size_t tokens) {
  return {{"KV_HALF", cache.shape.half ? 1 : 0},
          {"DIM", i64(cache.shape.dim)},
          {"KV_HEADS", i64(cache.shape.kv_heads)},
          {"CAPACITY", i64(cache.capacity)},
          {"SLOTS", 3},
          {"POSITIONS", i64(3 + tokens)}};
}

TEST(KvAppend, StoresRowsAndGoesRoundTheRing) {
  DOPPLER_NEEDS_ADAPTER();
  const std::pair<CacheShape, Mode> cases[] = {{{1, 2, 16, 0, 0, false}, Mode::kUnchecked},
                                               {{1, 2, 16, 0, 0, true}, Mode::kChecked},
                                               {{1, 3, 24, 0, 0, true}, Mode::kUnchecked},
                                               {{1, 1, 7, 0, 0, false}, Mode::kUnchecked}};
  for (const auto& [shape, mode] : cases) {
    Cache keys(shape, 2, 10), values(shape, 2, 10);
    // Slot 1 goes over the ring's end, slot 0 lies where slot 1 has nothing; the step mixes them.
    const std::vector<Token> tokens = {{1, 28}, {0, 4}, {1, 29}, {1, 30}, {0, 5}, {1, 31}};
    Random random;
    const std::size_t width = shape.kv_heads * shape.dim, stride = 2 * width + 5;
    const std::vector<float> kv = random.floats(tokens.size() * stride);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        for (std::size_t d = 0; d < shape.dim; ++d) {
          const std::size_t from = t * stride + h * shape.dim + d;
          keys.row(tokens[t].slot, h, tokens[t].position)[d] = kv[from + 2];
          values.row(tokens[t].slot, h, tokens[t].position)[d] = kv[from + 3 + width];
        }
      }
    }
    ShaderValues template_values = cache_values(keys, tokens.size());
    template_values.merge(ShaderValues{{"THREADS", 32},
                                       {"HAS_VALUES", 1},
                                       {"K_STRIDE", i64(stride)},
                                       {"K_OFFSET", 2},
                                       {"V_STRIDE", i64(stride)},
                                       {"V_OFFSET", i64(3 + width)}});
    Launch launch(mode, "kv_append.wgsl", template_values);
    const std::vector<std::uint32_t> expected_keys = keys.words(), expected_values = values.words();
    launch.in("step", step_words(tokens, 32)).in("k", kv).in("v", kv);
    launch.out("keys", expected_keys.size()).out("values", expected_values.size());
    const auto words = static_cast<std::uint32_t>(shape.half ? width / 2 : width);
    ASSERT_TRUE(launch.run({(words + 31) / 32, static_cast<std::uint32_t>(tokens.size()), 1}));
    // Bit for bit, but for NaN, of which there are many.
    const auto same = [&](const std::vector<std::uint32_t>& got, const std::vector<std::uint32_t>& expected) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const bool empty = shape.half ? std::isnan(f16_to_f32(static_cast<std::uint16_t>(expected[i])))
                                      : std::isnan(std::bit_cast<float>(expected[i]));
        ASSERT_EQ(got[i], empty ? 0xffffffff : expected[i]) << "word " << i << " dim " << shape.dim;
      }
    };
    same(launch.get<std::uint32_t>("keys"), expected_keys);
    same(launch.get<std::uint32_t>("values"), expected_values);
  }
}

void expect_attention(const CacheShape& shape, const std::vector<Token>& tokens, Mode mode, bool emit_scores,
                      std::int64_t threads = 64, float deviation = 1, float sharpness = 1) {
  const std::string what =
      fmt::format("heads {}/{} dim {} window {} cap {} half {} position {} threads {} mode {}", shape.heads,
                  shape.kv_heads, shape.dim, shape.window, shape.softcap, shape.half, tokens.back().position,
                  threads, static_cast<int>(mode));
  SCOPED_TRACE(what);
  std::uint32_t longest = 0, slots = 0;
  for (const Token& token : tokens) {
    longest = std::max(longest, token.position + 1);
    slots = std::max(slots, token.slot + 1);
  }
  const std::size_t capacity =
      shape.window == 0 ? longest + 3 : std::min<std::size_t>(longest + 3, shape.window + tokens.size() - 1);
  Cache keys(shape, slots, capacity), values(shape, slots, capacity);
  Random random(static_cast<unsigned>(shape.dim));
  // Each slot holds what its newest token's ring still has.
  std::vector<std::uint32_t> ends(slots, 0);
  for (const Token& token : tokens) ends[token.slot] = std::max(ends[token.slot], token.position + 1);
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    for (std::uint32_t p = 0; p < ends[slot]; ++p) {
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        const std::vector<float> k = random.floats(shape.dim), v = random.floats(shape.dim, deviation);
        for (std::size_t d = 0; d < shape.dim; ++d) {
          keys.row(slot, h, p)[d] = stored(k[d], shape.half);
          values.row(slot, h, p)[d] = stored(v[d], shape.half);
        }
      }
    }
  }
  const std::size_t width = shape.heads * shape.dim, stride = width + 3, to_stride = width + 2;
  const std::vector<float> q = random.floats(tokens.size() * stride, sharpness);
  const double scale = 1 / std::sqrt(static_cast<double>(shape.dim));

  std::vector<double> expected, allowed, expected_scores;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::size_t end = tokens[t].position + 1;
    const std::size_t begin = shape.window != 0 && end > shape.window ? end - shape.window : 0;
    for (std::size_t h = 0; h < shape.heads; ++h) {
      const std::size_t kv_head = h / (shape.heads / shape.kv_heads);
      std::vector<double> scores(longest, NAN);
      double most = -1e300, total = 0;
      for (std::size_t p = begin; p < end; ++p) {
        double sum = 0;
        for (std::size_t d = 0; d < shape.dim; ++d)
          sum += static_cast<double>(q[t * stride + 1 + h * shape.dim + d]) *
                 keys.row(tokens[t].slot, kv_head, p)[d];
        sum *= scale;
        if (shape.softcap > 0) sum = shape.softcap * std::tanh(sum / shape.softcap);
        scores[p] = sum;
        most = std::max(most, sum);
      }
      for (std::size_t p = begin; p < end; ++p) total += std::exp(scores[p] - most);
      for (std::size_t d = 0; d < shape.dim; ++d) {
        double sum = 0, size = 0;
        for (std::size_t p = begin; p < end; ++p) {
          const double part = std::exp(scores[p] - most) / total * values.row(tokens[t].slot, kv_head, p)[d];
          sum += part;
          size += std::abs(part);
        }
        expected.push_back(sum);
        // Scores are right to some 1e-6 (they have about `dim` terms of size 1/sqrt(dim)), which exp passes
        // on to the shares. A position too many or too few is a share of 1/300 at the least.
        allowed.push_back(size * 1e-5 * sharpness + 1e-9);
      }
      expected_scores.insert(expected_scores.end(), scores.begin(), scores.end());
    }
  }

  ShaderValues template_values = cache_values(keys, tokens.size());
  template_values.merge(ShaderValues{{"THREADS", threads},
                                     {"WINDOW", i64(shape.window)},
                                     {"CHUNKED", 0},
                                     {"SINKS", 0},
                                     {"HEADS", i64(shape.heads)},
                                     {"SCALE_BITS", bits_of(scale)},
                                     {"SOFTCAP", shape.softcap > 0 ? 1 : 0},
                                     {"ALIBI", 0},
                                     {"EMIT_SCORES", emit_scores ? 1 : 0},
                                     {"Q_STRIDE", i64(stride)},
                                     {"Q_OFFSET", 1},
                                     {"OUT_STRIDE", i64(to_stride)},
                                     {"OUT_OFFSET", 2}});
  if (shape.softcap > 0) template_values["SOFTCAP_BITS"] = bits_of(shape.softcap);
  template_values["VALUE_DIM"] = i64(shape.dim);
  Launch launch(mode, "attention.wgsl", template_values);
  launch.in("step", step_words(tokens, longest))
      .in("q", q)
      .in("keys", keys.words())
      .in("values", values.words());
  launch.out("out", to_stride * tokens.size());
  if (emit_scores) launch.out("scores", tokens.size() * shape.heads * longest);
  if (!launch.run({static_cast<std::uint32_t>(shape.heads), static_cast<std::uint32_t>(tokens.size()), 1}))
    return;
  const std::vector<float> out = launch.get("out");
  std::vector<float> got;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % to_stride >= 2) {
      got.push_back(out[i]);
    } else {
      ASSERT_TRUE(std::isnan(out[i])) << "wrote beside its columns at " << i;
    }
  }
  expect_near_each(got, expected, allowed, what);
  if (!emit_scores) return;
  const std::vector<float> scores = launch.get("scores");
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(expected_scores[i])) {
      ASSERT_TRUE(std::isnan(scores[i])) << what << " score " << i;
    } else {
      ASSERT_NEAR(scores[i], expected_scores[i], 5e-6) << what << " score " << i;
    }
  }
}

class AttentionLength : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(AttentionLength, AgreesForEveryHeadSize) {
  DOPPLER_NEEDS_ADAPTER();
  const std::uint32_t last = GetParam() - 1;
  expect_attention({2, 1, 16}, {{0, last}}, Mode::kUnchecked, false);
  expect_attention({4, 2, 64, 0, 0, true}, {{0, last}}, Mode::kUnchecked, true);
  if (last == 0 || last == 299) {
    expect_attention({3, 3, 24, 0, 0, true}, {{1, last}}, Mode::kChecked, false);
    expect_attention({2, 2, 96, 0, 0, false}, {{0, last}}, Mode::kNoSubgroups, false);
    expect_attention({4, 1, 256, 0, 0, true}, {{0, last}}, Mode::kUnchecked, false);
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, AttentionLength, ::testing::Values(1, 63, 64, 65, 300));

TEST(Attention, LooksThroughWindowsOfAnyWidth) {
  DOPPLER_NEEDS_ADAPTER();
  expect_attention({2, 1, 16, 4}, {{0, 2}, {0, 3}, {0, 4}, {0, 5}}, Mode::kUnchecked, true);
  expect_attention({2, 2, 24, 65, 0, true}, {{0, 298}, {0, 299}}, Mode::kUnchecked, false);
  expect_attention({2, 1, 16, 300}, {{0, 298}, {0, 299}, {0, 300}}, Mode::kChecked, false);
  expect_attention({2, 1, 16, 1}, {{0, 70}}, Mode::kUnchecked, false);
}

TEST(Attention, CapsScores) {
  DOPPLER_NEEDS_ADAPTER();
  // A cap that bends: scores are about one.
  expect_attention({2, 1, 16, 0, 0.7}, {{0, 99}}, Mode::kUnchecked, true);
  expect_attention({2, 1, 16, 30, 50, true}, {{0, 99}}, Mode::kNoSubgroups, true);
}

TEST(Attention, KeepsSequencesApart) {
  DOPPLER_NEEDS_ADAPTER();
  expect_attention({4, 2, 32}, {{2, 0}, {0, 70}, {2, 1}, {1, 129}, {0, 71}, {1, 130}}, Mode::kUnchecked,
                   true);
  expect_attention({4, 4, 16, 8, 0, true}, {{1, 20}, {0, 3}, {1, 21}}, Mode::kUnchecked, false);
}

TEST(Attention, WorksWithOtherWorkgroups) {
  DOPPLER_NEEDS_ADAPTER();
  for (const std::int64_t threads : {16, 48, 128}) {
    expect_attention({2, 1, 64, 0, 0, true}, {{0, 149}}, Mode::kUnchecked, false, threads);
    expect_attention({2, 1, 24}, {{0, 150}}, Mode::kNoSubgroups, false, threads);
  }
}

TEST(Attention, SubtractsTheLargestScoreOfAll) {
  DOPPLER_NEEDS_ADAPTER();
  // Scores of a hundred and more: exp of one that is not reduced by the largest is infinite, and of all but a
  // few zero.
  for (const Mode mode : {Mode::kUnchecked, Mode::kNoSubgroups}) {
    expect_attention({8, 2, 16}, {{0, 63}, {0, 299}}, mode, false, 64, 1, 40);
    expect_attention({8, 2, 16}, {{0, 149}}, mode, false, 48, 1, 40);
  }
}

TEST(Attention, KeepsLargeValues) {
  DOPPLER_NEEDS_ADAPTER();
  expect_attention({2, 1, 64}, {{0, 100}}, Mode::kUnchecked, false, 64, 15000);
}

}  // namespace
}  // namespace doppler::gpu
