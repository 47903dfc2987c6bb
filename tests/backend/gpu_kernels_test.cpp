// The small kernels against plain loops in double precision: norms, rotation, quantised activations and
// elementwise ops.
#include <algorithm>
#include <numbers>

#include "gpu_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

constexpr Mode kModes[] = {Mode::kUnchecked, Mode::kChecked, Mode::kNoSubgroups};

// Rows of `width` values at a stride and an offset; between them numbers that would stand out in an output.
std::vector<float> spread(const std::vector<float>& rows, std::size_t width, std::size_t stride,
                          std::size_t offset) {
  std::vector<float> wide(rows.size() / width * stride, 777.0f);
  for (std::size_t i = 0; i < rows.size(); ++i) wide[i / width * stride + offset + i % width] = rows[i];
  return wide;
}
// The rows out of an output of that shape; what lies between must still be NaN.
std::vector<float> gathered(const std::vector<float>& wide, std::size_t width, std::size_t stride,
                            std::size_t offset) {
  std::vector<float> rows;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const bool ours = i % stride >= offset && i % stride < offset + width;
    if (ours) rows.push_back(wide[i]);
    if (!ours && !std::isnan(wide[i])) {
      ADD_FAILURE() << "wrote beside its columns at " << i;
      break;
    }
  }
  return rows;
}

enum NormForm { kRms, kLayerWithBias, kLayerOfEachHead };

class Norm : public ::testing::TestWithParam<NormForm> {};

TEST_P(Norm, AgreesForEveryWidthAndSize) {
  DOPPLER_NEEDS_ADAPTER();
  struct {
    std::size_t dim, heads, tokens;
    float deviation;
    double eps;
    std::int64_t threads;
  } const cases[] = {{1, 1, 1, 1, 1e-6, 128},       {32, 3, 2, 1e-3f, 1e-6, 128},
                     {127, 1, 3, 15000, 1e-5, 128}, {288, 2, 2, 1, 1e-6, 128},
                     {1152, 1, 2, 1, 1e-6, 256},    {128, 2, 1, 1, 0.5, 128},
                     {1000, 1, 1, 1e-5f, 1e-6, 48}};
  const NormForm form = GetParam();
  for (const Mode mode : kModes) {
    for (const auto& c : cases) {
      if (mode == Mode::kChecked && c.dim > 128) continue;
      Random random;
      const std::size_t width = c.dim * c.heads, stride = width + 7, offset = 4, to_stride = width + 2;
      const std::vector<float> x = random.floats(width * c.tokens, c.deviation),
                               weight = random.floats(form == kLayerOfEachHead ? width : c.dim),
                               bias = random.floats(c.dim);
      std::vector<double> expected(x.size()), allowed(x.size());
      for (std::size_t row = 0; row < c.heads * c.tokens; ++row) {
        const std::size_t own = form == kLayerOfEachHead ? row % c.heads * c.dim : 0;
        double mean = 0, squares = 0;
        if (form != kRms) {
          for (std::size_t i = 0; i < c.dim; ++i) mean += x[row * c.dim + i] / static_cast<double>(c.dim);
        }
        for (std::size_t i = 0; i < c.dim; ++i)
          squares += (x[row * c.dim + i] - mean) * (x[row * c.dim + i] - mean);
        for (std::size_t i = 0; i < c.dim; ++i) {
          const double scaled = weight[own + i] / std::sqrt(squares / static_cast<double>(c.dim) + c.eps);
          const double added = form == kLayerWithBias ? bias[i] : 0;
          expected[row * c.dim + i] = (x[row * c.dim + i] - mean) * scaled + added;
          // Roundings of the sum of squares (halved by the root) and of three products; WGSL allows a root
          // and a quotient 2.5 units in the last place each. Those of the mean and of what is taken away.
          const double lost =
              std::abs((x[row * c.dim + i] - mean) * scaled) + std::abs(added) +
              (form != kRms ? std::sqrt(squares / static_cast<double>(c.dim)) + std::abs(mean) : 0) *
                  std::abs(scaled);
          allowed[row * c.dim + i] = lost * 2e-6 + 1e-30;
        }
      }
      Launch launch(mode, "norm.wgsl",
                    {{"THREADS", c.threads},
                     {"DIM", i64(c.dim)},
                     {"EPS_BITS", bits_of(c.eps)},
                     {"LAYER", form != kRms ? 1 : 0},
                     {"BIAS", form == kLayerWithBias ? 1 : 0},
                     {"OWN", form == kLayerOfEachHead ? 1 : 0},
                     {"X_STRIDE", i64(stride)},
                     {"X_OFFSET", i64(offset)},
                     {"OUT_STRIDE", i64(to_stride)},
                     {"OUT_OFFSET", 1}});
      launch.in("x", spread(x, width, stride, offset)).in("weight", weight).out("out", to_stride * c.tokens);
      if (form == kLayerWithBias) launch.in("bias", bias);
      ASSERT_TRUE(launch.run({static_cast<std::uint32_t>(c.heads), static_cast<std::uint32_t>(c.tokens), 1}));
      expect_near_each(gathered(launch.get("out"), width, to_stride, 1), expected, allowed,
                       fmt::format("dim {} heads {} mode {}", c.dim, c.heads, static_cast<int>(mode)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Norm, ::testing::Values(kRms, kLayerWithBias, kLayerOfEachHead));

// Sums and maxima by themselves, one after the other with nothing between, as fused kernels have them.
constexpr const char* kReduceTest =
    "@group(0) @binding(0) var<storage, read> x : array<vec4f>;\n"
    "@group(0) @binding(1) var<storage, read_write> out : array<vec4f>;\n"
    "#include \"reduce.wgsl\"\n"
    "@compute @workgroup_size(${THREADS}) fn main(@builtin(local_invocation_index) t : u32) {\n"
    "  var v = x[t];\n"
    "#for r in 0..4\n"
    "  let sum${r} = workgroup_sum(v, t);\n"
    "  let again${r} = workgroup_sum(v.wzyx, t);\n"
    "  let most${r} = workgroup_max(v.x, t);\n"
    "  let least${r} = workgroup_max(-v.y, t);\n"
    "  let once${r} = workgroup_sum_once(v, t);\n"
    "  workgroupBarrier();\n"
    "  out[(t * 4u + ${r}u) * 2u] = sum${r} + again${r}.wzyx + once${r};\n"
    "  out[(t * 4u + ${r}u) * 2u + 1u] = vec4f(most${r}, least${r}, again${r}.x, again${r}.y);\n"
    "  v = v.yzwx - 0.25;\n"
    "#endfor\n"
    "}\n";

TEST(Reduce, GivesEveryThreadTheSumAndTheLargest) {
  DOPPLER_NEEDS_ADAPTER();
  replace_shader("reduce_test.wgsl", kReduceTest);
  for (const Mode mode : {Mode::kUnchecked, Mode::kNoSubgroups}) {
    for (const std::size_t threads : {1, 2, 7, 20, 48, 64, 128, 256}) {
      Random random(static_cast<unsigned>(threads));
      std::vector<float> x = random.floats(threads * 4);
      for (float& value : x) value -= 3;  // the largest is below zero more often than not
      std::vector<double> expected;
      std::vector<float> v = x;
      for (int round = 0; round < 4; ++round) {
        double sum[4] = {}, most = -1e30, least = -1e30;
        for (std::size_t t = 0; t < threads; ++t) {
          for (std::size_t i = 0; i < 4; ++i) sum[i] += v[4 * t + i];
          most = std::max<double>(most, v[4 * t]);
          least = std::max<double>(least, -v[4 * t + 1]);
        }
        for (const double s : sum) expected.push_back(3 * s);
        for (const double s : {most, least, sum[3], sum[2]}) expected.push_back(s);
        for (std::size_t t = 0; t < threads; ++t) {
          std::rotate(&v[4 * t], &v[4 * t + 1], &v[4 * t] + 4);
          for (std::size_t i = 0; i < 4; ++i) v[4 * t + i] -= 0.25f;
        }
      }
      std::vector<double> all;
      for (std::size_t t = 0; t < threads; ++t) all.insert(all.end(), expected.begin(), expected.end());
      Launch launch(mode, "reduce_test.wgsl", {{"THREADS", i64(threads)}});
      launch.in("x", x).out("out", all.size());
      ASSERT_TRUE(launch.run({}));
      expect_near(launch.get("out"), all, static_cast<double>(threads) * 3e-6,
                  fmt::format("{} threads, mode {}", threads, static_cast<int>(mode)));
    }
  }
}

struct RopeCase {
  std::size_t heads, dim, pairs;
  bool interleaved;
  double magnitude;
  Mode mode = Mode::kUnchecked;
};

TEST(Rope, TurnsPairsAtEveryPosition) {
  DOPPLER_NEEDS_ADAPTER();
  const RopeCase cases[] = {{2, 16, 8, false, 1},
                            {2, 16, 8, true, 1, Mode::kChecked},
                            {3, 96, 24, false, 1.25},
                            {3, 96, 24, true, 1.25},
                            {1, 256, 128, false, 1},
                            {5, 24, 12, false, 0.5},
                            {2, 64, 1, false, 1, Mode::kChecked}};
  const std::vector<std::uint32_t> positions = {0, 1, 255, 256, 257, 4095, 65535, 99999};
  constexpr std::size_t kHighRows = 391;  // 100000 positions
  for (const RopeCase& c : cases) {
    std::vector<double> frequency(c.pairs);
    for (std::size_t p = 0; p < c.pairs; ++p)
      frequency[p] = std::pow(10000.0, -static_cast<double>(p) / static_cast<double>(c.pairs));
    std::vector<float> angles;
    for (std::size_t row = 0; row < kHighRows + 256; ++row) {
      const bool high = row < kHighRows;
      const double position = high ? 256.0 * static_cast<double>(row) : static_cast<double>(row - kHighRows);
      for (const double f : frequency) {
        angles.push_back(static_cast<float>((high ? c.magnitude : 1) * std::cos(position * f)));
        angles.push_back(static_cast<float>((high ? c.magnitude : 1) * std::sin(position * f)));
      }
    }
    Random random;
    const std::size_t width = c.heads * c.dim, tokens = positions.size(), stride = width + 3;
    const std::vector<float> x = random.floats(width * tokens);
    std::vector<double> expected(x.begin(), x.end()), allowed(x.size(), 0.0);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t h = 0; h < c.heads; ++h) {
        for (std::size_t p = 0; p < c.pairs; ++p) {
          const std::size_t base = t * width + h * c.dim;
          const std::size_t a = base + (c.interleaved ? 2 * p : p),
                            b = base + (c.interleaved ? 2 * p + 1 : p + c.pairs);
          const double angle = positions[t] * frequency[p];
          const double cos = c.magnitude * std::cos(angle), sin = c.magnitude * std::sin(angle);
          expected[a] = x[a] * cos - x[b] * sin;
          expected[b] = x[b] * cos + x[a] * sin;
          // Cosine and sine of the sum of two angles in f32: some roundings, whatever the position.
          allowed[a] = allowed[b] = (std::abs(x[a]) + std::abs(x[b])) * c.magnitude * 5e-7;
        }
      }
    }
    std::vector<std::uint32_t> step = {7, 7};
    step.insert(step.end(), positions.begin(), positions.end());
    Launch launch(c.mode, "rope.wgsl",
                  {{"THREADS", 64},
                   {"HEADS", i64(c.heads)},
                   {"DIM", i64(c.dim)},
                   {"BEGIN", 0},
                   {"TO_HALF", 0},
                   {"PAIRS", i64(c.pairs)},
                   {"HIGH_ROWS", i64(kHighRows)},
                   {"INTERLEAVED", c.interleaved ? 1 : 0},
                   {"POSITIONS", 2},
                   {"X_STRIDE", i64(stride)},
                   {"X_OFFSET", 3},
                   {"OUT_STRIDE", i64(width + 1)},
                   {"OUT_OFFSET", 1}});
    launch.in("step", step).in("x", spread(x, width, stride, 3)).in("angles", angles);
    launch.out("out", (width + 1) * tokens);
    ASSERT_TRUE(
        launch.run({static_cast<std::uint32_t>((width + 63) / 64), static_cast<std::uint32_t>(tokens), 1}));
    expect_near_each(gathered(launch.get("out"), width, width + 1, 1), expected, allowed,
                     fmt::format("dim {} pairs {} interleaved {}", c.dim, c.pairs, c.interleaved));
  }
}

TEST(Quantise, TakesBlocksZerosTailsAndLargeValues) {
  DOPPLER_NEEDS_ADAPTER();
  struct {
    std::size_t width, tokens;
    float deviation;
    Mode mode;
  } const cases[] = {{64, 1, 1, Mode::kUnchecked},      {96, 3, 15000, Mode::kUnchecked},
                     {100, 2, 1e-4f, Mode::kUnchecked}, {288, 2, 1, Mode::kChecked},
                     {67, 3, 1, Mode::kUnchecked},      {5000, 1, 1, Mode::kUnchecked}};
  for (const auto& c : cases) {
    const std::string what = fmt::format("width {} tokens {}", c.width, c.tokens);
    Random random;
    std::vector<float> x = random.floats(c.width * c.tokens, c.deviation);
    for (std::size_t i = 0; i < std::min<std::size_t>(32, c.width); ++i) x[i] = 0;  // a block of zeros
    const std::size_t units = (c.width + 63) / 64, blocks = units * 2, stride = c.width + 6;
    Launch launch(c.mode, "quantise.wgsl",
                  {{"THREADS", 16},
                   {"UNITS_K", i64(units)},
                   {"WIDTH", i64(c.width)},
                   {"X_STRIDE", i64(stride)},
                   {"X_OFFSET", 5}});
    launch.in("x", spread(x, c.width, stride, 5));
    launch.out("x8", c.tokens * units * 16).out("xs", c.tokens * blocks * 2);
    ASSERT_TRUE(launch.run(
        {static_cast<std::uint32_t>((blocks + 15) / 16), static_cast<std::uint32_t>(c.tokens), 1}));
    const auto codes = launch.get<std::int8_t>("x8");
    const auto scales = launch.get("xs");
    for (std::size_t at = 0; at < c.tokens * blocks; ++at) {
      const std::size_t token = at / blocks, first = at % blocks * 32;
      const auto value = [&](std::size_t i) {
        return first + i < c.width ? x[token * c.width + first + i] : 0.0f;
      };
      float most = 0;
      int sum = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        most = std::max(most, std::abs(value(i)));
        sum += codes[at * 32 + i];
      }
      const double scale = most / 127.0;
      ASSERT_NEAR(scales[2 * at], scale, scale * 4e-7) << what << " block " << at;
      ASSERT_NEAR(scales[2 * at + 1], scale * sum, std::abs(scale * sum) * 6e-7) << what << " block " << at;
      for (std::size_t i = 0; i < 32; ++i) {
        // The nearest code; where a division's last bits decide between two, either (WGSL allows a
        // quotient 2.5 units in the last place).
        ASSERT_LE(std::abs(codes[at * 32 + i] * scale - value(i)), scale * 0.5001) << what << " block " << at;
      }
    }
  }
}

TEST(Quantise, RoundsTiesToEven) {
  DOPPLER_NEEDS_ADAPTER();
  std::vector<float> x(64, 0.0f);
  x[0] = 127, x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[5] = -3.5f, x[31] = -127;
  Launch launch(Mode::kUnchecked, "quantise.wgsl",
                {{"THREADS", 16}, {"UNITS_K", 1}, {"WIDTH", 64}, {"X_STRIDE", 64}, {"X_OFFSET", 0}});
  launch.in("x", x).out("x8", 16).out("xs", 4);
  ASSERT_TRUE(launch.run({}));
  if (launch.get("xs")[0] != 1) GTEST_SKIP() << "this GPU's 127 / 127 is not 1";
  const auto codes = launch.get<std::int8_t>("x8");
  EXPECT_EQ(std::vector<int>(codes.begin(), codes.begin() + 7), (std::vector<int>{127, 0, 2, 2, 0, -4, 0}));
  EXPECT_EQ(codes[31], -127);
}

struct Combine {
  int op;
  std::int64_t activation = 0;
  float deviation = 1;
  Mode mode = Mode::kUnchecked;
  float scale = 1;
};

TEST(CombineKernel, AddsGatesCapsCopiesAndSelects) {
  DOPPLER_NEEDS_ADAPTER();
  const Combine cases[] = {{0},
                           {1, 0, 3},
                           {1, 1, 3},
                           {1, 2, 3},
                           {1, 0, 15000},
                           {1, 1, 15000},
                           {1, 2, 15000},
                           {2, 0, 20},
                           {2, 0, 15000},
                           {3},
                           {4},
                           {0, 0, 1, Mode::kChecked},
                           {1, 3, 3},
                           {1, 4, 3},
                           {0, 0, 1, Mode::kUnchecked, 0.25f},
                           {2, 0, 20, Mode::kUnchecked, 0.25f},
                           {3, 0, 1, Mode::kUnchecked, 0.25f}};
  for (const Combine& c : cases) {
    Random random;
    const std::size_t width = 150, rows = 3, a_rows = c.op == 4 ? 9 : rows;
    const std::size_t a_stride = width + 4, b_stride = width + 9, to_stride = width + 2;
    const std::vector<float> a = random.floats(width * a_rows, c.deviation), b = random.floats(width * rows);
    const std::vector<std::uint32_t> step = {5, 5, 8, 0, 3};
    std::vector<double> expected, allowed;
    for (std::size_t i = 0; i < width * rows; ++i) {
      const double x = c.op == 4 ? a[step[2 + i / width] * width + i % width] : a[i];
      double value = x, error = 0;
      if (c.op == 3) value = x * c.scale;
      if (c.op == 0) {
        value = x + c.scale * b[i];
        error = std::abs(value) * 1e-7;
      } else if (c.op == 1) {
        const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        const double act = c.activation == 0   ? x / (1 + std::exp(-x))
                           : c.activation == 1 ? 0.5 * x * (1 + std::tanh(inner))
                           : c.activation == 2 ? 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2))
                           : c.activation == 3 ? std::max(x, 0.0)
                                               : std::max(x, 0.0) * std::max(x, 0.0);
        value = act * b[i];
        // exp and tanh of GPUs lose some bits, and 1 + tanh cancels where the result is small beside x; the
        // erf polynomial is right to 1.5e-7 of x.
        error = std::abs(x * b[i]) * 2e-6 + std::abs(value) * 2e-6;
      } else if (c.op == 2) {
        value = 30 * std::tanh(c.scale * x / 30);
        error = 30 * 2e-6;
      }
      expected.push_back(value);
      allowed.push_back(error);
    }
    ShaderValues values = {{"THREADS", 64},
                           {"OP", c.op},
                           {"SCALED", c.scale != 1 ? 1 : 0},
                           {"ONE_GATE", 0},
                           {"WIDTH", i64(width)},
                           {"A_STRIDE", i64(a_stride)},
                           {"A_OFFSET", 1},
                           {"OUT_STRIDE", i64(to_stride)},
                           {"OUT_OFFSET", 2}};
    if (c.op == 1) values["SHAPED"] = 0;
    Launch launch(c.mode, "combine.wgsl", values);
    launch.in("a", spread(a, width, a_stride, 1)).out("out", to_stride * rows);
    if (c.op <= 1) {
      launch.in("b", spread(b, width, b_stride, 8)).value("B_STRIDE", i64(b_stride)).value("B_OFFSET", 8);
    }
    if (c.op == 1) launch.value("ACTIVATION", c.activation);
    if (c.scale != 1) launch.value("SCALE_BITS", bits_of(c.scale));
    if (c.op == 2) launch.value("CAP_BITS", bits_of(30));
    if (c.op == 4) launch.in("step", step).value("WANTED", 2);
    ASSERT_TRUE(launch.run({3, rows, 1}));
    expect_near_each(gathered(launch.get("out"), width, to_stride, 2), expected, allowed,
                     fmt::format("op {} activation {} deviation {}", c.op, c.activation, c.deviation));
  }
}

}  // namespace
}  // namespace doppler::gpu
