// The worked example of docs/kernels.md, taken from the page itself: it runs, its test notices when it is
// broken, and its variants can be verified and then timed.
#include <algorithm>

#include "backend/gpu/timing.h"
#include "gpu_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

constexpr const char* kFile = "row_peak.wgsl";

// The page's shader: what stands between ```wgsl and ```.
std::string example() {
  const std::string page = doppler::testing::read_file(doppler::testing::source_path("docs/kernels.md"));
  const std::string_view mark = "```wgsl\n";
  const std::size_t begin = page.find(mark);
  EXPECT_NE(begin, std::string::npos);
  return page.substr(begin + mark.size(), page.find("```", begin + mark.size()) - begin - mark.size());
}

struct GuideShape {
  std::size_t rows, width;
};

ShaderValues values_of(const GuideShape& shape, std::int64_t threads) {
  const auto width = static_cast<std::int64_t>(shape.width);
  return {{"THREADS", threads}, {"WIDTH", width}, {"X_STRIDE", width + 3}, {"X_OFFSET", 2}};
}

// Between the rows lies what would win if it were read.
std::vector<float> rows_of(const GuideShape& shape, std::vector<float>& peaks) {
  Random random;
  std::vector<float> x(shape.rows * (shape.width + 3) + 2, 1e30f);
  peaks.assign(shape.rows, 0);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const std::vector<float> values = random.floats(shape.width);
    std::ranges::copy(values, x.begin() + static_cast<std::ptrdiff_t>(row * (shape.width + 3) + 2));
    for (const float v : values) peaks[row] = std::max(peaks[row], std::abs(v));
  }
  return x;
}

bool is_right(Mode mode, const GuideShape& shape, std::int64_t threads) {
  std::vector<float> expected;
  Launch launch(mode, kFile, values_of(shape, threads));
  launch.in("x", rows_of(shape, expected)).out("peaks", shape.rows);
  return launch.run({static_cast<std::uint32_t>(shape.rows), 1, 1}) && launch.get("peaks") == expected;
}

constexpr GuideShape kShapes[] = {{1, 1}, {3, 127}, {2, 128}, {2, 129}, {5, 300}};

TEST(KernelGuide, ItsExampleIsRightForEveryWidthAndMode) {
  DOPPLER_NEEDS_ADAPTER();
  replace_shader(kFile, example());
  for (const Mode mode : {Mode::kChecked, Mode::kUnchecked, Mode::kNoSubgroups}) {
    for (const GuideShape& shape : kShapes)
      EXPECT_TRUE(is_right(mode, shape, 128)) << shape.width << " in mode " << static_cast<int>(mode);
  }
}

TEST(KernelGuide, ItsTestNoticesMistakes) {
  DOPPLER_NEEDS_ADAPTER();
  const std::pair<std::string, std::string> mistakes[] = {
      {"#define ROUNDS (WIDTH + THREADS - 1) / THREADS", "#define ROUNDS WIDTH / THREADS"},  // no tail
      {"if (t < ${WIDTH - round * THREADS}u)", "if (t < ${WIDTH - round * THREADS + 1}u)"},  // beyond the row
      {"group.x * ${X_STRIDE}u", "group.x * ${X_STRIDE - 1}u"},                              // a wrong index
  };
  for (const auto& [right, wrong] : mistakes) {
    std::string text = example();
    const std::size_t at = text.find(right);
    ASSERT_NE(at, std::string::npos) << right;
    replace_shader(kFile, text.replace(at, right.size(), wrong));
    const bool unnoticed =
        std::ranges::all_of(kShapes, [](const GuideShape& s) { return is_right(Mode::kUnchecked, s, 128); });
    EXPECT_FALSE(unnoticed) << wrong;
  }
  replace_shader(kFile, example());
}

TEST(KernelGuide, ACandidateIsTimedOnlyWhenItIsRight) {
  DOPPLER_NEEDS_ADAPTER();
  replace_shader(kFile, example());
  const GuideShape shape{64, 1152};
  const std::shared_ptr<Device> gpu = device(Mode::kUnchecked);
  const auto bytes = static_cast<std::uint64_t>((shape.rows * (shape.width + 3) + 2) * 4);
  ASSERT_OK_AND_ASSIGN(const Buffer x, gpu->make_buffer("x", bytes));
  ASSERT_OK_AND_ASSIGN(const Buffer peaks, gpu->make_buffer("peaks", shape.rows * 4));
  std::int64_t best = 0;
  double least = 1e9;
  for (const std::int64_t threads : {64, 128, 256}) {
    if (!is_right(Mode::kUnchecked, shape, threads)) continue;
    ASSERT_OK_AND_ASSIGN(const auto kernel, Kernel::create(*gpu, kFile, values_of(shape, threads)));
    ASSERT_OK_AND_ASSIGN(const BoundKernel bound,
                         BoundKernel::create(*gpu, kernel, {{"x", x}, {"peaks", peaks}}));
    const auto record = [&](Recorder& r) {
      r.dispatch(bound, {static_cast<std::uint32_t>(shape.rows), 1, 1});
    };
    ASSERT_OK_AND_ASSIGN(const double seconds, time_on_device(*gpu, 1, record, 0.005));
    EXPECT_GT(seconds, 0);
    if (seconds < least) least = seconds, best = threads;
  }
  EXPECT_NE(best, 0) << "all three are right";
}

}  // namespace
}  // namespace doppler::gpu
