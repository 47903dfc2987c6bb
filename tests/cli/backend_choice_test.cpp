// What --backend auto takes, and what it says about it: on machines with a GPU, without, and in programs
// that have no GPU support.
#include "cli/program.h"

namespace doppler::testing {
namespace {

std::vector<std::string> run_with(std::vector<std::string> more) {
  std::vector<std::string> all = {"run", model_path("llama"), "--prompt-ids", "2,5,9", "--max-tokens",
                                  "2",   "--ignore-eos"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Vulkan's loader finds no driver while this lives.
struct NoDriver {
  Environment modern{"VK_DRIVER_FILES", "/nowhere"}, old{"VK_ICD_FILENAMES", "/nowhere"};
};

TEST(BackendChoice, AutoSaysInALineWhatItTook) {
  const Outcome outcome = doppler(run_with({"--backend", "auto", "--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string line = first_line(outcome.err), backend = outcome.json()["backend"].get<std::string>();
  EXPECT_EQ(outcome.json()["backend_choice"], line);
  EXPECT_TRUE(line.starts_with(backend + ": ")) << line;
  EXPECT_EQ(line.find("software"), std::string::npos) << "auto never takes a software adapter";
}

TEST(BackendChoice, WithoutADriverAutoIsTheCpu) {
  const NoDriver nothing;
  const Outcome outcome = doppler(run_with({"--backend", "auto", "--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["backend"], "cpu");
#if DOPPLER_GPU
  EXPECT_EQ(outcome.err, "cpu: there is no GPU\n");
#else
  EXPECT_EQ(outcome.err, "cpu: this doppler was built without GPU support\n");
#endif
}

// Nobody who did not ask can do anything about it.
TEST(BackendChoice, ThatThereIsNoGpuIsToldOnlyToThoseWhoAsk) {
  const NoDriver nothing;
  const Outcome usual = doppler(run_with({"--json"}));
  EXPECT_EQ(usual.err, "");
  EXPECT_TRUE(usual.json()["backend_choice"].get<std::string>().starts_with("cpu: ")) << usual.out;
  EXPECT_NE(doppler(run_with({"--json", "--log-level", "verbose"})).err.find("cpu: "), std::string::npos);
}

TEST(BackendChoice, WithoutADriverGpuIsRefused) {
  const NoDriver nothing;
#if DOPPLER_GPU
  EXPECT_REFUSAL(doppler(run_with({"--backend", "gpu"})), 3, "No GPU adapter", "--backend cpu");
#else
  EXPECT_REFUSAL(doppler(run_with({"--backend", "gpu"})), 3, "without GPU support", "--backend cpu");
  EXPECT_REFUSAL(doppler({"inspect", "--gpu"}), 3, "without GPU support");
#endif
}

TEST(BackendChoice, TheCpuByNameTouchesNoGpuAndSaysNothing) {
  const Environment loader_tells("VK_LOADER_DEBUG", "all");
  const Outcome outcome = doppler(run_with({"--backend", "cpu", "--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.json()["backend_choice"], "");
}

#if DOPPLER_GPU
TEST(BackendChoice, WhatTheGpuDoesNotDoGoesToTheCpuWithAReason) {
  const Outcome outcome = doppler(run_with({"--gpu-adapter", "no such adapter", "--json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["backend"], "cpu");
  EXPECT_TRUE(outcome.err.starts_with("cpu: the GPU does not run this. No GPU adapter")) << outcome.err;
}
#endif

TEST(BackendChoice, GpuSettingsAreCheckedEverywhere) {
  EXPECT_REFUSAL(doppler(run_with({"--submit-tokens", "0"})), 2, "to \"0\"", "between 1 and 64");
  EXPECT_REFUSAL(doppler(run_with({"--set", "runtime.gpu.submitTokens=65"})), 2, "65", "between 1 and 64");
  EXPECT_REFUSAL(doppler(run_with({"--set", "runtime.gpu.submitToken=6"})), 2, "runtime.gpu.submitTokens");
  EXPECT_REFUSAL(doppler(run_with({"--set", "runtime.gpu.poison=3"})), 2, "true or false");
  const Outcome outcome = doppler(run_with({"--config", R"({"runtime": {"gpu": {"submitTokens": 64}}})"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

}  // namespace
}  // namespace doppler::testing
