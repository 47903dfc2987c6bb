// doppler test kernels on a GPU: every kernel of both programs is listed, and what is wrong is said.
#include "base/json.h"
#include "bench/kernel_checks.h"
#include "bench/same_tokens.h"
#include "changed_shaders.h"
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
  std::vector<std::string> wholes;
  for (const KernelCheck& row : checks.rows) {
    if (row.kernel.empty() || row.what == "the whole model") wholes.push_back(row.what);
  }
  EXPECT_EQ(wholes, (std::vector<std::string>{"single tokens, whole", "the whole model",
                                              "guesses, checked at once", "sequences together"}));
}

// What guesses and sequences together attend with is wrong, and no self-check is asked: their tokens tell.
TEST(KernelChecks, TokensInCompanyAreThoseAlone) {
  auto loaded = load_all(testing::data_path("models/llama"), {.backend = "gpu", .context = 128});
  ASSERT_OK(loaded);
  const auto make = [&] {
    BackendOptions options = loaded->backend->options();
    options.gpu_setup.self_check = false;
    return make_backend("gpu", loaded->model->spec, loaded->model->weights, options);
  };
  const gpu::testing::Broken broken("attention_decode.wgsl", "let from_x = token * ${QKV_STRIDE / 4}u;",
                                    "let from_x = token * ${QKV_STRIDE / 4}u + 4u;");
  ASSERT_OK_AND_ASSIGN(loaded->backend, make());
  ASSERT_OK_AND_ASSIGN(const std::vector<KernelCheck> rows, check_same_tokens(*loaded));
  ASSERT_EQ(rows.size(), 2u);
  for (const KernelCheck& row : rows) {
    EXPECT_EQ(row.result, KernelCheck::Result::kWrong) << row.what;
    EXPECT_NE(row.difference.find("and by itself with"), std::string::npos) << row.difference;
  }
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
