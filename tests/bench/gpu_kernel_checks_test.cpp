// doppler test kernels on a GPU: every kernel of both programs is listed, and what is wrong is said.
#include "base/json.h"
#include "bench/kernel_checks.h"
#include "testing.h"

namespace doppler::bench {
namespace {

TEST(KernelChecks, EveryKernelOfAModelIsChecked) {
  auto loaded = load_all(testing::data_path("models/gemma3"), {.backend = "gpu", .context = 128});
  ASSERT_OK(loaded);
  ASSERT_OK_AND_ASSIGN(const KernelChecks checks, check_kernels(*loaded, "gemma3"));
  EXPECT_TRUE(checks.right()) << to_text(checks);
  ASSERT_TRUE(checks.device);
  EXPECT_GT(checks.count(KernelCheck::Result::kRight), 5u);
  EXPECT_EQ(checks.rows.back().what, "the whole model");
  EXPECT_EQ(checks.rows[checks.rows.size() - 2].what, "single tokens, whole");
}

TEST(KernelChecks, WrongOnesAreNamed) {
  const KernelChecks checks{
      .model = "m",
      .device = std::nullopt,
      .rows = {{.what = "norm", .kernel = "norm.wgsl"},
               {.what = "down",
                .kernel = "gemv.wgsl",
                .result = KernelCheck::Result::kWrong,
                .difference = "value 3 of out is 1 and should be 2"},
               {.what = "embed", .kernel = "embed.wgsl", .result = KernelCheck::Result::kNoCheck}}};
  EXPECT_FALSE(checks.right());
  const std::string text = to_text(checks);
  EXPECT_NE(text.find("1 right, 1 WRONG, 1 checked only as parts of the whole"), std::string::npos) << text;
  EXPECT_NE(text.find("WRONG down gemv.wgsl: value 3 of out is 1 and should be 2"), std::string::npos)
      << text;
  EXPECT_EQ(to_json(checks)["kernels"][1]["result"], "WRONG");
}

}  // namespace
}  // namespace doppler::bench
