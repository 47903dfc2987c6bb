// gemv.wgsl against sums in double precision, for every form of weights, with float and with 8-bit
// activations, for shapes that leave rows, lanes and units over.
#include "backend/gpu/gemv_shape.h"
#include "gpu_weights.h"

namespace doppler::gpu {
namespace {

using namespace testing;

// Activations in blocks of 32 as quantise.wgsl makes them, up to whole units of 64.
struct EightBits {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;  // scale, scale * sum of codes

  EightBits(const std::vector<float>& x, std::size_t width) {
    const std::size_t units = (width + 63) / 64;
    for (std::size_t token = 0; token < x.size() / width; ++token) {
      for (std::size_t block = 0; block < 2 * units; ++block) {
        float most = 0;
        const auto at = [&](std::size_t i) {
          return block * 32 + i < width ? x[token * width + block * 32 + i] : 0.0f;
        };
        for (std::size_t i = 0; i < 32; ++i) most = std::max(most, std::abs(at(i)));
        int sum = 0;
        for (std::size_t i = 0; i < 32; ++i) {
          const auto code = static_cast<std::int8_t>(most > 0 ? std::nearbyint(at(i) * (127.0f / most)) : 0);
          codes.push_back(code);
          sum += code;
        }
        scales.push_back(most / 127.0f);
        scales.push_back(most / 127.0f * static_cast<float>(sum));
      }
    }
  }
  // What the codes stand for.
  double value(std::size_t token, std::size_t units, std::size_t i) const {
    const std::size_t at = token * units * 64 + i;
    return static_cast<double>(scales[at / 32 * 2]) * codes[at];
  }
};

struct Case {
  StoredAs type;
  std::size_t rows, cols;
  bool eight_bits = false, bias = false;
  std::size_t tokens = 1;
  GemvShape shape = {};  // none: the one that would be chosen
  Mode mode = Mode::kUnchecked;
  std::size_t x_offset = 0, x_gap = 0;  // floats before a token's row, and after it
  float x_deviation = 1;
};

void expect_gemv(const Case& c) {
  const std::string what =
      fmt::format("{} {} x {} act {} bias {} tokens {} shape {} {} {}", c.type.name(), c.rows, c.cols,
                  c.eight_bits, c.bias, c.tokens, c.shape.rows, c.shape.lanes, c.shape.units);
  SCOPED_TRACE(what);
  const RandomTensor weight(c.type.type, c.rows, c.cols, 11);
  const GpuMatrix matrix = upload(c.mode, {&weight.view}, UINT64_MAX, c.type.format());
  ASSERT_EQ(matrix.shards.size(), 1u);
  Random random;
  const std::vector<float> x = random.floats(c.tokens * c.cols, c.x_deviation), bias = random.floats(c.rows);
  const EightBits eight(x, c.cols);
  const std::size_t units = matrix.units;

  std::vector<double> expected(c.tokens * c.rows), allowed(c.tokens * c.rows);
  for (std::size_t t = 0; t < c.tokens; ++t) {
    for (std::size_t r = 0; r < c.rows; ++r) {
      double sum = c.bias ? bias[r] : 0, size = std::abs(sum), most = 0;
      for (std::size_t k = 0; k < c.cols; ++k) {
        const double w = weight.values[r * c.cols + k];
        const double v = c.eight_bits ? eight.value(t, units, k) : x[t * c.cols + k];
        sum += w * v;
        most = std::max(most, std::abs(w));
        size += std::abs(v) * most;
      }
      expected[t * c.rows + r] = sum;
      // Rounding of f32 sums: a few times 2^-24 of the sum of magnitudes. Codes times scales and minima
      // cancel in part, so magnitudes are those of the row's largest weight. One wrong term of some hundred
      // is off by a hundred times that.
      allowed[t * c.rows + r] = size * 0x1p-20;
    }
  }

  GemvShape shape = c.shape;
  if (shape.rows == 0) {
    shape = choose_gemv_shape(device(c.mode)->limits(), matrix.format, static_cast<std::uint32_t>(c.rows),
                              matrix.units);
  }
  const std::size_t stride = c.rows + 5, offset = 3;  // others' outputs lie around
  ShaderValues values = format_values(matrix);
  values.merge(ShaderValues{{"R", shape.rows},
                            {"LANES", shape.lanes},
                            {"UNITS", shape.units},
                            {"AT_ONCE", shape.loaded()},
                            {"ROWS", static_cast<std::int64_t>(c.rows)},
                            {"PRO", 0},
                            {"EPI", 0},
                            {"ACT", c.eight_bits ? 1 : 0},
                            {"BIAS", c.bias ? 1 : 0},
                            {"OUT_STRIDE", static_cast<std::int64_t>(stride)},
                            {"OUT_OFFSET", static_cast<std::int64_t>(offset)},
                            {"QUANTISE_OUT", 0},
                            {"EMIT_PARTS", 0},
                            {"EMIT_ACT", 0}});
  Launch launch(c.mode, "gemv.wgsl", values);
  launch.bound("codes", matrix.shards[0].codes).out("out", c.tokens * stride);
  if (matrix.format.has_scales()) launch.bound("scales", matrix.shards[0].scales);
  if (c.bias) launch.in("bias", bias);
  if (c.eight_bits) {
    launch.in("x8", eight.codes).in("xs", eight.scales);
  } else {
    const std::size_t x_stride = c.x_offset + c.cols + c.x_gap;
    std::vector<float> wide(c.tokens * x_stride, std::numeric_limits<float>::quiet_NaN());
    for (std::size_t t = 0; t < c.tokens; ++t)
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(t * c.cols), c.cols,
                  wide.begin() + static_cast<std::ptrdiff_t>(t * x_stride + c.x_offset));
    const bool whole = x_stride % 4 == 0 && c.x_offset % 4 == 0 && c.cols % 4 == 0;
    launch.in("x", wide)
        .value("X_VEC", whole ? 1 : 0)
        .value("WIDTH", static_cast<std::int64_t>(c.cols))
        .value("X_STRIDE", static_cast<std::int64_t>(x_stride))
        .value("X_OFFSET", static_cast<std::int64_t>(c.x_offset));
  }
  const auto groups = static_cast<std::uint32_t>((c.rows + shape.rows - 1) / shape.rows);
  if (!launch.run({groups, static_cast<std::uint32_t>(c.tokens), 1})) return;
  const std::vector<float> out = launch.get("out");
  std::vector<float> got;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool ours = i % stride >= offset && i % stride < offset + c.rows;
    if (ours) {
      got.push_back(out[i]);
    } else {
      ASSERT_TRUE(std::isnan(out[i])) << "wrote beside its columns at " << i;
    }
  }
  expect_near_each(got, expected, allowed, what);
}

// A type of each form of codes and scales.
constexpr StoredAs kForms[] = {DType::kF32,  DType::kF16,  DType::kBF16, kHeadOfBF16,  DType::kQ4_0,
                               DType::kQ4_1, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kMXFP4};

class GemvOf : public ::testing::TestWithParam<StoredAs> {};

TEST_P(GemvOf, AgreesWithSumsInDouble) {
  DOPPLER_NEEDS_ADAPTER();
  const StoredAs type = GetParam();
  const bool blocks_256 = dtype_info(type.type).block_values == 256, quantised = is_quantised(type.type);
  const std::size_t cols = blocks_256 ? 768 : 288;
  expect_gemv({.type = type, .rows = 75, .cols = cols, .bias = true, .tokens = 2});
  if (quantised) expect_gemv({.type = type, .rows = 75, .cols = cols, .eight_bits = true, .tokens = 3});
  if (quantised && !blocks_256)
    expect_gemv({.type = type, .rows = 1, .cols = 32, .eight_bits = true, .bias = true});
  if (!blocks_256) expect_gemv({.type = type, .rows = 1, .cols = 32});
}

INSTANTIATE_TEST_SUITE_P(Forms, GemvOf, ::testing::ValuesIn(kForms),
                         [](const auto& type) { return type.param.name(); });

TEST(Gemv, TakesShapesThatLeaveRowsLanesAndUnitsOver) {
  DOPPLER_NEEDS_ADAPTER();
  const GemvShape shapes[] = {
      {1, 9, 1},   // no power of two of threads: sums through memory
      {8, 4, 2},   // 8 units of lanes for 5 that there are
      {64, 1, 5},  // a thread has a row
      {4, 8, 1},   // more lanes than units
      {2, 16, 3},  // far more
      {16, 5, 1},  // exactly
  };
  for (const GemvShape& shape : shapes) {
    const std::size_t cols = shape.lanes == 9 ? 288 : 300;
    expect_gemv({.type = DType::kF16, .rows = 65, .cols = cols, .bias = true, .shape = shape});
    expect_gemv({.type = DType::kQ4_0, .rows = 65, .cols = 288, .eight_bits = true, .shape = shape});
  }
}

// Units that a thread loads in rounds: all of them full, the last one in part, or fewer than a power of two.
TEST(Gemv, AddsRoundsOfUnits) {
  DOPPLER_NEEDS_ADAPTER();
  struct Rounds {
    std::size_t units;  // of the row
    GemvShape shape;
  };
  const Rounds all[] = {
      {8, {8, 2, 4, 1}},  // four rounds each
      {7, {8, 2, 4, 2}},  // the last one has half
      {7, {8, 1, 8, 1}},  // seven rounds of eight
      {5, {8, 1, 8, 2}},  // two and a half of four
      {6, {8, 1, 6, 2}},  // three
      {7, {8, 1, 7, 3}},  // three, the last with one of three
      {9, {8, 3, 4, 1}},  // a lane that has one unit of four
  };
  for (const auto& [units, shape] : all) {
    // Behind the first token's row lies another's.
    for (const StoredAs type : {StoredAs(DType::kF16), kHeadOfBF16})
      expect_gemv({.type = type, .rows = 65, .cols = units * 64, .tokens = 2, .shape = shape});
    expect_gemv({.type = DType::kQ4_0,
                 .rows = 65,
                 .cols = units * 64,
                 .eight_bits = true,
                 .tokens = 2,
                 .shape = shape});
  }
}

TEST(Gemv, ReadsRowsThatLieAnywhere) {
  DOPPLER_NEEDS_ADAPTER();
  // Widths, strides and offsets that are multiples of four, and those that are not.
  expect_gemv({.type = DType::kF32, .rows = 9, .cols = 68, .tokens = 3, .x_offset = 8, .x_gap = 4});
  expect_gemv({.type = DType::kF32, .rows = 9, .cols = 67, .tokens = 3, .x_offset = 2, .x_gap = 3});
  expect_gemv({.type = DType::kF16, .rows = 9, .cols = 128, .tokens = 3, .x_offset = 4, .x_gap = 8});
  expect_gemv({.type = DType::kBF16, .rows = 9, .cols = 1, .tokens = 2, .x_offset = 1, .x_gap = 1});
}

TEST(Gemv, WorksWithoutSubgroupsAndChecked) {
  DOPPLER_NEEDS_ADAPTER();
  for (const Mode mode : {Mode::kNoSubgroups, Mode::kChecked}) {
    expect_gemv({.type = DType::kQ4_0, .rows = 75, .cols = 288, .eight_bits = true, .mode = mode});
    for (const StoredAs type : {StoredAs(DType::kBF16), kHeadOfBF16})
      expect_gemv({.type = type, .rows = 75, .cols = 290, .bias = true, .mode = mode});
    expect_gemv({.type = DType::kQ6_K, .rows = 33, .cols = 512, .mode = mode});
  }
}

TEST(Gemv, KeepsLargeActivations) {
  DOPPLER_NEEDS_ADAPTER();
  expect_gemv({.type = DType::kF32, .rows = 16, .cols = 1152, .x_deviation = 15000});
  expect_gemv({.type = DType::kQ4_K, .rows = 16, .cols = 1024, .eight_bits = true, .x_deviation = 15000});
}

TEST(Gemv, Reaches70000Rows) {
  DOPPLER_NEEDS_ADAPTER();
  expect_gemv({.type = DType::kF16, .rows = 70001, .cols = 8});
}

TEST(GemvShape, FitsEveryWidthAndDevice) {
  for (const std::uint32_t threads : {256u, 1024u}) {
    Limits limits;
    limits.workgroups_per_dimension = 65535;  // WebGPU promises these
    limits.workgroup_invocations = threads;
    for (const StoredAs type : kForms) {
      const WeightFormat format = type.format();
      for (const std::uint32_t units : {1u, 2u, 5u, 18u, 48u, 64u, 108u, 127u, 128u, 256u, 511u, 1024u}) {
        for (const std::uint32_t rows : {1u, 64u, 1152u, 6912u, 128256u, 262144u}) {
          const GemvShape shape = choose_gemv_shape(limits, format, rows, units);
          EXPECT_LE(shape.threads(), threads);
          EXPECT_GE(shape.lanes * shape.units, units);
          EXPECT_TRUE(shape.rows >= 1 && shape.rows <= 64 && (shape.rows & (shape.rows - 1)) == 0);
          EXPECT_LE((rows + shape.rows - 1) / shape.rows, 65535u)
              << type.name() << " " << rows << " x " << units * 64 << " on " << threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
