// The table of kernels: shares, bandwidths and the limit that they are held against.
#include "bench/kernels.h"

#include "base/json.h"
#include "testing.h"

namespace doppler::bench {
namespace {

KernelTable table() {
  return {.model = "m",
          .backend = "gpu",
          .device = {"Shiny", "discrete", "Vulkan", "Acme 1.2"},
          .depth = 9,
          .read_bandwidth = 1e12,
          .rows = {{"decode: down", "gemv.wgsl", 4, 30e-6, 15'000'000}, {"next", "next.wgsl", 1, 10e-6, 0}}};
}

TEST(KernelTable, HoldsEachKernelAgainstTheLimit) {
  const Json json = to_json(table());
  EXPECT_NEAR(json["seconds"].get<double>(), 40e-6, 1e-12);
  EXPECT_NEAR(json["kernels"][0]["share"].get<double>(), 0.75, 1e-9);
  EXPECT_NEAR(json["kernels"][0]["bandwidth"].get<double>(), 0.5e12, 1);
  EXPECT_NEAR(json["kernels"][0]["share_of_limit"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(json["device"]["name"], "Shiny");
}

TEST(KernelTable, TextHasALineForEachAndTheSum) {
  const std::string text = to_text(table(), 200);
  for (const char* part :
       {"discrete adapter Shiny", "a token at 9, by kernel", "\ndecode: down ", " gemv.wgsl ", "7.50",
        "50.0%", "together 0.0400 ms: 25000.0 tok/s", "1000.0 GB/s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(KernelTable, TheCpuHasNone) {
  ASSERT_OK_AND_ASSIGN(Loaded loaded, load_all(testing::data_path("models/llama"), {.backend = "cpu"}));
  EXPECT_ERROR(measure_kernels(loaded, 3, 1, 1 << 20), "cpu backend runs no kernels", "--backend gpu");
}

}  // namespace
}  // namespace doppler::bench
