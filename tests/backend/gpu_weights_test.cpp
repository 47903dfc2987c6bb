// What upload_matrix stores is what decode_f32 reads: embed.wgsl, which gathers rows, brings it back.
#include "gpu_weights.h"

namespace doppler::gpu {
namespace {

using namespace testing;

// Every row of the matrix, last one first, in one dispatch per shard.
std::vector<float> gather_all(Mode mode, const GpuMatrix& matrix, double factor) {
  std::vector<std::uint32_t> step(3 + matrix.rows);
  for (std::uint32_t r = 0; r < matrix.rows; ++r) step[3 + r] = matrix.rows - 1 - r;
  const std::size_t cols = matrix.cols;
  std::vector<float> rows(matrix.rows * cols, std::numeric_limits<float>::quiet_NaN());
  for (const Shard& shard : matrix.shards) {
    ShaderValues values = format_values(matrix);
    values.merge(ShaderValues{{"THREADS", 64},
                              {"IDS", 3},
                              {"ADDS", 0},
                              {"WIDTH", matrix.cols},
                              {"ROW0", shard.first_row},
                              {"ROWS", shard.rows},
                              {"TABLE", matrix.rows},
                              {"FACTOR_BITS", bits_of(factor)}});
    Launch launch(mode, "embed.wgsl", values);
    launch.in("step", step).bound("codes", shard.codes).out("out", rows.size());
    if (matrix.format.has_scales()) launch.bound("scales", shard.scales);
    if (!launch.run({(matrix.cols / 4 + 63) / 64, matrix.rows, 1})) return {};
    const std::vector<float> got = launch.get("out");
    for (std::uint32_t t = 0; t < matrix.rows; ++t) {
      const std::uint32_t row = matrix.rows - 1 - t;
      const bool here = row >= shard.first_row && row < shard.first_row + shard.rows;
      for (std::size_t c = 0; c < cols; ++c) {
        const float value = got[t * cols + c];
        if (here) {
          rows[row * cols + c] = value;
        } else {
          EXPECT_TRUE(std::isnan(value)) << "a row of another shard is written";
          if (!std::isnan(value)) return {};
        }
      }
    }
  }
  return rows;
}

void expect_values(const std::vector<float>& got, const std::vector<float>& expected, std::size_t cols,
                   double factor, bool exact, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  std::vector<double> wanted(expected.size()), allowed(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    wanted[i] = expected[i] * factor;
    // scale * code + min in f32: a rounding for each of at most four operations, of values about as large as
    // the largest of the row's neighbourhood. A wrong code or scale is off by a thousand times more.
    float most = 0;
    const std::size_t row = i / cols * cols, begin = row + (i - row) / 32 * 32;
    for (std::size_t j = begin; j < std::min(begin + 32, row + cols); ++j)
      most = std::max(most, std::abs(expected[j]));
    allowed[i] = exact ? 0 : factor * most * 0x1p-21;
  }
  expect_near_each(got, wanted, allowed, what);
}

class StoredType : public ::testing::TestWithParam<StoredAs> {};

TEST_P(StoredType, ComesBackAsDecodeReadsIt) {
  DOPPLER_NEEDS_ADAPTER();
  const auto [type, head] = GetParam();
  const std::size_t block = dtype_info(type).block_values;
  const bool exact = !is_quantised(type);
  for (const std::size_t cols : {32, 96, 256, 288, 512}) {
    if (cols % block != 0) continue;
    if (block != 256 && cols == 512) continue;
    const std::size_t rows = cols == 96 ? 131 : 7;
    const RandomTensor tensor(type, rows, cols, static_cast<unsigned>(cols));
    const GpuMatrix matrix = upload(Mode::kUnchecked, {&tensor.view}, UINT64_MAX, GetParam().format());
    ASSERT_EQ(matrix.rows, rows);
    expect_values(gather_all(Mode::kUnchecked, matrix, 0.5), tensor.values, cols, 0.5, exact,
                  fmt::format("{} {} x {}", dtype_name(type), rows, cols));
  }
}

TEST_P(StoredType, LiesInShardsOfWholeTiles) {
  DOPPLER_NEEDS_ADAPTER();
  const auto [type, head] = GetParam();
  const std::size_t cols = std::max<std::size_t>(dtype_info(type).block_values, 32);
  // Three tensors under each other, none of which ends with a tile, in shards of two tiles.
  const RandomTensor a(type, 70, cols, 1), b(type, 1, cols, 2), c(type, 190, cols, 3);
  const WeightFormat format = GetParam().format();
  const std::uint64_t tile = (cols + 63) / 64 * format.pieces() * 16 * kTileRows;
  const GpuMatrix matrix = upload(Mode::kChecked, {&a.view, &b.view, &c.view}, 3 * tile - 1, format);
  ASSERT_EQ(matrix.shards.size(), 3u);
  for (const Shard& shard : matrix.shards) {
    EXPECT_EQ(shard.first_row % 128, 0u);
    EXPECT_LE(shard.codes.bytes(), 3 * tile - 1);
  }
  EXPECT_EQ(matrix.shards.back().rows, 5u);
  std::vector<float> all = a.values;
  all.insert(all.end(), b.values.begin(), b.values.end());
  all.insert(all.end(), c.values.begin(), c.values.end());
  expect_values(gather_all(Mode::kChecked, matrix, 1), all, cols, 1, !is_quantised(type),
                std::string(dtype_name(type)));
}

INSTANTIATE_TEST_SUITE_P(Every, StoredType, ::testing::ValuesIn(stored_types()),
                         [](const auto& type) { return type.param.name(); });

TEST(UploadMatrix, PutsMixedTypesOfOneFormUnderEachOther) {
  DOPPLER_NEEDS_ADAPTER();
  // Q8_0 and IQ4_NL both become signed bytes with a half as scale.
  const RandomTensor a(DType::kQ8_0, 3, 64, 1), b(DType::kIQ4_NL, 66, 64, 2), c(DType::kQ8_0, 2, 64, 3);
  const GpuMatrix matrix = upload(Mode::kChecked, {&a.view, &b.view, &c.view});
  std::vector<float> all = a.values;
  all.insert(all.end(), b.values.begin(), b.values.end());
  all.insert(all.end(), c.values.begin(), c.values.end());
  expect_values(gather_all(Mode::kChecked, matrix, 1), all, 64, 1, false, "mixed");
}

TEST(UploadMatrix, RefusesWhatDoesNotFitTogetherOrAtAll) {
  DOPPLER_NEEDS_ADAPTER();
  const RandomTensor a(DType::kQ8_0, 3, 64, 1), b(DType::kQ4_0, 3, 64, 2), c(DType::kQ8_0, 3, 32, 3);
  const std::vector<const TensorView*> forms = {&a.view, &b.view}, widths = {&a.view, &c.view},
                                       one = {&a.view};
  EXPECT_ERROR(upload_matrix(*device(), test_pool(), forms, UINT64_MAX), "random Q8_0", "random Q4_0",
               "differ in width or form");
  EXPECT_ERROR(upload_matrix(*device(), test_pool(), widths, UINT64_MAX), "differ in width or form");
  EXPECT_ERROR(upload_matrix(*device(), test_pool(), one, 4095), "4095 bytes", "64 rows");
  TensorView none = a.view;
  none.shape = {0, 64};
  none.data = {};
  const std::vector<const TensorView*> empty = {&none};
  EXPECT_ERROR(upload_matrix(*device(), test_pool(), empty, UINT64_MAX), "0 x 64");
}

}  // namespace
}  // namespace doppler::gpu
